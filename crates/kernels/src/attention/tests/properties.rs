//! Shapes, layouts, accumulation, threads, extremes.

use super::reference::{Inputs, reference};
use super::*;
use crate::attention::scores::{And, Causal, Full, Padding, Relative, Window};
use crate::threads::with_threads;

/// One of the inputs.
type Part = fn(&mut Inputs) -> &mut Vec<f64>;

#[test]
fn the_reference_agrees_with_its_finite_differences() {
    let shape = case([2, 3, 4, 4, 2, 3, 2]).shape;
    let rule = And(Causal::new(3, 4), Padding::new(vec![4, 2]));
    let random = |len, seed| samples(len, 1.0, seed).iter().map(|&x| f64::from(x)).collect();
    let inputs = Inputs {
        q: random(2 * 3 * 4 * 3, 1),
        k: random(2 * 4 * 2 * 3, 2),
        v: random(2 * 4 * 2 * 2, 3),
        dout: random(2 * 3 * 4 * 2, 4),
    };
    for dropout in [None, Some(Dropout::new([3, 5], 0.3))] {
        let loss = |inputs: &Inputs| -> f64 {
            let out = reference(shape, 0.7, dropout, &rule, inputs).out;
            out.iter().zip(&inputs.dout).map(|(out, dout)| out * dout).sum()
        };
        let exact = reference(shape, 0.7, dropout, &rule, &inputs);
        let parts: [(Part, &Vec<f64>); 3] = [
            (|inputs| &mut inputs.q, &exact.dq),
            (|inputs| &mut inputs.k, &exact.dk),
            (|inputs| &mut inputs.v, &exact.dv),
        ];
        for (part, want) in parts {
            for (n, want) in want.iter().enumerate() {
                let moved = |step: f64| {
                    let mut inputs = inputs.clone();
                    part(&mut inputs)[n] += step;
                    loss(&inputs)
                };
                let found = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                // Step² and rounding/step: both about 1e-10.
                assert!((found - want).abs() < 1e-8, "{found} at {n}, wanted {want}");
            }
        }
    }
}

#[test]
fn every_length_around_the_tiles() {
    for queries in [1, 2, 3, 63, 64, 65, 130] {
        for keys in [1, 2, 63, 64, 65, 130] {
            case([1, queries, keys, 2, 2, 16, 16]).prove("full", &Full, nothing);
            let rule = Causal::new(queries, keys);
            case([1, queries, keys, 1, 1, 5, 3]).prove("causal", &rule, nothing);
        }
    }
}

#[test]
fn every_head_width_and_value_width() {
    for width in [1, 5, 16, 64, 80, 128] {
        for value_width in [1, 16, 33, 64, 128] {
            let case = case([1, 70, 66, 2, 1, width, value_width]);
            case.prove("widths", &Causal::new(70, 66), nothing);
        }
    }
}

#[test]
fn heads_share_keys_and_values() {
    for (heads, kv_heads) in [(4, 4), (4, 2), (4, 1), (6, 3), (3, 1)] {
        for (queries, keys, width, value_width) in
            [(1, 100, 8, 12), (9, 100, 8, 12), (100, 100, 8, 12), (40, 50, 16, 32)]
        {
            let case = case([2, queries, keys, heads, kv_heads, width, value_width]);
            case.prove("groups", &Causal::new(queries, keys), nothing);
        }
    }
}

#[test]
fn dropout_is_that_of_the_reference_and_the_same_in_backward() {
    for probability in [0.0, 0.1, 0.5, 1.0] {
        for (queries, keys, kv_heads) in [(1, 130, 1), (70, 130, 1), (40, 60, 1), (40, 60, 2)] {
            let case = case([2, queries, keys, 2, kv_heads, 16, 16]).with_dropout(probability);
            case.prove("dropout", &Causal::new(queries, keys), nothing);
        }
    }
}

