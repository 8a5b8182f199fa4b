//! Stacks of every direction: who sees whom, attention to another sequence, and their gradients.

#[path = "stacks/encodings.rs"]
mod encodings;

use hearken_kernels::threads::with_threads;
use hearken_nn::block::Memory;
use hearken_nn::config::{
    AttentionConfig, DropoutConfig, InitConfig, MechanismConfig, Placement, PositionConfig,
    StackConfig,
};
use hearken_nn::layers::Direction;
use hearken_nn::pass::{Layout, Noise, Pass};
use hearken_nn::scope::{Scope, Weights};
use hearken_nn::stack::Stack;
use hearken_nn::taps::Taps;
use hearken_nn::variants;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Tensor, Var, no_grad};
use std::sync::Arc;

const ROWS: usize = 2;
const TOKENS: usize = 9;
const SOURCE: usize = 6;
const SOURCE_WIDTH: usize = 10;

fn config() -> StackConfig {
    StackConfig { position: PositionConfig::None {}, ..variants::base().stack }
}

fn stack(config: &StackConfig, direction: Direction, source: Option<usize>) -> (Stack, Vec<Param>) {
    let scope = Scope::root(Weights::Drawn { seed: 5 });
    let stack = Stack::new(&scope, config, TOKENS, direction, source);
    (stack, scope.parameters())
}

fn input() -> Tensor {
    Rng::new(1).normal([ROWS, TOKENS, config().width], 1.0)
}

fn run(stack: &Stack, x: &Tensor, layout: Layout) -> Vec<f32> {
    let pass = Pass::evaluate().over(layout);
    no_grad(|| stack.forward(Var::constant(x.clone()), &[], &pass, None)).value().data().to_vec()
}

/// Which tokens of row 0 change when token `changed` does.
fn touched(stack: &Stack, changed: usize, layout: &Layout) -> Vec<usize> {
    let width = config().width;
    let mut x = input();
    let before = run(stack, &x, layout.clone());
    x.data_mut()[changed * width..(changed + 1) * width].fill(2.0);
    let after = run(stack, &x, layout.clone());
    let differs =
        |t: &usize| before[t * width..(t + 1) * width] != after[t * width..(t + 1) * width];
    (0..TOKENS).filter(differs).collect()
}

#[test]
#[should_panic(expected = "stack.heads is 5, which does not divide stack.width 16")]
fn a_stack_that_cannot_be_is_refused() {
    let width = 16;
    stack(&StackConfig { width, heads: 5, ..config() }, Direction::Causal, None);
}

#[test]
fn each_direction_sees_what_it_should() {
    let full = config();
    let window =
        StackConfig { layers: 1, attention: AttentionConfig::Window { size: 2 }, ..config() };
    let sparse = AttentionConfig::Sparse { window: 2, stride: 0, global: 1 };
    let sparse = StackConfig { layers: 1, attention: sparse, ..config() };
    let plain = Layout::default();
    let prefix = Layout { prefixes: Some([5, 2].into()), ..Layout::default() };
    let all: Vec<usize> = (0..TOKENS).collect();
    for (config, direction, layout, changed, want) in [
        (&full, Direction::Causal, &plain, 3, &all[3..]),
        (&full, Direction::Bidirectional, &plain, 3, &all[..]),
        (&full, Direction::Causal, &prefix, 3, &all[..]), // inside of the prefix of 5
        (&full, Direction::Causal, &prefix, 6, &all[6..]), // behind it
        (&window, Direction::Causal, &plain, 3, &all[3..5]),
        (&window, Direction::Bidirectional, &plain, 3, &all[2..5]),
        (&window, Direction::Causal, &prefix, 3, &all[..]),
        (&sparse, Direction::Bidirectional, &plain, 0, &all[..]), // the global token
        (&sparse, Direction::Causal, &plain, 5, &all[5..7]),
    ] {
        let (stack, _) = stack(config, direction, None);
        let got = touched(&stack, changed, layout);
        assert_eq!(got, want, "{direction:?}, {:?}, {layout:?}", config.attention);
    }
}

#[test]
fn padding_is_seen_by_nobody_and_changes_nothing() {
    let width = config().width;
    for direction in [Direction::Causal, Direction::Bidirectional] {
        let (stack, _) = stack(&config(), direction, None);
        let layout = Layout::padded(&[5, TOKENS]);
        for padded in 5..TOKENS {
            let got = touched(&stack, padded, &layout);
            assert!(got.iter().all(|t| *t >= 5), "{direction:?}: {padded} reaches {got:?}");
        }
        // The five real tokens by themselves.
        let x = input();
        let short = Tensor::new([1, 5, width], &x.data()[..5 * width]);
        let alone = run(&stack, &short, Layout::default());
        let padded = run(&stack, &x, layout);
        for (a, b) in alone.iter().zip(&padded[..5 * width]) {
            assert!((a - b).abs() < 1e-5, "{a} alone, {b} beside padding"); // sums in another order
        }
    }
}

