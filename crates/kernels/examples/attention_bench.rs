//! Times attention for `benches/peers/attention_torch.py`, which alternates it with a peer.
//!
//! Reads lines `tokens window`; for each runs causal attention (of the last `window` keys, if that
//! is not 0) forward and backward once, f32, 12 heads of 64, and answers with
//! `forward_seconds backward_seconds peak_bytes operand_bytes`: the most memory the process has
//! ever had, and the size of Q, K, V and O together.

use hearken_kernels::Write;
use hearken_kernels::attention::scores::{Causal, Window};
use hearken_kernels::attention::{Attention, Gradients, Rows, RowsMut, Scores, Shape};
use hearken_kernels::memory::Buffer;
use std::io::BufRead;
use std::time::Instant;

const HEADS: usize = 12;
const WIDTH: usize = 64;

fn main() {
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("standard input is text");
        let numbers: Vec<usize> =
            line.split_whitespace().map(|word| word.parse().expect("a whole number")).collect();
        let [tokens, window] = numbers[..] else { panic!("expected `tokens window`: {line}") };
        let (forward, backward) = if window == 0 {
            time(tokens, &Causal::new(tokens, tokens))
        } else {
            time(tokens, &Window::causal(window, tokens, tokens))
        };
        let operands = 4 * tokens * HEADS * WIDTH * size_of::<f32>();
        println!("{forward} {backward} {} {operands}", peak_bytes());
    }
}

/// Seconds of one forward and one backward.
fn time(tokens: usize, scores: &impl Scores) -> (f64, f64) {
    let filled = |seed: u32| {
        let mut x = Buffer::<f32>::zeroed(tokens * HEADS * WIDTH);
        let mut state = seed;
        for x in &mut *x {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *x = ((state >> 8) as f32 / (1 << 24) as f32 - 0.5) * 3.4; // variance about 1
        }
        x
    };
    let (q, k, v, dout) = (filled(1), filled(2), filled(3), filled(4));
    let mut out = Buffer::<f32>::zeroed(tokens * HEADS * WIDTH);
    let mut lse = Buffer::<f32>::zeroed(tokens * HEADS);
    let [mut dq, mut dk, mut dv]: [Buffer<f32>; 3] =
        std::array::from_fn(|_| Buffer::zeroed(tokens * HEADS * WIDTH));
    let attention = Attention {
        shape: Shape {
            batch: 1,
            queries: tokens,
            keys: tokens,
            heads: HEADS,
            kv_heads: HEADS,
            width: WIDTH,
            value_width: WIDTH,
        },
        queries: Rows::new(&q, tokens, HEADS, WIDTH),
        keys: Rows::new(&k, tokens, HEADS, WIDTH),
        values: Rows::new(&v, tokens, HEADS, WIDTH),
        scale: 1.0 / (WIDTH as f32).sqrt(),
        dropout: None,
        scores,
    };
    let start = Instant::now();
    attention.forward(&mut out, &mut lse);
    let forward = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let rows = |data| Some(RowsMut::new(data, Write::Set, tokens, HEADS, WIDTH));
    attention.backward(Gradients {
        out: &out,
        lse: &lse,
        dout: &dout,
        dqueries: rows(&mut dq),
        dkeys: rows(&mut dk),
        dvalues: rows(&mut dv),
        dscores: None,
    });
    (forward, start.elapsed().as_secs_f64())
}

/// The high-water mark of resident memory, where the system tells; else 0.
fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}