#[test]
fn empty_dimensions_do_nothing() {
    for shape in [
        [0, 3, 4, 2, 2, 8, 8],
        [2, 0, 4, 2, 2, 8, 8],
        [2, 3, 0, 2, 2, 8, 8],
        [2, 3, 4, 2, 2, 0, 8],
        [2, 3, 4, 2, 2, 8, 0],
        [2, 70, 70, 2, 2, 0, 8],
        [2, 70, 70, 2, 2, 8, 0],
        [2, 70, 0, 2, 2, 8, 8],
        [2, 0, 4, 2, 2, 16, 16],
        [2, 40, 40, 2, 2, 0, 16],
        [2, 40, 40, 2, 2, 16, 0],
        [2, 40, 0, 2, 2, 16, 16],
    ] {
        case(shape).prove("empty", &Full, nothing);
        let [_, queries, keys, ..] = shape;
        case(shape).prove("empty window", &Window::causal(10, queries, keys), nothing);
        if queries * keys == 0 {
            let table = samples(2 * 11, 1.0, 9);
            let rule = Relative::new(&table, 5, queries, keys);
            case(shape).prove("empty and learned", &rule, |_| vec![0.0; 2 * 11]);
        }
    }
}

#[test]
fn a_query_that_sees_nothing_gives_zeros() {
    for (queries, keys, kv_heads, value_width) in
        [(1, 70, 1, 8), (5, 70, 1, 8), (70, 70, 1, 8), (40, 60, 1, 16), (40, 60, 2, 16)]
    {
        let case = case([3, queries, keys, 2, kv_heads, 16, value_width]);
        let rule = Padding::new(vec![0, keys, 3]);
        case.prove("padding", &rule, nothing);
        let given = case.given();
        let got = case.run(&rule, &given, Write::Set, f32::NAN);
        let third = |x: &[f32]| x[..x.len() / 3].to_vec();
        assert!(third(&got.out).iter().all(|&x| x == 0.0));
        assert!(third(&got.lse).iter().all(|&x| x == f32::NEG_INFINITY));
        for gradient in [&got.dq, &got.dk, &got.dv] {
            assert!(third(gradient).iter().all(|&x| x == 0.0));
        }
    }
    // Queries before the first key: T > S.
    case([1, 100, 30, 1, 1, 8, 8]).prove("early queries", &Causal::new(100, 30), nothing);
    case([1, 60, 20, 1, 1, 16, 16]).prove("early queries", &Causal::new(60, 20), nothing);
}

#[test]
fn backward_accumulates() {
    for shape in [[2, 70, 66, 4, 2, 16, 8], [2, 40, 50, 4, 2, 16, 16]] {
        let [_, queries, keys, ..] = shape;
        let case = case(shape);
        let given = case.given();
        let table = samples(4 * 11, 1.0, 9);
        let rule = And(Causal::new(queries, keys), Relative::new(&table, 5, queries, keys));
        let set = case.run(&rule, &given, Write::Set, f32::NAN);
        let add = case.run(&rule, &given, Write::Add, 0.5);
        let exact = |set: &[f32]| set.iter().map(|x| x + 0.5).collect::<Vec<f32>>();
        assert_eq!(add.dq, exact(&set.dq));
        assert_eq!(add.dk, exact(&set.dk));
        assert_eq!(add.dv, exact(&set.dv));
        // Added to what is there partial by partial, so rounded differently.
        let wide: Vec<f64> = set.dscores.iter().map(|&x| f64::from(x) + 0.5).collect();
        close("dscores", &add.dscores, &wide);
    }
    // Products of a single tile add to the gradients themselves.
    let case = case([2, 40, 50, 4, 4, 16, 16]);
    let (given, rule) = (case.given(), Causal::new(40, 50));
    let set = case.run(&rule, &given, Write::Set, f32::NAN);
    let add = case.run(&rule, &given, Write::Add, 0.5);
    for (add, set) in [(add.dq, set.dq), (add.dk, set.dk), (add.dv, set.dv)] {
        assert_eq!(add, set.iter().map(|x| x + 0.5).collect::<Vec<f32>>());
    }
}

#[test]
fn gradients_that_are_not_wanted_change_nothing_for_the_others() {
    for shape in [[2, 70, 66, 4, 2, 16, 8], [2, 40, 50, 4, 2, 16, 16], [2, 40, 50, 4, 4, 16, 16]] {
        each_gradient_alone(case(shape));
    }
}

