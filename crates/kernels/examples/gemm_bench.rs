//! Times our matrix product on request, so that a script can alternate it with another library.
//!
//! A line `m n k layout write calls` on stdin (layout NN, NT, TN or TT; write set or add) is
//! answered on stdout by the seconds of each of `calls` calls, after one that is not counted.

use hearken_kernels::Write as To;
use hearken_kernels::gemm::{Epilogue, Matrix, gemm};
use hearken_kernels::memory::Buffer;
use std::collections::HashMap;
use std::io::Write as _;
use std::time::Instant;

fn main() {
    let mut kept: HashMap<(usize, u32), Buffer> = HashMap::new();
    for line in std::io::stdin().lines() {
        let line = line.expect("a line of text");
        let words: Vec<&str> = line.split_whitespace().collect();
        let [m, n, k, layout, write, calls] = words[..] else {
            panic!("expected 'm n k layout write calls', got '{line}'")
        };
        let number = |text: &str| text.parse::<usize>().expect("a number");
        let (m, n, k, calls) = (number(m), number(n), number(k), number(calls));
        let write = if write == "add" { To::Add } else { To::Set };
        kept.retain(|key, _| [(m * k, 1), (k * n, 2), (m * n, 3)].contains(key));
        let mut take = |len: usize, seed: u32| {
            kept.remove(&(len, seed)).unwrap_or_else(|| {
                let mut buffer = Buffer::zeroed(len);
                for (i, x) in buffer.iter_mut().enumerate() {
                    *x = ((i * 7919 + seed as usize) % 1000) as f32 / 500.0 - 1.0;
                }
                buffer
            })
        };
        let (a, b, mut out) = (take(m * k, 1), take(k * n, 2), take(m * n, 3));
        let left = match &layout[..1] {
            "N" => Matrix::new(&a, m, k),
            _ => Matrix::new(&a, k, m).transposed(),
        };
        let right = match &layout[1..] {
            "N" => Matrix::new(&b, k, n),
            _ => Matrix::new(&b, n, k).transposed(),
        };
        let times: Vec<String> = (0..=calls)
            .map(|_| {
                let start = Instant::now();
                gemm(left, right, &mut out, n, write, Epilogue::default());
                format!("{:.9}", start.elapsed().as_secs_f64())
            })
            .collect();
        println!("{}", times[1..].join(" "));
        std::io::stdout().flush().expect("stdout");
        out.fill(0.0);
        kept.extend([((m * k, 1), a), ((k * n, 2), b), ((m * n, 3), out)]);
    }
}
