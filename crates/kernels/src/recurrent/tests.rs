use super::*;
use crate::activation::Activation;
use crate::isa::{Isa, with_isa};
use crate::testing::{LENGTHS, assert_close, on_every_isa, samples};

const B: usize = 3;
const T: usize = 2;

/// All that the three cells compute at one time, forwards and back, one after the other.
fn everything(c: usize) -> Vec<f32> {
    let walk = Walk {
        batch: B,
        length: T,
        width: c,
        backwards: false,
        lengths: Some(&[2, 1, 2]), // at time 1, the second row is padding
    };
    let per_time = |gates: usize, seed| samples(B * T * gates * c, 3.0, seed);
    let state = |seed| samples(B * c, 2.0, seed);
    let (dout, first) = (per_time(1, 1), state(2));
    let mut all = Vec::new();

    let (mut gates, mut h, mut cell) = (per_time(4, 3), state(4), state(5));
    let (mut out, mut cells) = (per_time(1, 6), per_time(1, 7));
    lstm_forward(&walk, 1, &mut gates, [&mut h, &mut cell], &mut out, &mut cells);
    all.extend([&gates, &h, &cell, &out, &cells].into_iter().flatten());
    lstm_backward(&walk, 1, &mut gates, [&cells, &first, &dout], [&mut h, &mut cell]);
    all.extend([&gates, &h, &cell].into_iter().flatten());

    let (mut gates, mut h, products) = (per_time(3, 8), state(9), samples(B * 3 * c, 2.0, 10));
    let (mut out, mut candidates) = (per_time(1, 11), per_time(1, 12));
    gru_forward(&walk, 1, &mut gates, &products, &mut h, &mut out, &mut candidates);
    all.extend([&gates, &h, &out, &candidates].into_iter().flatten());
    gru_backward(&walk, 1, &mut gates, &mut candidates, [&out, &first, &dout], &mut h);
    all.extend([&gates, &candidates, &h].into_iter().flatten());

    for f in [Activation::Tanh, Activation::Relu] {
        let (mut out, mut h, mut gradient) = (per_time(1, 13), state(14), per_time(1, 15));
        rnn_forward(&walk, 1, f, &mut out, &mut h);
        all.extend([&out, &h].into_iter().flatten());
        rnn_backward(&walk, 1, f, &out, &mut gradient, &mut h);
        all.extend([&gradient, &h].into_iter().flatten());
    }
    all
}

#[test]
fn instruction_sets_agree_on_awkward_widths() {
    for c in LENGTHS {
        let plain = with_isa(Isa::Portable, || everything(c));
        let plain: Vec<f64> = plain.iter().map(|&x| f64::from(x)).collect();
        on_every_isa(|isa| {
            // A dozen roundings of numbers up to 10.
            assert_close(&format!("{isa:?}, {c} wide"), &everything(c), &plain, |_| 1e-5);
        });
    }
}

#[test]
fn a_walk_visits_every_time_once_and_starts_where_padding_ends() {
    let forwards = Walk { batch: 2, length: 3, width: 1, backwards: false, lengths: Some(&[3, 2]) };
    let backwards = Walk { backwards: true, ..forwards };
    let times = |walk: &Walk<'_>| (0..3).map(|step| walk.time(step)).collect::<Vec<_>>();
    assert_eq!((times(&forwards), times(&backwards)), (vec![0, 1, 2], vec![2, 1, 0]));
    assert_eq!((forwards.before(1, 0), forwards.before(1, 1)), (None, Some(0)));
    assert_eq!((backwards.before(1, 1), backwards.before(0, 1)), (None, Some(2)));
    let mut before = [f32::NAN; 6];
    let states = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    states_before(&backwards, &states, &[10.0, 20.0], &mut before);
    assert_eq!(before, [2.0, 3.0, 10.0, 5.0, 20.0, 0.0]);
}

#[test]
fn a_state_waits_while_its_row_is_padding() {
    let walk = Walk { batch: 1, length: 2, width: 2, backwards: true, lengths: Some(&[1]) };
    let (mut gates, mut h, mut cell) = (vec![1.0; 16], [0.5, 0.6], [0.7, 0.8]);
    let (mut out, mut cells) = ([9.0; 4], [9.0; 4]);
    lstm_forward(&walk, 1, &mut gates, [&mut h, &mut cell], &mut out, &mut cells);
    assert_eq!((h, cell, &out[2..]), ([0.5, 0.6], [0.7, 0.8], &[0.0, 0.0][..]));
}
