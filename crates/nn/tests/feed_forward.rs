//! A feed-forward layer is two convolutions of width 1 over the tokens, with the activation
//! between them.

use hearken_nn::config::FeedForwardKind;
use hearken_nn::layers::FeedForward;
use hearken_nn::pass::Pass;
use hearken_nn::scope::{Scope, Weights};
use hearken_nn::variants;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Var};

const TOKENS: usize = 7;

/// A convolution over time as textbooks have it: signals (C, T), kernels (C′, C, J) centred on
/// each token, zeros outside.
/// out[o][t] = bias[o] + Σ_c Σ_j kernel[o][c][j] · x[c][t + j − ⌊J/2⌋]
fn convolution(x: &[Vec<f64>], kernel: &[Vec<Vec<f64>>], bias: &[f64]) -> Vec<Vec<f64>> {
    let tokens = x[0].len() as isize;
    let filter = |(kernel, bias): (&Vec<Vec<f64>>, &f64)| {
        let at = |t: isize| {
            let mut sum = *bias;
            for (kernel, x) in kernel.iter().zip(x) {
                for (j, weight) in kernel.iter().enumerate() {
                    let from = t + j as isize - (kernel.len() / 2) as isize;
                    if (0..tokens).contains(&from) {
                        sum += weight * x[from as usize];
                    }
                }
            }
            sum
        };
        (0..tokens).map(at).collect()
    };
    kernel.iter().zip(bias).map(filter).collect()
}

/// The matrix of a linear layer as kernels of width 1, and its bias.
fn kernels(parameters: &[Param], layer: &str) -> (Vec<Vec<Vec<f64>>>, Vec<f64>) {
    let find = |name: &str| {
        let name = format!("{layer}.{name}");
        parameters.iter().find(|p| p.name() == name).expect("it has one").value()
    };
    let (weight, bias) = (find("weight"), find("bias"));
    let rows = weight.data().chunks_exact(weight.shape().width());
    let kernels = rows.map(|row| row.iter().map(|&w| vec![f64::from(w)]).collect()).collect();
    (kernels, bias.data().iter().map(|&b| f64::from(b)).collect())
}

fn layer(kind: FeedForwardKind) -> (FeedForward, Vec<Param>) {
    let mut config = variants::base().stack;
    config.feed_forward.kind = kind;
    let scope = Scope::root(Weights::Drawn { seed: 1 }).starting(config.init, 2);
    let layer = FeedForward::new(&scope, &config);
    let parameters = scope.parameters();
    // A bias starts at zero, which would hide one that is left out.
    for (seed, bias) in (2..).zip(parameters.iter().filter(|p| p.name().ends_with("bias"))) {
        bias.set_value(Rng::new(seed).normal(bias.shape(), 0.5));
    }
    (layer, parameters)
}

#[test]
fn a_feed_forward_layer_is_two_convolutions_of_width_one() {
    let (layer, parameters) = layer(FeedForwardKind::Relu);
    let width = variants::base().stack.width;
    let tokens = Rng::new(4).normal([TOKENS, width], 1.0);
    let got = layer.forward(&Var::constant(tokens.clone()), None, &Pass::evaluate());

    let channel = |c: usize| (0..TOKENS).map(|t| f64::from(tokens.data()[t * width + c])).collect();
    let signals: Vec<Vec<f64>> = (0..width).map(channel).collect();
    let (kernel, bias) = kernels(&parameters, "up");
    let mut hidden = convolution(&signals, &kernel, &bias);
    hidden.iter_mut().flatten().for_each(|x| *x = x.max(0.0));
    let (kernel, bias) = kernels(&parameters, "down");
    let want = convolution(&hidden, &kernel, &bias);

    for (c, want) in want.iter().enumerate() {
        for (t, want) in want.iter().enumerate() {
            let got = f64::from(got.value().data()[t * width + c]);
            // Two sums of tens of terms of size 1 in f32.
            assert!((got - want).abs() < 1e-5, "token {t}, channel {c}: {got} and {want}");
        }
    }
}

#[test]
fn a_token_changes_nothing_but_itself() {
    for kind in [FeedForwardKind::Gelu, FeedForwardKind::Swiglu] {
        let (layer, _) = layer(kind);
        let width = variants::base().stack.width;
        let mut tokens = Rng::new(4).normal([TOKENS, width], 1.0);
        let run = |x| {
            let x = Var::constant(x);
            layer.forward(&x, None, &Pass::evaluate()).value().data().to_vec()
        };
        let before = run(tokens.clone());
        tokens.data_mut()[3 * width..4 * width].fill(2.0);
        let after = run(tokens);
        for t in 0..TOKENS {
            let same = before[t * width..(t + 1) * width] == after[t * width..(t + 1) * width];
            assert_eq!(same, t != 3, "{kind:?}, token {t}");
        }
    }
}