#[test]
fn packed_documents_are_read_as_if_each_were_alone() {
    let width = config().width;
    // Row 0: documents of 4 and 3 tokens and padding; row 1: one of 2 and one of 7.
    let segments = [1, 1, 1, 1, 2, 2, 2, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2];
    let positions = [0, 1, 2, 3, 0, 1, 2, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6];
    let layout = Layout::packed(&segments, &positions);
    for (name, position) in variants::positions() {
        let config = StackConfig { position, ..config() };
        for direction in [Direction::Causal, Direction::Bidirectional] {
            let (stack, _) = stack(&config, direction, None);
            let x = Rng::new(1).normal([ROWS, TOKENS, config.token_width()], 1.0);
            let together = run(&stack, &x, layout.clone());
            for (start, length) in [(0, 4), (4, 3), (TOKENS, 2), (TOKENS + 2, 7)] {
                let from = start * config.token_width();
                let data = &x.data()[from..from + length * config.token_width()];
                let document = Tensor::new([1, length, config.token_width()], data);
                let alone = run(&stack, &document, Layout::default());
                for (a, b) in alone.iter().zip(&together[start * width..]) {
                    // Sums in another order.
                    assert!((a - b).abs() < 1e-5, "{name}, {direction:?}: {a} alone, {b} packed");
                }
            }
        }
    }
}

#[test]
fn without_positions_a_bidirectional_stack_is_permutation_equivariant() {
    let width = config().width;
    let (stack, _) = stack(&config(), Direction::Bidirectional, None);
    let x = input();
    let mut reversed = x.clone();
    for row in 0..ROWS {
        for t in 0..TOKENS {
            let from = (row * TOKENS + TOKENS - 1 - t) * width;
            let to = (row * TOKENS + t) * width;
            reversed.data_mut()[to..to + width].copy_from_slice(&x.data()[from..from + width]);
        }
    }
    let (a, b) = (run(&stack, &x, Layout::default()), run(&stack, &reversed, Layout::default()));
    for t in 0..TOKENS {
        for c in 0..width {
            let (a, b) = (a[t * width + c], b[(TOKENS - 1 - t) * width + c]);
            assert!((a - b).abs() < 1e-5, "token {t}: {a} and {b}");
        }
    }
}

fn memory(hidden: Var) -> Memory {
    Memory { hidden, layout: Layout::padded(&[SOURCE, 4]) }
}

/// A scalar of what comes out, with a weight of its own for every number.
fn weighted(stack: &Stack, x: Var, source: Var, pass: &Pass) -> Var {
    let out = stack.forward(x, &[memory(source)], pass, None);
    let weights = Rng::new(9).normal(out.shape(), 1.0);
    (&out * &Var::constant(weights)).sum()
}

fn cross_variants() -> Vec<StackConfig> {
    let mut post = config();
    post.norm.placement = Placement::Post;
    let wide = StackConfig { value_width: Some(7), kv_heads: Some(2), ..config() };
    let t5 = PositionConfig::T5 { buckets: 6, max_distance: 10 };
    let scaled = StackConfig { residual_scale: 0.5, position: t5, ..config() };
    vec![config(), post, wide, scaled]
}

