//! The gradient at the input of every layer, and of the weights of every layer, in a fresh stack.
//!
//! ```text
//! post-norm     x ← norm(x + f(x))
//! pre-norm      x ← x + f(norm(x))
//! no residual   x ← f(norm(x))
//! ```

use super::{by_seed, color, factor, norm_of, shown};
use crate::outcome::{Drawing, Line, Listing, Outcome};
use crate::request::Request;
use crate::statistics::{Sample, best};
use hearken_base::Result;
use hearken_nn::block::Block;
use hearken_nn::config::{
    FeedForwardConfig, FeedForwardKind, InitConfig, InitKind, NormConfig, Placement,
    PositionConfig, StackConfig,
};
use hearken_nn::layers::{Direction, Linear, Norm, Positions};
use hearken_nn::pass::Pass;
use hearken_nn::scope::{Scope, Weights};
use hearken_nn::taps::Taps;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Role, Var};
use hearken_train::Better;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

const NAMES: [&str; 3] = ["post-norm", "pre-norm", "no-residual"];
const LAYERS: usize = 24;
const WIDTH: usize = 64;
const HEADS: usize = 4;
const VOCABULARY: usize = 64;
const ROWS: usize = 8;
const TOKENS: usize = 64;

/// ‖∂L/∂x_l‖, and the norm of the gradients of all weights of layer l, by layer.
struct Measured {
    inputs: Vec<f64>,
    weights: Vec<f64>,
}

/// Without a residual connection, or with one and a norm in this place.
fn placement(contender: &str) -> Option<Placement> {
    match contender {
        "post-norm" => Some(Placement::Post),
        "pre-norm" => Some(Placement::Pre),
        _ => None,
    }
}

fn stack(contender: &str) -> StackConfig {
    let placement = placement(contender).unwrap_or(Placement::Pre);
    StackConfig {
        norm: NormConfig { placement, ..NormConfig::default() },
        position: PositionConfig::rope(),
        feed_forward: FeedForwardConfig { kind: FeedForwardKind::Gelu, width: None },
        // As the Transformer of 2017 began: Xavier's deviation √(2/(inputs + outputs)), everywhere.
        init: InitConfig {
            kind: InitKind::Xavier,
            scale_residual: false,
            ..InitConfig::for_width(WIDTH)
        },
        ..StackConfig::new(LAYERS, WIDTH, HEADS)
    }
}

/// One pass of random vectors through a fresh stack, to random targets and back.
fn measure(contender: &str, seed: u64) -> Measured {
    let config = stack(contender);
    let scope = Scope::root(Weights::Drawn { seed }).starting(config.init, 2 * LAYERS);
    let positions = Positions::new(&(&scope / "position"), &config, TOKENS, Direction::Causal);
    let taps = Arc::new(Taps::new().record_gradient("blocks.*.input"));
    let pass = Pass::evaluate().watched(&taps);
    let mut rng = Rng::new(seed);
    let mut x = Var::constant(rng.normal([ROWS, TOKENS, WIDTH], 1.0));
    for layer in 0..LAYERS {
        let scope = &(&scope / "blocks") / layer;
        let block = Block::new(&scope, &config, Direction::Causal, TOKENS, None);
        x = pass.tap(&scope.place(), "input", x);
        x = if placement(contender).is_some() {
            block.forward(&x, &positions, None, &pass, None)
        } else {
            let mixed = block.attention_branch(&x, &positions, &pass, None);
            block.feed_forward_branch(&mixed, &pass)
        };
    }
    if config.norm.placement == Placement::Pre {
        x = Norm::new(&(&scope / "norm"), config.norm, WIDTH, false).forward(&x, &pass);
    }
    let head = Linear::new(&(&scope / "head"), VOCABULARY, WIDTH, false, Role::Head);
    let targets: Vec<u32> = (0..ROWS * TOKENS).map(|_| rng.below(VOCABULARY) as u32).collect();
    head.as_head().loss(&x, &targets, Options::default(), &pass).sum.backward();
    let input = |layer: usize| {
        let gradient = taps.get(&format!("d.blocks.{layer}.input"));
        norm_of(&gradient.expect("every layer has an input"))
    };
    let parameters = scope.parameters();
    let weights = |layer: usize| {
        let beginning = format!("blocks.{layer}.");
        let own = parameters.iter().filter(|p| p.name().starts_with(&beginning));
        own.filter_map(Param::gradient).map(|g| norm_of(&g).powi(2)).sum::<f64>().sqrt()
    };
    Measured {
        inputs: (0..LAYERS).map(input).collect(),
        weights: (0..LAYERS).map(weights).collect(),
    }
}

/// Those that take part.
fn names(request: &Request) -> Vec<&'static str> {
    NAMES.into_iter().filter(|name| request.has(name)).collect()
}

/// Seconds that all of it takes, about.
pub(super) fn estimate(request: &Request, seeds: usize) -> f64 {
    let one = |name: &&'static str| {
        let started = Instant::now();
        measure(name, request.seed);
        started.elapsed().as_secs_f64()
    };
    names(request).iter().map(one).sum::<f64>() * seeds as f64
}

