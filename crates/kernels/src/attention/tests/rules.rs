//! Every rule, and compositions of them, through forward and backward.

use super::*;
use crate::attention::scores::{
    Adjacency, Alibi, And, Bias, Buckets, Causal, Chosen, Full, Global, Mask, Or, Padding, Prefix,
    Relative, Segments, Strided, T5, UNRELATED, Window,
};

/// Sums the gradients of scores (B, H, T, S) at the place of the learned number that was added.
fn summed(
    shape: Shape,
    len: usize,
    place: impl Fn(usize, usize, usize, usize) -> Option<usize>,
) -> impl Fn(&[f64]) -> Vec<f64> {
    move |dscores| {
        let Shape { queries: t, keys: s, heads: h, .. } = shape;
        let mut sums = vec![0.0; len];
        for (n, ds) in dscores.iter().enumerate() {
            if let Some(place) = place(n / (h * t * s), n / (t * s) % h, n / s % t, n % s) {
                sums[place] += ds;
            }
        }
        sums
    }
}

/// Queries × keys: a few against many, several tiles, more queries than keys, and single tiles.
const SIZES: [(usize, usize); 7] =
    [(2, 150), (130, 130), (70, 200), (100, 70), (40, 40), (20, 60), (60, 20)];

/// A single tile has widths of whole cache lines, so that it is read where it lies.
fn of_size((queries, keys): (usize, usize)) -> Case {
    case([2, queries, keys, 4, 2, 16, if keys <= 64 { 16 } else { 12 }])
}

/// Two packed sequences: documents of 1, 2, 3, … keys; and one that is followed by padding.
fn documents(keys: usize) -> Vec<u32> {
    let rising = (1_u32..).flat_map(|n| vec![n; n as usize]).take(keys);
    rising.chain((0..keys).map(|j| u32::from(j < keys / 2))).collect()
}

#[test]
fn masks() {
    // With keys of its own, a head that is a single tile leaves its gradients where they belong.
    for ((t, s), kv_heads) in SIZES.into_iter().flat_map(|size| [(size, 2), (size, 4)]) {
        let mut case = of_size((t, s));
        case.shape.kv_heads = kv_heads;
        case.prove("full", &Full, nothing);
        case.prove("causal", &Causal::new(t, s), nothing);
        case.prove("padding", &Padding::new(vec![s.min(65), 1]), nothing);
        case.prove("prefix", &Prefix::new(vec![20, 0], t, s), nothing);
        case.prove("window", &Window::causal(10, t, s), nothing);
        case.prove("symmetric window", &Window::symmetric(10, t, s), nothing);
        case.prove("segments", &Segments::new(&documents(s), t, s), nothing);
        case.prove("strided", &Strided::new(9, t, s), nothing);
        case.prove("global", &Global::new(3, t, s), nothing);
        let listed = |n: usize| [n % s, (n % s + 1 + n % 7).min(s)].map(|key| key as u32);
        let listed = (0..2 * 4 * t).flat_map(listed).collect();
        case.prove("chosen", &Chosen::new([4, t, 2], listed), nothing);
        for (b, h) in [(1, 1), (2, 1), (1, 4), (2, 4)] {
            let mask: Vec<bool> = samples(b * h * t * s, 1.0, 5).iter().map(|&x| x > 0.3).collect();
            case.prove("mask", &Mask::new(mask, [b, h, t, s]), nothing);
        }
    }
}

#[test]
fn alibi() {
    for (t, s) in SIZES {
        of_size((t, s)).prove("alibi", &Alibi::new(4, t, s), nothing);
    }
}

#[test]
fn additive_bias_and_its_gradient() {
    for (t, s) in SIZES {
        for (b, h) in [(1, 1), (2, 1), (1, 4), (2, 4)] {
            let case = of_size((t, s));
            let bias = samples(b * h * t * s, 1.0, 6);
            let gradient = summed(case.shape, bias.len(), |batch, head, i, j| {
                Some(((batch % b * h + head % h) * t + i) * s + j)
            });
            case.prove("bias", &Bias::new(&bias, [b, h, t, s]), gradient);
        }
    }
}