#[test]
fn gradients_through_attention_to_another_sequence_match_differences() {
    for config in cross_variants() {
        let (stack, parameters) = stack(&config, Direction::Causal, Some(SOURCE_WIDTH));
        assert!(parameters.iter().any(|p| p.name() == "blocks.1.cross_attention.keys.weight"));
        let x = Param::new("x", hearken_tensor::Role::Hidden, input());
        let source = Rng::new(2).normal([ROWS, SOURCE, SOURCE_WIDTH], 1.0);
        let source = Param::new("source", hearken_tensor::Role::Hidden, source);
        let all: Vec<Param> = parameters.into_iter().chain([x.clone(), source.clone()]).collect();
        let value = || weighted(&stack, x.var(), source.var(), &Pass::evaluate());
        value().backward();
        let start: Vec<Tensor> = all.iter().map(Param::value).collect();
        let mut rng = Rng::new(3);
        let direction: Vec<Tensor> = all.iter().map(|p| rng.normal(p.shape(), 1.0)).collect();
        let mut slope = 0.0;
        for (p, direction) in all.iter().zip(&direction) {
            let gradient = p.gradient().expect("everything takes part");
            let pairs = gradient.data().iter().zip(direction.data());
            slope += pairs.map(|(g, d)| f64::from(*g) * f64::from(*d)).sum::<f64>();
        }
        let at = |step: f32| {
            for ((p, start), direction) in all.iter().zip(&start).zip(&direction) {
                let mut moved = start.clone();
                moved.data_mut().iter_mut().zip(direction.data()).for_each(|(x, d)| *x += step * d);
                p.set_value(moved);
            }
            f64::from(no_grad(value).value().item())
        };
        let step = 1e-3;
        let near = at(step) - at(-step);
        let far = at(2.0 * step) - at(-2.0 * step);
        let differences = (8.0 * near - far) / (12.0 * f64::from(step));
        // Sums of 288 numbers of size 1 are good to about 1e-5, over a step of 1e-3.
        let off = (slope - differences).abs() / (slope.abs() + 1.0);
        assert!(off < 5e-3, "{slope} and {differences}");
    }
}

#[test]
fn checkpointing_gives_the_same_bits_across() {
    for mut config in cross_variants() {
        config.dropout = DropoutConfig::everywhere(0.2);
        let run = |checkpointing| {
            let (mut stack, parameters) = stack(&config, Direction::Causal, Some(SOURCE_WIDTH));
            stack.set_checkpointing(checkpointing);
            let (x, source) =
                (Var::leaf(input()), Rng::new(2).normal([ROWS, SOURCE, SOURCE_WIDTH], 1.0));
            let source = Var::leaf(source);
            let pass = Pass::train(Noise { seed: 1, step: 2 });
            let out = weighted(&stack, x.clone(), source.clone(), &pass);
            out.backward();
            let inputs = [x.gradient(), source.gradient()];
            let all = parameters.iter().map(Param::gradient).chain(inputs);
            let gradients: Vec<Vec<f32>> =
                all.map(|g| g.expect("everything takes part").data().to_vec()).collect();
            (out.value().item(), gradients)
        };
        assert!(run(true) == run(false));
    }
}

#[test]
fn padding_of_the_source_is_seen_by_nobody() {
    let (stack, _) = stack(&config(), Direction::Causal, Some(SOURCE_WIDTH));
    let mut source = Rng::new(2).normal([ROWS, SOURCE, SOURCE_WIDTH], 1.0);
    let out = |source: &Tensor| {
        let source = Var::constant(source.clone());
        no_grad(|| {
            weighted(&stack, Var::constant(input()), source, &Pass::evaluate()).value().item()
        })
    };
    let before = out(&source);
    // Row 1 has four real vectors.
    source.data_mut()[(SOURCE + 4) * SOURCE_WIDTH..].fill(3.0);
    assert_eq!(before, out(&source));
    source.data_mut()[(SOURCE + 3) * SOURCE_WIDTH..].fill(3.0);
    assert_ne!(before, out(&source));
}

/// Stacks of every mechanism, in the directions that it can look in.
fn mechanisms() -> Vec<(String, StackConfig, Direction)> {
    let linformer = MechanismConfig::Linformer { rank: 4 };
    let linformer = ("linformer", linformer, PositionConfig::None {});
    let mut found = Vec::new();
    for (name, mechanism, position) in variants::mechanisms().into_iter().chain([linformer]) {
        let config = StackConfig { mechanism, position, ..config() };
        for direction in [Direction::Causal, Direction::Bidirectional] {
            if name != "linformer" || direction == Direction::Bidirectional {
                found.push((format!("{name}, {direction:?}"), config.clone(), direction));
            }
        }
    }
    found
}

#[test]
fn no_mechanism_sees_what_comes_later_or_what_is_padding() {
    for (name, config, direction) in mechanisms() {
        let (stack, _) = stack(&StackConfig { layers: 1, ..config.clone() }, direction, None);
        // Buckets fill up, and with them may change which earlier token sees which.
        if direction == Direction::Causal && !config.mechanism.recomputes() {
            assert_eq!(touched(&stack, 3, &Layout::default()), [3, 4, 5, 6, 7, 8], "{name}");
        }
        if direction == Direction::Bidirectional && !config.mechanism.recomputes() {
            assert_eq!(touched(&stack, 3, &Layout::default()).len(), TOKENS, "{name}");
        }
        let got = touched(&stack, 6, &Layout::padded(&[5, TOKENS]));
        assert!(got.iter().all(|t| *t >= 5), "{name}: padding reaches {got:?}");
        // Nor does it matter that it is there.
        let (x, width) = (input(), config.width);
        let short = Tensor::new([1, 5, width], &x.data()[..5 * width]);
        let alone = run(&stack, &short, Layout::padded(&[5]));
        let padded = run(&stack, &x, Layout::padded(&[5, TOKENS]));
        for (a, b) in alone.iter().zip(&padded[..5 * width]) {
            assert!((a - b).abs() < 2e-5, "{name}: {a} alone, {b} padded"); // sums in another order
        }
    }
}