fn each_gradient_alone(case: Case) {
    let Shape { queries, keys, heads, kv_heads, width, value_width, .. } = case.shape;
    let given = case.given();
    let rule = Causal::new(queries, keys);
    let all = case.run(&rule, &given, Write::Set, f32::NAN);
    for wanted in 0..3 {
        let mut got = vec![f32::NAN; [&all.dq, &all.dk, &all.dv][wanted].len()];
        let shapes =
            [(queries, heads, width), (keys, kv_heads, width), (keys, kv_heads, value_width)];
        let shape = shapes[wanted];
        let (mut dqueries, mut dkeys, mut dvalues) = (None, None, None);
        *[&mut dqueries, &mut dkeys, &mut dvalues][wanted] =
            Some(RowsMut::new(&mut got, Write::Set, shape.0, shape.1, shape.2));
        let (out, lse, dout) = (&all.out, &all.lse, &given.dout);
        let gradients = Gradients { out, lse, dout, dqueries, dkeys, dvalues, dscores: None };
        case.attention(&given, &rule).backward(gradients);
        assert_eq!(&got, [&all.dq, &all.dk, &all.dv][wanted]);
    }
}

#[test]
fn a_packed_projection_gives_the_same_bits() {
    // Of a single tile, rows 256 floats apart are copied, and others are read where they lie: in the
    // second and third shape queries and values are the one by themselves and the other packed.
    for shape in [[2, 70, 70, 4, 2, 16, 8], [2, 40, 40, 4, 4, 64, 16], [2, 40, 40, 4, 4, 16, 64]] {
        packed_is_as_apart(case(shape));
    }
}

fn packed_is_as_apart(case: Case) {
    let Shape { batch, queries, heads, kv_heads, width, value_width, .. } = case.shape;
    let given = case.given();
    let rule = Causal::new(queries, queries);
    let want = case.run(&rule, &given, Write::Set, f32::NAN);
    let (part_heads, part_width) = ([heads, kv_heads, kv_heads], [width, width, value_width]);
    let pack = |parts: [&[f32]; 3]| -> Vec<f32> {
        let row = |n: usize, i: usize| {
            let len = part_heads[i] * part_width[i];
            &parts[i][n * len..(n + 1) * len]
        };
        (0..batch * queries).flat_map(|n| [row(n, 0), row(n, 1), row(n, 2)].concat()).collect()
    };
    let qkv = pack([&given.q, &given.k, &given.v]);
    let [q, k, v] = Rows::packed(&qkv, queries, part_heads, part_width);
    let attention = Attention { queries: q, keys: k, values: v, ..case.attention(&given, &rule) };
    let (mut out, mut lse) = (vec![f32::NAN; want.out.len()], vec![f32::NAN; want.lse.len()]);
    attention.forward(&mut out, &mut lse);
    assert_eq!((&out, &lse), (&want.out, &want.lse));
    let mut dqkv = vec![f32::NAN; qkv.len()];
    let [dq, dk, dv] = RowsMut::packed(&mut dqkv, Write::Set, queries, part_heads, part_width);
    attention.backward(Gradients {
        out: &out,
        lse: &lse,
        dout: &given.dout,
        dqueries: Some(dq),
        dkeys: Some(dk),
        dvalues: Some(dv),
        dscores: None,
    });
    assert_eq!(dqkv, pack([&want.dq, &want.dk, &want.dv]));
}

#[test]
fn the_same_bits_on_any_number_of_threads() {
    let table = samples(2 * 31, 1.0, 9);
    for shape in [
        [1, 200, 200, 1, 1, 16, 16], // one head: keys are shared out
        [2, 300, 300, 2, 1, 8, 8],
        [3, 1, 5000, 2, 2, 16, 16], // decoding against a long cache
        [2, 3, 700, 2, 1, 16, 16],
        [3, 40, 60, 2, 1, 16, 16], // single tiles
    ] {
        let [_, queries, keys, ..] = shape;
        let case = case(shape).with_dropout(0.2);
        let given = case.given();
        let rule = And(Causal::new(queries, keys), Relative::new(&table, 15, queries, keys));
        let one = with_threads(1, || case.run(&rule, &given, Write::Set, f32::NAN));
        for threads in [2, 3, 4] {
            let got = with_threads(threads, || case.run(&rule, &given, Write::Set, f32::NAN));
            assert!(got == one, "{threads} threads give other bits for {shape:?}");
        }
    }
    // Enough heads that one is a task: of forward for one or two threads, and of backward.
    // The last is of single tiles, which leave their gradients where they belong.
    let single = [8, 40, 60, 4, 4, 16, 16];
    for shape in [[4, 100, 100, 4, 2, 16, 16], [8, 100, 100, 4, 2, 16, 16], single] {
        for case in [case(shape), case(shape).with_dropout(0.2)] {
            let given = case.given();
            let rule = Causal::new(shape[1], shape[2]);
            let run = || case.run(&rule, &given, Write::Set, f32::NAN);
            let one = with_threads(1, run);
            for threads in [2, 3, 4] {
                assert!(with_threads(threads, run) == one, "{threads} threads, {shape:?}");
            }
        }
    }
}

