//! From the second training step on, a step asks the system for nothing of the size of a tensor.
//!
//! One test alone in its process, since the allocator counts for all threads.

use hearken_kernels::activation::Activation;
use hearken_kernels::attention::scores::Causal;
use hearken_kernels::counting::Counting;
use hearken_kernels::memory::arena;
use hearken_kernels::optimizer::{Adam, Decay, adam_step, bias_correction};
use hearken_kernels::rope::Pairing;
use hearken_kernels::threads;
use hearken_tensor::ops::activations::gelu_tanh;
use hearken_tensor::ops::attention::{Attend, attention_packed};
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::ops::dropout::dropout;
use hearken_tensor::ops::embedding::embedding;
use hearken_tensor::ops::feed_forward::feed_forward;
use hearken_tensor::ops::head_cross_entropy::head_cross_entropy;
use hearken_tensor::ops::layer_norm::layer_norm;
use hearken_tensor::ops::linear::linear;
use hearken_tensor::ops::rms_norm::rms_norm;
use hearken_tensor::ops::rope::rope;
use hearken_tensor::rng::{Key, Rng};
use hearken_tensor::rope_table::{RopeTable, Scaling};
use hearken_tensor::{Param, Role, Storage, Tensor, Var, checkpoint, pool, with_storage};
use std::sync::Barrier;

/// A page. Every activation and every matrix below is larger (the smallest, a (B·T, C) one, has 32
/// KiB); what a graph needs besides is smaller: a node has about 200 bytes, a list of ids 512.
const TENSOR_SIZE: usize = 4096;

#[global_allocator]
static MEMORY: Counting = Counting::at_least(TENSOR_SIZE);

const B: usize = 4;
const T: usize = 32;
const C: usize = 64;
const H: usize = 4;
const F: usize = 4 * C;
const V: usize = 301;
const L: usize = 2;

/// A small language model, with everything that a training step has.
struct Model {
    table: Param,
    turns: RopeTable,
    blocks: Vec<[Param; 9]>,
    moments: Vec<[Tensor; 2]>,
    step: u32,
}

impl Model {
    fn new() -> Self {
        let mut rng = Rng::new(1);
        let mut normal = |shape: &[usize]| Param::new("", Role::Hidden, rng.normal(shape, 0.1));
        let table = normal(&[V, C]);
        let block = |_| {
            let shapes = [&[3 * C, C][..], &[C, C], &[F, C], &[F], &[C, F], &[C]];
            let [w_qkv, w_out, w1, b1, w2, b2] = shapes.map(&mut normal);
            let norm = [1.0, 0.0, 1.0].map(|x| Param::new("", Role::Hidden, Tensor::full([C], x)));
            let [gain, shift, gain2] = norm;
            [gain, shift, w_qkv, w_out, gain2, w1, b1, w2, b2]
        };
        let blocks: Vec<_> = (0..L).map(block).collect();
        let turns = RopeTable::new(C / H, C / H, 1e4, Scaling::None, Pairing::Halves, T);
        let mut model = Self { table, turns, blocks, moments: Vec::new(), step: 0 };
        model.moments =
            model.params().iter().map(|p| [0; 2].map(|_| Tensor::zeros(p.shape()))).collect();
        model
    }

    fn params(&self) -> Vec<Param> {
        [std::slice::from_ref(&self.table), self.blocks.as_flattened()].concat()
    }

