//! Sequences of different lengths whose caches lie in pages, against each by itself in one piece.

use super::super::pages::{Decoding, Kept, PAGE, Pages, Sequence, gather};
use super::super::scores::{And, Causal, Window};
use super::super::{Attention, Rows, Scores, Shape};
use crate::convert::f32_to_f16;
use crate::testing::{on_every_isa, samples};

const KINDS: [&str; 3] = ["f32", "f16", "int8"];
const HEADS: usize = 4;
const KV_HEADS: usize = 2;

/// Keys and values of one sequence, each page (K, PAGE, width).
struct Cache {
    kind: &'static str,
    widths: [usize; 2],
    wide: Vec<[Vec<f32>; 2]>,
    half: Vec<[Vec<u16>; 2]>,
    bytes: Vec<[Vec<i8>; 2]>,
    scales: Vec<[Vec<f32>; 2]>,
}

impl Cache {
    fn new(kind: &'static str, rows: usize, widths: [usize; 2], seed: u32) -> Self {
        let mut cache =
            Self { kind, widths, wide: vec![], half: vec![], bytes: vec![], scales: vec![] };
        for page in 0..rows.div_ceil(PAGE) as u32 {
            let numbers = |part: u32| {
                let len = KV_HEADS * PAGE * widths[part as usize];
                samples(len, 2.0, seed * 1000 + page * 10 + part)
            };
            let wide = [numbers(0), numbers(1)];
            cache.half.push(wide.each_ref().map(|x| {
                let mut half = vec![0; x.len()];
                f32_to_f16(x, &mut half);
                half
            }));
            cache.bytes.push(wide.each_ref().map(|x| x.iter().map(|x| (x * 60.0) as i8).collect()));
            let scale = |i: usize| 0.01 + 0.001 * (i % 13) as f32;
            let scales = [0, 1].map(|_| (0..KV_HEADS * PAGE).map(scale).collect());
            cache.scales.push(scales);
            cache.wide.push(wide);
        }
        cache
    }

    /// Row `row` of a head as it should be read, one number at a time.
    fn number(&self, part: usize, head: usize, row: usize, i: usize) -> f32 {
        let (page, place) = (row / PAGE, head * PAGE + row % PAGE);
        let at = place * self.widths[part] + i;
        match self.kind {
            "f32" => self.wide[page][part][at],
            "f16" => half::f16::from_bits(self.half[page][part][at]).to_f32(),
            _ => f32::from(self.bytes[page][part][at]) * self.scales[page][part][place],
        }
    }
}

impl Pages for Cache {
    fn page(&self, index: usize) -> [Kept<'_>; 2] {
        [0, 1].map(|part| match self.kind {
            "f32" => Kept::F32(&self.wide[index][part]),
            "f16" => Kept::F16(&self.half[index][part]),
            _ => Kept::Int8(&self.bytes[index][part], &self.scales[index][part]),
        })
    }
}

#[test]
fn every_sequence_gets_the_bits_it_gets_alone_from_one_piece() {
    // (queries, keys): one page, several, more than a span, ends inside and at the end of a page.
    let shapes = [(1, 1), (3, 64), (1, 65), (8, 200), (1, 1100), (2, 512)];
    on_every_isa(|isa| {
        for kind in KINDS {
            for widths in [[16, 16], [5, 7], [8, 32]] {
                let caches: Vec<Cache> = (1..)
                    .zip(shapes)
                    .map(|(seed, (_, keys))| Cache::new(kind, keys, widths, seed))
                    .collect();
                let rules: Vec<Box<dyn Scores>> = shapes
                    .iter()
                    .map(|&(queries, keys)| -> Box<dyn Scores> {
                        let causal = Causal::new(queries, keys);
                        if keys == 200 {
                            return Box::new(And(causal, Window::causal(30, queries, keys)));
                        }
                        Box::new(causal)
                    })
                    .collect();
                let total: usize = shapes.iter().map(|(queries, _)| queries).sum();
                let q = samples(total * HEADS * widths[0], 2.0, 99);
                let step = Decoding {
                    heads: HEADS,
                    kv_heads: KV_HEADS,
                    width: widths[0],
                    value_width: widths[1],
                    queries: Rows::new(&q, total, HEADS, widths[0]),
                    scale: 0.3,
                };
                let (mut sequences, mut first) = (Vec::new(), 0);
                for (n, &(queries, keys)) in shapes.iter().enumerate() {
                    let rows = first..first + queries;
                    first = rows.end;
                    sequences.push(Sequence { rows, keys, pages: &caches[n], scores: &rules[n] });
                }
                let mut out = vec![f32::NAN; total * HEADS * widths[1]];
                step.forward(&sequences, &mut out);
                for (n, sequence) in sequences.iter().enumerate() {
                    let (queries, keys) = shapes[n];
                    let row = HEADS * widths[1];
                    let got = &out[sequence.rows.start * row..sequence.rows.end * row];
                    let q = &q[sequence.rows.start * HEADS * widths[0]..];
                    let want = alone(&caches[n], q, queries, keys, &rules[n]);
                    assert_eq!(got, want, "{isa:?}, {kind}, {widths:?}, {queries} of {keys}");
                }
            }
        }
    });
}

/// The same by the kernel for batches, from keys and values in one piece.
fn alone(cache: &Cache, q: &[f32], queries: usize, keys: usize, rule: &dyn Scores) -> Vec<f32> {
    let [width, value_width] = cache.widths;
    let whole = [0, 1].map(|part| {
        let mut out = Vec::new();
        for head in 0..KV_HEADS {
            for row in 0..keys {
                out.extend((0..cache.widths[part]).map(|i| cache.number(part, head, row, i)));
            }
        }
        out
    });
    let mut gathered = whole.each_ref().map(|x| vec![f32::NAN; x.len()]);
    let [k, v] = &mut gathered;
    gather(cache, KV_HEADS, keys, cache.widths, [k, v]);
    assert_eq!(gathered, whole, "gathered");
    let shape =
        Shape { batch: 1, queries, keys, heads: HEADS, kv_heads: KV_HEADS, width, value_width };
    let attention = Attention {
        shape,
        queries: Rows::new(q, queries, HEADS, width),
        keys: Rows::cache(&whole[0], KV_HEADS, keys, keys, width),
        values: Rows::cache(&whole[1], KV_HEADS, keys, keys, value_width),
        scale: 0.3,
        dropout: None,
        scores: &rule,
    };
    let mut out = vec![f32::NAN; queries * HEADS * value_width];
    attention.forward(&mut out, &mut vec![0.0; HEADS * queries]);
    out
}