#[test]
fn rows_do_not_depend_on_their_neighbours() {
    let case = case([1, 130, 130, 1, 1, 16, 16]);
    let mut given = case.given();
    let rule = Window::causal(20, 130, 130);
    let before = case.run(&rule, &given, Write::Set, f32::NAN);
    given.k[100 * 16..101 * 16].fill(7.0);
    given.v[100 * 16..101 * 16].fill(-7.0);
    let after = case.run(&rule, &given, Write::Set, f32::NAN);
    // Keys 100 are seen by queries 100 to 119.
    assert_eq!(before.out[..100 * 16], after.out[..100 * 16]);
    assert_ne!(before.out[100 * 16..120 * 16], after.out[100 * 16..120 * 16]);
    assert_eq!(before.out[120 * 16..], after.out[120 * 16..]);
}

#[test]
fn large_scores_do_not_overflow() {
    // Scores up to ±160: e^160 is no f32, but softmax is defined.
    let case = case([1, 70, 140, 1, 1, 16, 16]);
    let mut given = case.given();
    given.q.iter_mut().for_each(|x| *x *= 10.0);
    let want = case.reference(&Full, &given);
    let got = case.run(&Full, &given, Write::Set, f32::NAN);
    let furthest = got.out.iter().zip(&want.out).map(|(got, want)| (f64::from(*got) - want).abs());
    // Scores of that size are off by 1e-5, and weights by as much relatively.
    assert!(furthest.fold(0.0, f64::max) < 1e-4);
    assert!(got.dq.iter().chain(&got.dk).chain(&got.dv).all(|x| x.is_finite()));
}

#[test]
fn a_nan_or_infinite_score_makes_its_row_nan_and_no_other() {
    for queries in [3, 70] {
        for bad in [f32::NAN, f32::INFINITY] {
            let case = case([1, queries, 70, 1, 1, 8, 8]);
            let mut given = case.given();
            given.k.iter_mut().for_each(|x| *x = x.abs() + 0.1);
            given.q[8] = bad; // query 1
            let (mut out, mut lse) = (vec![0.0; queries * 8], vec![0.0; queries]);
            case.attention(&given, &Full).forward(&mut out, &mut lse);
            for (i, row) in out.chunks_exact(8).enumerate() {
                assert!(row.iter().all(|x| x.is_nan() == (i == 1)), "row {i}: {row:?}");
            }
        }
    }
}

#[test]
fn the_weights_are_those_of_the_tiled_path() {
    for (queries, keys) in [(1, 70), (70, 70), (5, 130), (100, 60)] {
        let case = case([2, queries, keys, 4, 2, 16, 16]);
        let given = case.given();
        let rule = And(Causal::new(queries, keys), Padding::new(vec![keys, 3]));
        let attention = case.attention(&given, &rule);
        let want = case.reference(&rule, &given);
        let mut weights = vec![f32::NAN; 2 * 4 * queries * keys];
        attention.weights(&mut weights);
        close("weights", &weights, &want.weights);
        // And out is what they make of the values.
        let (mut out, mut lse) = (vec![f32::NAN; want.out.len()], vec![f32::NAN; want.lse.len()]);
        attention.forward(&mut out, &mut lse);
        let mut made = vec![0.0; out.len()];
        for (row, weights) in weights.chunks_exact(keys).enumerate() {
            let (b, h, i) = (row / (4 * queries), row / queries % 4, row % queries);
            for (j, weight) in weights.iter().enumerate() {
                for d in 0..16 {
                    made[((b * queries + i) * 4 + h) * 16 + d] += f64::from(*weight)
                        * f64::from(given.v[((b * keys + j) * 2 + h / 2) * 16 + d]);
                }
            }
        }
        close("out of the weights", &out, &made);
    }
}