#[test]
fn packed_documents_are_read_alone_by_every_mechanism() {
    let width = config().width;
    let segments = [1, 1, 1, 1, 2, 2, 2, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2];
    let positions = [0, 1, 2, 3, 0, 1, 2, 0, 0, 0, 1, 0, 1, 2, 3, 4, 5, 6];
    let layout = Layout::packed(&segments, &positions);
    for (name, config, direction) in mechanisms() {
        // Mixtures are of whole rows, and chunks of buckets are those of whole rows.
        if name.starts_with("linformer") || config.mechanism.recomputes() {
            continue;
        }
        let (stack, _) = stack(&config, direction, None);
        let x = input();
        let together = run(&stack, &x, layout.clone());
        for (start, length) in [(0, 4), (4, 3), (TOKENS, 2), (TOKENS + 2, 7)] {
            let data = &x.data()[start * width..(start + length) * width];
            let alone = run(&stack, &Tensor::new([1, length, width], data), Layout::default());
            for (a, b) in alone.iter().zip(&together[start * width..]) {
                assert!((a - b).abs() < 2e-5, "{name}: {a} alone, {b} packed");
            }
        }
    }
}

#[test]
fn every_mechanism_gives_the_same_bits_on_any_number_of_threads() {
    for (name, config, direction) in mechanisms() {
        let run = |threads| {
            with_threads(threads, || {
                let (stack, parameters) = stack(&config, direction, None);
                let pass = Pass::train(Noise { seed: 1, step: 2 });
                let x = Var::leaf(input());
                let out = stack.forward(x.clone(), &[], &pass, None);
                out.backward_with(Rng::new(9).normal(out.shape(), 1.0));
                let learning = parameters.iter().filter(|p| p.is_trainable());
                let all = learning.map(Param::gradient).chain([x.gradient()]);
                let all: Vec<Vec<f32>> = all.map(|g| g.unwrap().data().to_vec()).collect();
                (out.value().data().to_vec(), all)
            })
        };
        let alone = run(1);
        for threads in [2, 3, 4] {
            assert!(run(threads) == alone, "{name} on {threads} threads");
        }
    }
}

/// Value and gradients of a deep stack, computed back or kept. A pass that is watched keeps.
fn deep(layers: usize, keeping: bool) -> (Tensor, Vec<Tensor>) {
    let init = InitConfig { deviation: 0.15, ..config().init };
    let dropout = DropoutConfig::everywhere(0.1);
    let config = StackConfig { layers, reversible: true, init, dropout, ..config() };
    let (stack, parameters) = stack(&config, Direction::Causal, None);
    let mut pass = Pass::train(Noise { seed: 1, step: 2 });
    if keeping {
        pass = pass.watched(&Arc::new(Taps::new().record("norm")));
    }
    let x = Var::leaf(input());
    let out = stack.forward(x.clone(), &[], &pass, None);
    out.backward_with(Rng::new(9).normal(out.shape(), 1.0));
    let all = parameters.iter().map(Param::gradient).chain([x.gradient()]);
    (out.value().clone(), all.map(|g| g.expect("everything takes part")).collect())
}

#[test]
fn reversible_layers_have_the_gradients_of_kept_activations() {
    let mut report = Vec::new();
    for layers in [1, 6, 12, 24] {
        let ((value, got), (kept, want)) = (deep(layers, false), deep(layers, true));
        assert_eq!(value.data(), kept.data(), "{layers} layers");
        let largest = |g: &Tensor| g.data().iter().fold(0.0_f32, |m, x| m.max(x.abs()));
        let mut worst = 0.0_f32;
        for (got, want) in got.iter().zip(&want) {
            let pairs = got.data().iter().zip(want.data());
            let off = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            worst = worst.max(off / largest(want).max(1e-3));
        }
        report.push((layers, worst));
        assert!(worst < 1e-4, "{layers} layers: {worst}");
    }
    println!(
        "layers, largest difference of a gradient as a share of its largest number: {report:?}"
    );
}