#[test]
fn relative_bias_and_its_gradient() {
    for (t, s) in SIZES {
        let (case, reach) = (of_size((t, s)), 12_usize);
        let table = samples(4 * 25, 1.0, 7);
        let gradient = summed(case.shape, table.len(), |_, h, i, j| {
            let distance = (j + t) as i64 - (i + s) as i64;
            Some(h * 25 + (distance.clamp(-12, 12) + 12) as usize)
        });
        case.prove("relative", &Relative::new(&table, reach, t, s), gradient);
    }
}

#[test]
fn t5_bias_and_its_gradient() {
    for (t, s) in SIZES {
        for buckets in [Buckets::bidirectional(8, 30), Buckets::causal(8, 30)] {
            let case = of_size((t, s));
            let table = samples(8 * 4, 1.0, 8);
            let gradient = summed(case.shape, table.len(), |_, h, i, j| {
                Some(buckets.bucket((j + t) as isize - (i + s) as isize) * 4 + h)
            });
            case.prove("t5", &T5::new(&table, 4, buckets.clone(), t, s), gradient);
        }
    }
}

#[test]
fn adjacency_and_the_gradient_of_its_relations() {
    for (t, s) in SIZES {
        let case = of_size((t, s));
        let relation = |x: &f32| if *x > 0.2 { UNRELATED } else { (x.abs() * 3.0) as u8 };
        let relations: Vec<u8> = samples(2 * t * s, 1.0, 9).iter().map(relation).collect();
        let none: [f32; 0] = [];
        case.prove("adjacency", &Adjacency::new(&relations, [2, t, s], none, 4), nothing);
        let table = samples(3 * 4, 1.0, 10);
        let gradient = summed(case.shape, table.len(), |b, h, i, j| {
            let relation = relations[(b * t + i) * s + j];
            (relation != UNRELATED).then_some(relation as usize * 4 + h)
        });
        let rule = Adjacency::new(&relations, [2, t, s], &table, 4);
        case.prove("adjacency with relations", &rule, gradient);
    }
}

#[test]
fn compositions() {
    for (t, s) in SIZES {
        let case = of_size((t, s)).with_dropout(0.1);
        let lengths = vec![s, s / 2];
        let causal = || Causal::new(t, s);
        case.prove("causal + padding", &And(causal(), Padding::new(lengths.clone())), nothing);
        let rule = And(And(causal(), Alibi::new(4, t, s)), Padding::new(lengths.clone()));
        case.prove("causal + alibi + padding", &rule, nothing);
        let packed = Segments::new(&documents(s), t, s);
        case.prove("causal + segments", &And(causal(), &packed), nothing);
        let sparse =
            Or::new(Window::causal(8, t, s), Or::new(Strided::new(16, t, s), Global::new(2, t, s)));
        case.prove("sparse", &And(causal(), sparse), nothing);
        // Two learned rules: gradients one after the other.
        let (near, table) = (samples(4 * 7, 1.0, 11), samples(8 * 4, 1.0, 12));
        let buckets = Buckets::causal(8, 30);
        let gradient = |dscores: &[f64]| {
            let relative = summed(case.shape, near.len(), |_, h, i, j| {
                let distance = (j + t) as i64 - (i + s) as i64;
                Some(h * 7 + (distance.clamp(-3, 3) + 3) as usize)
            });
            let t5 = summed(case.shape, table.len(), |_, h, i, j| {
                Some(buckets.bucket((j + t) as isize - (i + s) as isize) * 4 + h)
            });
            [relative(dscores), t5(dscores)].concat()
        };
        let learned = And(Relative::new(&near, 3, t, s), T5::new(&table, 4, buckets.clone(), t, s));
        case.prove("window + relative + t5", &And(Window::causal(30, t, s), &learned), gradient);
        let by_reference: &dyn Scores = &And(causal(), &learned);
        case.prove("chosen at run time", &by_reference, gradient);
    }
}