#[test]
fn the_entropy_is_that_of_the_weights() {
    for (queries, keys) in [(1, 70), (70, 70), (100, 60)] {
        let case = case([2, queries, keys, 4, 2, 16, 16]);
        let given = case.given();
        let rule = And(Causal::new(queries, keys), Padding::new(vec![keys, 3]));
        let want = case.reference(&rule, &given);
        let mean: Vec<f64> = (0..4)
            .map(|h| {
                let rows = (0..2 * queries).map(|n| (n / queries * 4 + h) * queries + n % queries);
                let seen = rows.filter(|&row| want.lse[row] > f64::NEG_INFINITY);
                let entropies: Vec<f64> = seen
                    .map(|row| &want.weights[row * keys..(row + 1) * keys])
                    .map(|p| p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum())
                    .collect();
                entropies.iter().sum::<f64>() / entropies.len() as f64
            })
            .collect();
        for isa in Isa::all_available() {
            with_isa(isa, || {
                let attention = case.attention(&given, &rule);
                let (mut out, mut lse) = (vec![0.0; want.out.len()], vec![0.0; want.lse.len()]);
                attention.forward(&mut out, &mut lse);
                let mut entropy = vec![f32::NAN; 4];
                attention.entropy(&lse, &mut entropy);
                close("entropy", &entropy, &mean);
            });
        }
    }
}

#[test]
fn uniform_and_collapsed_heads_have_the_entropies_they_should() {
    let (t, s) = (20, 100);
    for width in [4, 5, 48] {
        let case = case([1, t, s, 2, 2, width, width]);
        let mut given = case.given();
        for (n, q) in given.q.iter_mut().enumerate() {
            *q = if n / width % 2 == 0 { 0.0 } else { 97.3 }; // head 0 asks nothing, head 1 loudly
        }
        for (n, k) in given.k.iter_mut().enumerate() {
            *k = if n / (2 * width) == 7 { 1.0 } else { 0.0 }; // key 7 stands out
        }
        let attention = case.attention(&given, &Full);
        let (mut out, mut lse) = (vec![0.0; t * 2 * width], vec![0.0; t * 2]);
        attention.forward(&mut out, &mut lse);
        let mut entropy = [f32::NAN; 2];
        attention.entropy(&lse, &mut entropy);
        // ln 100 = 4.6 to the last bits of f32; and 99·e^−190 or less, which is no f32.
        assert!((entropy[0] - 100.0_f32.ln()).abs() < 1e-5 && entropy[1] == 0.0, "{entropy:?}");
    }
}

#[test]
fn a_cache_of_heads_gives_the_same_bits() {
    let case = case([2, 1, 130, 4, 2, 16, 16]);
    let given = case.given();
    let rule = Causal::new(1, 130);
    let want = case.run(&rule, &given, Write::Set, f32::NAN);
    // (B, S, K, D) to (B, K, capacity, D), with garbage behind the filled rows.
    let capacity = 200;
    let cached = |x: &[f32]| -> Vec<f32> {
        let mut cache = vec![f32::NAN; 2 * 2 * capacity * 16];
        for (n, row) in x.chunks_exact(16).enumerate() {
            let (b, j, h) = (n / 260, n / 2 % 130, n % 2);
            cache[((b * 2 + h) * capacity + j) * 16..][..16].copy_from_slice(row);
        }
        cache
    };
    let (k, v) = (cached(&given.k), cached(&given.v));
    let attention = Attention {
        keys: Rows::cache(&k, 2, capacity, 130, 16),
        values: Rows::cache(&v, 2, capacity, 130, 16),
        ..case.attention(&given, &rule)
    };
    let (mut out, mut lse) = (vec![f32::NAN; want.out.len()], vec![f32::NAN; want.lse.len()]);
    attention.forward(&mut out, &mut lse);
    assert_eq!((out, lse), (want.out, want.lse));
}

#[test]
fn long_caches_are_merged_from_their_spans() {
    for queries in [1, 2, 8, 9] {
        let keys = 1300;
        let case = case([1, queries, keys, 2, 1, 16, 20]).with_dropout(0.2);
        case.prove("full", &Full, nothing);
        case.prove("causal", &Causal::new(queries, keys), nothing);
        case.prove("window", &Window::causal(300, queries, keys), nothing);
        case.prove("short", &Padding::new(vec![700]), nothing);
        case.prove("nothing", &Padding::new(vec![0]), nothing);
    }
}
