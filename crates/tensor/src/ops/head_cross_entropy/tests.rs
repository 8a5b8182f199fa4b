use super::*;
use crate::graph::no_grad;
use crate::half::{HalfTensor, Storage};
use crate::ops::cross_entropy::{IGNORED, cross_entropy};
use crate::ops::linear::linear;
use crate::rng::Rng;

#[test]
fn is_proven() {
    crate::gradcheck::assert_all(&cases());
}

fn head(rows: usize, width: usize, vocabulary: usize) -> (Var, Var, Var, Vec<u32>) {
    let h = Var::leaf(Rng::new(1).normal([rows, width], 1.0));
    let w = Var::leaf(Rng::new(2).normal([vocabulary, width], 0.3));
    let b = Var::leaf(Rng::new(3).normal([vocabulary], 0.3));
    (h, w, b, case_targets(rows, vocabulary, true))
}

#[test]
fn equals_linear_and_cross_entropy_over_many_chunks() {
    let (rows, width, vocabulary) = (1100, 8, 5000); // three chunks of 512 rows at most
    assert_eq!(rows_per_chunk(vocabulary), 512);
    let (h, w, b, targets) = head(rows, width, vocabulary);
    let options = Options { label_smoothing: 0.1, ..Options::default() };
    let run = |loss: Var| {
        loss.backward();
        let gradients = [&h, &w, &b].map(|x| Array::from(&x.take_gradient().unwrap()).data);
        (f64::from(loss.value().item()), gradients)
    };
    let (want, want_gradients) = run(cross_entropy(linear(&h, &w, Some(&b)), &targets, options));
    let fused = head_cross_entropy(&h, &w, Some(&b), &targets, options);
    let value = fused.value().item();
    fused.backward();
    // The same sums in another order.
    assert!((f64::from(value) / want - 1.0).abs() < 1e-6);
    for (x, want) in [&h, &w, &b].into_iter().zip(&want_gradients) {
        let error = crate::gradcheck::error(x.take_gradient().unwrap().data(), want);
        assert!(error < 2e-6, "{error}");
    }
    let without = no_grad(|| head_cross_entropy(&h, &w, Some(&b), &targets, options));
    assert!(!without.wants_gradient());
    assert!((without.value().item() / value - 1.0).abs() < 1e-6);
}

#[test]
fn chunks_depend_on_the_vocabulary_alone() {
    assert_eq!(rows_per_chunk(50_257), 512);
    assert_eq!(rows_per_chunk(128_256), 256); // 125 MiB
    assert_eq!(rows_per_chunk(1 << 20), 256);
    assert_eq!(rows_per_chunk(65), 16_384); // 4 MiB
    assert_eq!(rows_per_chunk(0), 1 << 20);
}

#[test]
fn only_what_is_wanted_is_computed() {
    let (h, w, _, targets) = head(5, 4, 9);
    let frozen = w.detach();
    head_cross_entropy(&h, &frozen, None, &targets, Options::default()).backward();
    assert!(h.take_gradient().is_some());
    head_cross_entropy(&h.detach(), &w, None, &targets, Options::default()).backward();
    assert!(w.take_gradient().is_some() && h.gradient().is_none());
}

#[test]
fn a_gradient_that_is_the_first_is_moved_and_not_copied() {
    let (h, w, _, targets) = head(5, 4, 9);
    let loss = head_cross_entropy(&h, &w, None, &targets, Options::default());
    let twice = &loss + &loss; // dout is 2
    twice.backward();
    let doubled = w.take_gradient().unwrap();
    assert!(doubled.is_unique());
    head_cross_entropy(&h, &w, None, &targets, Options::default()).backward();
    for (two, one) in doubled.data().iter().zip(w.gradient().unwrap().data()) {
        assert_eq!(*two, 2.0 * one); // exact: a power of two
    }
}

#[test]
fn nothing_that_counts_costs_nothing_and_teaches_nothing() {
    for rows in [0, 3] {
        let (h, w, b, _) = head(rows, 4, 9);
        let targets = vec![IGNORED; rows];
        let loss = head_cross_entropy(&h, &w, Some(&b), &targets, Options::default());
        assert_eq!(loss.value().item(), 0.0);
        loss.backward();
        for x in [h, w, b] {
            assert!(x.gradient().unwrap().data().iter().all(|&d| d == 0.0));
        }
    }
}

#[test]
fn losses_of_tokens_add_up_to_the_loss() {
    let (h, w, b, targets) = head(13, 6, 11);
    let losses = token_losses(h.value(), &w, Some(b.value()), &targets);
    let count = targets.iter().filter(|&&t| t != IGNORED).count();
    let loss = head_cross_entropy(&h, &w, Some(&b), &targets, Options::default());
    let mean = losses.data().iter().sum::<f32>() / count as f32;
    assert!((mean - loss.value().item()).abs() < 1e-5); // 13 terms of size 3
    for (loss, target) in losses.data().iter().zip(&targets) {
        assert_eq!(*loss == 0.0, *target == IGNORED);
    }
}

#[test]
fn last_logits_are_the_last_of_all_logits() {
    let (batch, length, width, vocabulary) = (3, 4, 6, 11);
    let (_, w, b, _) = head(0, width, vocabulary);
    let h = Rng::new(4).normal([batch, length, width], 1.0);
    let all = linear(&Var::constant(h.clone()), &w, Some(&b)).into_value();
    let last = last_logits(&h, &w, Some(b.value()));
    assert_eq!(last.shape().dims(), [batch, vocabulary]);
    for i in 0..batch {
        let from = (i * length + length - 1) * vocabulary;
        assert_eq!(
            &last.data()[i * vocabulary..(i + 1) * vocabulary],
            &all.data()[from..from + vocabulary]
        );
    }
    assert_eq!(last_logits(&Tensor::zeros([0, 0, width]), &w, None).shape().dims(), [0, 11]);
}

#[test]
fn a_sixteen_bit_weight_gives_the_loss_of_its_rounded_numbers() {
    let (h, w, _, targets) = head(9, 8, 21);
    for storage in [Storage::Bf16, Storage::F16] {
        let half = HalfTensor::new(w.value(), storage);
        let widened = Var::leaf(half.widen());
        let weight = Weight::rounded(half, w.clone());
        let loss = head_cross_entropy(&h, weight, None, &targets, Options::default());
        let same = head_cross_entropy(&h, &widened, None, &targets, Options::default());
        assert_eq!(loss.value().item().to_bits(), same.value().item().to_bits());
        loss.backward();
        let dh = h.take_gradient().unwrap();
        same.backward();
        assert_eq!(dh.data(), h.take_gradient().unwrap().data());
        let (dw, same) = (w.take_gradient().unwrap(), widened.take_gradient().unwrap());
        assert_eq!(dw.data(), same.data());
    }
}

#[test]
#[should_panic(expected = "a weight of shape (9, 4) does not fit an input of shape (2, 5)")]
fn shapes_must_fit() {
    let (h, w) = (Var::constant(Tensor::zeros([2, 5])), Var::constant(Tensor::zeros([9, 4])));
    let _ = head_cross_entropy(&h, &w, None, &[0, 1], Options::default());
}

#[test]
#[should_panic(expected = "rows of shape (2, 5) for targets of shape (3)")]
fn there_is_a_target_for_each_row() {
    let (h, w) = (Var::constant(Tensor::zeros([2, 5])), Var::constant(Tensor::zeros([9, 5])));
    let _ = head_cross_entropy(&h, &w, None, &[0, 1, 2], Options::default());
}