    fn loss(&self, ids: &[u32], targets: &[u32]) -> Var {
        let mut x = embedding(&self.table.var(), ids, [B, T]); // (B, T, C)
        for (site, params) in self.blocks.iter().enumerate() {
            let key = Key { seed: 1, step: u64::from(self.step), site: site as u64 };
            let (own, turns) = (params.clone(), self.turns.clone());
            let block = move |x: &[Var]| {
                let [gain, shift, w_qkv, w_out, gain2, w1, b1, w2, b2] = &own;
                let y = layer_norm(&x[0], Some(&gain.var()), Some(&shift.var()), 1e-5);
                let qkv = linear(&y, w_qkv.weight(), None); // (B, T, 3·C)
                let qkv = rope(qkv, &turns, 2 * H, 0);
                let how = Attend::new(H).rule(Causal::new(T, T)).dropout(0.1, key);
                let y = attention_packed(&qkv, &[], &how); // (B, T, C)
                let x = linear(&y, w_out.weight(), None) + &x[0];
                let y = rms_norm(&x, Some(&gain2.var()), 1e-5);
                let y = if site == 0 {
                    let hidden = gelu_tanh(linear(&y, w1.weight(), Some(&b1.var()))); // (B, T, F)
                    linear(&hidden, w2.weight(), Some(&b2.var())) // (B, T, C)
                } else {
                    let biases = [&b1.var(), &b2.var()];
                    feed_forward(&y, w1.weight(), Activation::GeluTanh, w2.weight(), Some(biases))
                };
                dropout(y, 0.1, key) + &x
            };
            // One block recomputed in the backward, the other not.
            x = if site == 0 { checkpoint(&[&x], block) } else { block(&[x]) };
        }
        head_cross_entropy(&x, self.table.weight(), None, targets, Options::default())
    }

    fn train(&mut self, ids: &[u32], targets: &[u32]) -> f32 {
        let loss = self.loss(ids, targets);
        loss.backward();
        let value = loss.value().item();
        drop(loss);
        self.step += 1;
        let adam = Adam {
            learning_rate: 1e-3,
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.1,
            decay: Decay::Decoupled,
            correction1: bias_correction(0.9, self.step),
            correction2: bias_correction(0.99, self.step),
        };
        for (param, [mean, square]) in self.params().iter().zip(&mut self.moments) {
            param.update(|value, gradient| {
                adam_step(adam, 1.0, gradient, value, mean.data_mut(), square.data_mut());
            });
            param.set_gradient(None);
        }
        value
    }
}

#[test]
fn a_step_asks_the_system_for_nothing_of_tensor_size() {
    const THREADS: usize = 2;
    let ids: Vec<u32> = (0..B * T).map(|i| (i * i % V) as u32).collect();
    let targets: Vec<u32> = (0..B * T).map(|i| (i * 7 % V) as u32).collect();

    threads::with_threads(THREADS, || {
        for storage in [Storage::F32, Storage::Bf16] {
            with_storage(storage, || {
                // A thread keeps the working memory of its kernels, and which thread takes part
                // in which product is chance: one might meet its first in a late step. So each
                // runs a step by itself before the counting; the barrier holds every thread in
                // its own task.
                let all_here = Barrier::new(THREADS);
                threads::for_each(THREADS, |_| {
                    all_here.wait();
                    with_storage(storage, || Model::new().train(&ids, &targets));
                });
                pool::release(); // the tensors of those steps, so that none is left to lend

                let before = MEMORY.requests();
                let mut model = Model::new();
                let first = model.train(&ids, &targets);
                model.train(&ids, &targets);
                assert!(MEMORY.requests() > before, "tensors need memory at first");
                let memory = arena::usage();
                for step in 2..12 {
                    let before = (MEMORY.requests(), MEMORY.bytes());
                    let loss = model.train(&ids, &targets);
                    let after = (MEMORY.requests(), MEMORY.bytes());
                    // The memory comes in large pieces: nor is a further part of one used.
                    assert_eq!(arena::usage(), memory, "step {step} in {storage:?}");
                    assert_eq!(
                        before,
                        after,
                        "step {step} in {storage:?} asked {} times for {} bytes in all",
                        after.0 - before.0,
                        after.1 - before.1
                    );
                    assert!(loss < first, "the model does not learn: {loss} after {first}");
                }
            });
        }
    });

    let before = MEMORY.requests();
    drop(Tensor::unset([40_000_003])); // more than a piece of 128 MiB
    assert_eq!(MEMORY.requests(), before + 1, "a tensor that needs memory is seen by the counter");
}