/// Adds what was found to the outcome, and gives the numbers.
pub(super) fn run(request: &Request, seeds: &[u64], outcome: &mut Outcome) -> Result<Value> {
    let names = names(request);
    if names.is_empty() {
        return Ok(json!({}));
    }
    let mut measured: Vec<Vec<Measured>> = Vec::new();
    for name in &names {
        let mut runs = Vec::new();
        for seed in seeds {
            request.go_on()?;
            runs.push(measure(name, *seed));
        }
        measured.push(runs);
    }
    let lines = |norms: fn(&Measured) -> &Vec<f64>| -> Vec<Line> {
        let line = |(name, runs): (&&'static str, &Vec<Measured>)| Line {
            name: (*name).to_owned(),
            color: color(name),
            points: (0..LAYERS)
                .map(|layer| {
                    let relative = |run: &Measured| norms(run)[layer] / norms(run)[LAYERS - 1];
                    ((layer + 1) as f64, runs.iter().map(relative).collect())
                })
                .collect(),
        };
        names.iter().zip(&measured).map(line).collect()
    };
    let (inputs, weights) = (lines(|m| &m.inputs), lines(|m| &m.weights));
    for (title, what, lines) in [
        ("By depth: at the inputs of layers", "‖∂L/∂x‖ at the input of each layer", &inputs),
        (
            "By depth: of the weights of layers",
            "the norm of the gradients of each layer's weights",
            &weights,
        ),
    ] {
        let about = format!("In a fresh stack, {what}, as a share of that of the last layer.");
        let drawing = Drawing::of(title, "layer", "share of the last layer's", lines, about);
        outcome.drawings.push(drawing.logarithmic());
    }
    outcome.listings.push(table(&inputs, &weights));
    outcome.findings.extend(findings(
        &inputs,
        "at the input of the first layer",
        "at the inputs of layers",
    ));
    outcome.findings.extend(findings(
        &weights,
        "of the first layer's weights",
        "of the weights of layers",
    ));
    outcome.method.push(format!(
        "By depth: fresh stacks of {LAYERS} blocks of width {WIDTH} (GELU, LayerNorm, rotary positions, \
         Xavier's start for all matrices), {ROWS} rows of {TOKENS} random vectors, random \
         targets. What is shown is relative to the last layer, so that the size of the loss does not \
         matter."
    ));
    let numbers = |lines: &[Line]| -> Value {
        let each = lines.iter().map(|line| (line.name.clone(), line.json()));
        each.collect::<serde_json::Map<_, _>>().into()
    };
    Ok(json!({"inputs": numbers(&inputs), "weights": numbers(&weights)}))
}

/// First over last, and the factor per layer towards the first.
fn table(inputs: &[Line], weights: &[Line]) -> Listing {
    let about = "The norm of the gradient at the first layer over that at the last, and the factor from a \
                 layer to the one before it, fitted to the logarithms.";
    let mut listing = Listing::of("By depth", |_| String::new(), &[], shown, about);
    let columns = ["", "input: first/last", "per layer", "weights: first/last", "per layer"];
    listing.table.columns = columns.map(str::to_owned).to_vec();
    for (inputs, weights) in inputs.iter().zip(weights) {
        let mut row = vec![inputs.name.clone()];
        for line in [inputs, weights] {
            row.push(first(line).show(shown));
            row.push(by_seed(&line.points, |points| 1.0 / factor(points)).show(shown));
        }
        listing.table.rows.push(row);
    }
    listing
}

/// The first layer's share.
fn first(line: &Line) -> Sample {
    line.points.first().map_or(Sample { values: Vec::new() }, |point| point.1.clone())
}

fn findings(lines: &[Line], place: &str, even: &str) -> Vec<String> {
    let each: Vec<String> =
        lines.iter().map(|line| format!("{} {}", line.name, first(line).show(shown))).collect();
    let mut found = vec![format!(
        "in {LAYERS} fresh layers, the gradient {place}, over that of the last layer, is: {}",
        each.join(", ")
    )];
    if lines.len() > 1 {
        // In logarithms, so that up and down count alike.
        let change = |line: &Line| {
            let change = first(line).values.iter().map(|share| share.ln().abs()).collect();
            (line.name.clone(), change)
        };
        let changes: Vec<(String, Sample)> = lines.iter().map(change).collect();
        let what =
            format!("the most even gradients {even} (factor between the first layer and the last)");
        found.push(best(&what, Better::Lower, &changes, |x| shown(x.exp())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layer_has_its_gradients() {
        for name in NAMES {
            let Measured { inputs, weights } = measure(name, 1);
            assert_eq!((inputs.len(), weights.len()), (LAYERS, LAYERS));
            assert!(inputs.iter().chain(&weights).all(|x| x.is_finite() && *x > 0.0), "{name}");
        }
    }

    /// With a residual connection and a norm before the layers, what comes to the last layer also
    /// comes to the first: x₀ is part of every sum.
    #[test]
    fn a_residual_connection_keeps_gradients() {
        let share = |name| {
            let inputs = measure(name, 2).inputs;
            inputs[0] / inputs[LAYERS - 1]
        };
        let (with, without) = (share("pre-norm"), share("no-residual"));
        assert!((with.ln()).abs() < without.ln().abs(), "{with} against {without}");
    }
}
