//! Times attention for the script that compares it with a peer: reads lines of
//! `tokens window`, runs causal attention forward and backward once on 12 heads of 64 (only the
//! last `window` keys if it is not 0), and answers `forward_ms backward_ms`.

use hearken_kernels::Write;
use hearken_kernels::attention::scores::Causal;
use hearken_kernels::attention::{Attention, Gradients, Rows, RowsMut, Shape};
use hearken_kernels::memory::Buffer;
use std::io::BufRead;
use std::time::Instant;

fn main() {
    let (heads, width) = (12, 64);
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let tokens: usize = line.split_whitespace().next().expect("tokens").parse().expect("a number");
        let columns = heads * width;
        let shape = Shape {
            batch: 1,
            queries: tokens,
            keys: tokens,
            heads,
            kv_heads: heads,
            width,
            value_width: width,
        };
        let filled = |seed: u32| {
            let mut x = Buffer::<f32>::zeroed(tokens * columns);
            let mut state = seed;
            for x in &mut *x {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *x = ((state >> 8) as f32 / (1 << 24) as f32 - 0.5) * 3.0;
            }
            x
        };
        let (q, k, v, dout) = (filled(1), filled(2), filled(3), filled(4));
        let mut out = Buffer::<f32>::zeroed(tokens * columns);
        let mut lse = Buffer::<f32>::zeroed(tokens * heads);
        let mut grads: [Buffer<f32>; 3] =
            std::array::from_fn(|_| Buffer::zeroed(tokens * columns));
        let attention = Attention {
            shape,
            queries: Rows::new(&q, tokens, heads, width),
            keys: Rows::new(&k, tokens, heads, width),
            values: Rows::new(&v, tokens, heads, width),
            scale: 1.0 / (width as f32).sqrt(),
            scores: &Causal::new(tokens, tokens),
        };
        for _ in 0..3 {
        let start = Instant::now();
        attention.forward(&mut out, &mut lse);
        let forward = start.elapsed();
        let [dq, dk, dv] = &mut grads;
        let start = Instant::now();
        attention.backward(
            Gradients {
                out: &out,
                lse: &lse,
                dout: &dout,
                dqueries: RowsMut::new(dq, tokens, heads, width),
                dkeys: RowsMut::new(dk, tokens, heads, width),
                dvalues: RowsMut::new(dv, tokens, heads, width),
                dscores: &mut [],
            },
            Write::Set,
        );
        let backward = start.elapsed();
        println!("{:.3} {:.3}  {:.1} GF", forward.as_secs_f64() * 1e3, backward.as_secs_f64() * 1e3, 7.0*(tokens*tokens*64*12) as f64 / (forward+backward).as_secs_f64()/1e9);
        }
    }
}
