//! What is explained is what was computed, on every variant of a decoder.

use hearken_explain::arithmetic::{Terms, line};
use hearken_explain::attribution::{contributions, lens, lens_at};
use hearken_explain::difference::check;
use hearken_explain::geometry::{nearest, plane};
use hearken_explain::intervene::{Change, ablate, heads, logits_with, patch};
use hearken_explain::roles::{pronouns, roles, roles_in};
use hearken_explain::update::Updates;
use hearken_explain::{Flow, Focus, stack_of};
use hearken_nn::config::{MechanismConfig, Placement, StackConfig};
use hearken_nn::models::{Decoder, Encoder, Model, PredictsTokens, Tokens};
use hearken_nn::pass::Pass;
use hearken_nn::taps::Pattern;
use hearken_nn::variants;
use hearken_tensor::Tensor;
use hearken_tensor::ops::cross_entropy::{IGNORED, Options};
use hearken_tensor::rng::Rng;

const IDS: [u32; 7] = [1, 5, 2, 6, 1, 5, 2];

fn small() -> Decoder {
    Decoder::drawn(variants::base(), 3)
}

/// Checks all lines, and gives the stages that have some.
fn lines_that_hold(name: &str, model: &dyn Model, flow: &Flow) -> Vec<String> {
    let mut stages = Vec::new();
    for stage in &flow.stages {
        for focus in [
            Focus { head: 0, token: 6, column: 0 },
            Focus { head: 1, token: 3, column: 2 },
            Focus { head: 99, token: 99, column: 99 },
        ] {
            let Some(line) = line(model, flow, stage, focus) else { continue };
            stages.push(stage.name.clone());
            let (want, got) = (line.computed, f64::from(line.actual));
            let close = want == got || (want - got).abs() < 1e-4 * (1.0 + want.abs());
            assert!(close, "{name}, {}: {} but {want}", stage.name, line.text);
        }
    }
    stages
}

#[test]
fn every_line_of_arithmetic_comes_to_the_number_it_explains() {
    for (name, config) in variants::all() {
        let model = Decoder::drawn(config, 5);
        let flow = Flow::of(&model, &IDS, Some((6, 3)), None).unwrap();
        let lines = lines_that_hold(&name, &model, &flow).len();
        let layers = stack_of(&model.config()).unwrap().layers;
        assert!(lines >= 3 * 8 * layers, "{name}: only {lines} lines");
    }
}

#[test]
fn so_does_every_line_of_an_encoder() {
    for (name, config) in variants::encoders() {
        let mixes = matches!(config.stack.mechanism, MechanismConfig::Linformer { .. });
        let model = Encoder::drawn(config, 5);
        let flow = Flow::of(&model, &IDS, None, None).unwrap();
        let stages = lines_that_hold(&name, &model, &flow);
        let layers = stack_of(&model.config()).unwrap().layers;
        assert!(stages.len() >= 3 * 8 * layers, "{name}: only {} lines", stages.len());
        for part in ["mixed_keys", "mixed_values"] {
            let stage = format!("blocks.0.attention.{part}");
            assert_eq!(stages.contains(&stage), mixes, "{name}: {part}");
        }
        // Weights of mixtures say nothing of where a head looks.
        let weighs = flow.stage("blocks.0.attention.weights").is_some() && !mixes;
        assert_eq!(!roles(&flow).is_empty(), weighs, "{name}");
    }
}

#[test]
fn every_stage_has_a_gradient_and_those_of_the_weights_stay_as_they_were() {
    let model = small();
    let flow = Flow::of(&model, &IDS, Some((6, 3)), None).unwrap();
    assert!(flow.loss.unwrap() > 0.0);
    for stage in &flow.stages {
        let gradient = stage.gradient.as_ref().unwrap_or_else(|| panic!("{}", stage.name));
        assert_eq!(gradient.shape(), stage.value.shape(), "{}", stage.name);
        assert!(!stage.sentence.starts_with("A value of"), "{} is not described", stage.name);
    }
    assert!(model.parameters().iter().all(|p| p.gradient().is_none()));
}

#[test]
fn contributions_add_up_to_the_logit() {
    for (name, config) in variants::all() {
        if config.stack.norm.placement == Placement::Post {
            continue;
        }
        let model = Decoder::drawn(config, 7);
        let flow = Flow::of(&model, &IDS, None, None).unwrap();
        let parts = contributions(&model, &flow, 6, 4).unwrap();
        let sum: f64 = parts.iter().map(|part| part.logit).sum();
        let logits = flow.value("logits").unwrap();
        let want = f64::from(logits.data()[6 * logits.shape().width() + 4]);
        assert!((sum - want).abs() < 1e-4 * (1.0 + want.abs()), "{name}: {sum} but {want}");
    }
}

#[test]
fn the_last_glimpse_of_the_lens_is_the_prediction() {
    let model = small();
    let flow = Flow::of(&model, &IDS, None, None).unwrap();
    let glimpses = lens(&model, &flow, 6, 3).unwrap();
    assert_eq!(glimpses.len(), 1 + 2 * stack_of(&model.config()).unwrap().layers);
    let logits = flow.value("logits").unwrap();
    let last = &logits.data()[6 * logits.shape().width()..];
    let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
    assert_eq!(glimpses.last().unwrap().likeliest[0].0 as usize, best);
}

/// A flow whose only stage is the weights of one head that were made up.
fn attending(to: impl Fn(usize) -> usize) -> Flow {
    let mut flow = Flow::of(&small(), &IDS, None, None).unwrap();
    flow.stages.retain(|stage| stage.name == "blocks.0.attention.weights");
    let n = IDS.len();
    let mut weights = vec![0.0; n * n];
    (0..n).for_each(|t| weights[t * n + to(t)] = 1.0);
    flow.stages[0].shape = vec![1, n, n];
    flow.stages[0].value = Tensor::new([1, 1, n, n], &weights);
    flow
}

#[test]
fn roles_are_found_by_where_weights_go() {
    let role = |flow: &Flow| roles(flow)[0].role.unwrap().0;
    assert_eq!(role(&attending(|t| t.saturating_sub(1))), "previous token");
    assert_eq!(role(&attending(|_| 0)), "first token");
    // Tokens 4, 5 and 6 repeat tokens 0, 1 and 2.
    assert_eq!(role(&attending(|t| if t >= 4 { t - 4 } else { t })), "duplicate");
    assert_eq!(role(&attending(|t| if t >= 4 { t - 3 } else { t })), "induction");
    let mut even = attending(|t| t);
    let n = IDS.len();
    let weights: Vec<f32> =
        (0..n * n).map(|i| if i % n <= i / n { 1.0 / (i / n + 1) as f32 } else { 0.0 }).collect();
    even.stages[0].value = Tensor::new([1, 1, n, n], &weights);
    assert_eq!(role(&even), "uniform");
}

#[test]
fn patching_everything_gives_the_other_prompt_and_patching_nothing_gives_this_one() {
    let model = small();
    let other = [1, 5, 2, 6, 3, 3, 4];
    let loss = |ids: &[u32]| Flow::of(&model, ids, Some((6, 3)), None).unwrap().loss.unwrap();
    let all: Vec<usize> = (0..7).collect();
    let name = "blocks.0.residual_after";
    let whole = patch(&model, &IDS, &other, (6, 3), name, &all).unwrap();
    assert!((whole.after - f64::from(loss(&other))).abs() < 1e-5);
    assert!((whole.before - f64::from(loss(&IDS))).abs() < 1e-5);
    let none = patch(&model, &IDS, &other, (6, 3), name, &[]).unwrap();
    assert!((none.after - none.before).abs() < 1e-5);
    assert!((whole.after - whole.before).abs() > 1e-4);
    assert!(patch(&model, &IDS, &other[1..], (6, 3), name, &all).is_err());
    assert!(patch(&model, &IDS, &other, (6, 3), "nothing", &all).is_err());
}

#[test]
fn heads_are_silenced_one_by_one_or_together() {
    let model = small();
    let flow = Flow::of(&model, &IDS, Some((6, 3)), None).unwrap();
    let StackConfig { layers, heads: count, .. } = *stack_of(&model.config()).unwrap();
    let effects = heads(&model, &flow, (6, 3)).unwrap();
    assert_eq!(effects.len(), layers * count);
    let first = [Pattern::from("blocks.0.attention.mixed[0]")];
    let alone = ablate(&model, &IDS, (6, 3), &first).unwrap();
    assert_eq!(alone.after - alone.before, effects[0].rise);
    let all = ablate(&model, &IDS, (6, 3), &[Pattern::from("*.attention.mixed")]).unwrap();
    assert!((all.after - all.before).abs() > 1e-6);
    assert!(ablate(&model, &IDS, (6, 3), &[Pattern::from("blocks.9.norm1")]).is_err());
}

#[test]
fn differences_of_the_loss_agree_with_gradients_to_three_digits() {
    let mut config = variants::base();
    config.stack = StackConfig { layers: 2, width: 64, ..config.stack };
    let model = Decoder::drawn(config, 11);
    let target = (6, 3);
    // All gradients, of which those above the median are drawn from.
    let tokens = Tokens::new(&IDS, 1);
    let mut targets = vec![IGNORED; IDS.len()];
    targets[target.0] = target.1;
    model.loss(&tokens, &targets, &Pass::evaluate(), Options::default()).mean().backward();
    let mut all = Vec::new();
    for p in model.parameters() {
        let gradient = p.gradient();
        let numbers = gradient.iter().flat_map(Tensor::data).enumerate();
        all.extend(numbers.map(|(i, g)| (g.abs(), p.name(), i)));
        p.set_gradient(None);
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let median = all[all.len() / 2].0;
    let mut rng = Rng::new(5);
    let (mut hidden, mut worst) = (0, 0.0_f64);
    for _ in 0..20 {
        let (size, name, index) = all[rng.below(all.len() / 2)];
        assert!(size >= median);
        let found = check(&model, &IDS, target, name, index).unwrap();
        println!(
            "{name}[{index}]: {} and {}, off by {:.1e}, hidden {}",
            found.gradient,
            found.slope,
            found.error(),
            found.is_hidden()
        );
        assert_eq!(found.gradient.abs() as f32, size, "{name}[{index}]");
        worst = worst.max(found.error());
        hidden += usize::from(found.is_hidden());
    }
    println!("median {median:.1e}; {hidden} of 20 near rounding; worst error {worst:.1e}");
    assert!(worst < 1e-3, "{worst}");
    assert!(check(&model, &IDS, target, "nothing", 0).is_err());
    assert!(check(&model, &IDS, target, "norm.weight", usize::MAX).is_err());
}

#[test]
fn ten_steps_lower_the_loss_and_undo_gives_the_weights_back_to_the_bit() {
    let model = small();
    let bits = || -> Vec<Vec<u32>> {
        let bits =
            |p: &hearken_tensor::Param| p.value().data().iter().map(|x| x.to_bits()).collect();
        model.parameters().iter().map(bits).collect()
    };
    let start = bits();
    let mut updates = Updates::new(&model, 1e-2, 1.0, 10, None).unwrap();
    let steps: Vec<_> = (0..10).map(|_| updates.step(&IDS, (6, 3)).unwrap()).collect();
    assert!(steps[9].after < 0.5 * steps[0].before, "{steps:?}");
    assert_ne!(bits(), start);
    let name = "blocks.0.attention.qkv.weight";
    assert!(updates.moment("second", name, 0).unwrap() > 0.0);
    (0..10).for_each(|_| assert!(updates.undo()));
    assert!(!updates.undo());
    assert_eq!(bits(), start);
    assert_eq!(updates.moment("second", name, 0), Some(0.0));
    let refused = Updates::new(&model, 1e-2, 1.0, 10, Some(1000)).map(|_| ()).unwrap_err();
    assert!(refused.message().contains("MB"), "{refused}");
}

#[test]
fn neighbours_and_analogies_are_ordered_by_angle() {
    let table = Tensor::new([5, 2], &[1.0, 0.0, 2.0, 0.1, 0.0, 1.0, -1.0, 0.0, 1.0, 1.0]);
    let near = nearest(&table, &[(1.0, 0)], 2);
    assert_eq!(near.iter().map(|n| n.id).collect::<Vec<_>>(), [1, 4]);
    // (1,1) − (1,0) + (0,1) = (0,2): but these are left out, so (2,0.1) is the nearest of the rest.
    assert_eq!(nearest(&table, &[(1.0, 4), (-1.0, 0), (1.0, 2)], 1)[0].id, 1);
}

#[test]
fn what_the_model_cannot_read_is_refused() {
    let model = small();
    for (ids, target) in
        [(&[][..], None), (&[9999], None), (&[1], Some((1, 0))), (&[1], Some((0, 9999)))]
    {
        assert!(Flow::of(&model, ids, target, None).is_err(), "{ids:?} {target:?}");
    }
    assert!(Flow::of(&model, &IDS, None, Some(10)).is_err());
}

#[test]
fn the_terms_of_a_sum_come_to_its_value() {
    let model = small();
    let flow = Flow::of(&model, &IDS, None, None).unwrap();
    let mut kinds = [0; 3];
    for stage in &flow.stages {
        let focus = Focus { head: 1, token: 5, column: 1 };
        let Some(line) = line(&model, &flow, stage, focus) else { continue };
        let value = match &line.terms {
            Terms::Plain => continue,
            Terms::Products { left, right, divisor, plus, .. } => {
                kinds[0] += 1;
                let product = |(a, b): (&f32, &f32)| f64::from(*a) * f64::from(*b);
                let sum: f64 = left.iter().zip(right).map(product).sum();
                sum / divisor + plus.unwrap_or(0.0)
            }
            Terms::Softmax { scores, at } => {
                kinds[1] += 1;
                let total: f64 = scores.iter().map(|s| f64::from(*s).exp()).sum();
                f64::from(scores[*at]).exp() / total
            }
            Terms::Norm { x, mean, deviation, gain, bias } => {
                kinds[2] += 1;
                (f64::from(x[1]) - mean) / deviation * gain + bias.unwrap_or(0.0)
            }
        };
        assert!((value - line.computed).abs() < 1e-6, "{}: {value} but {line:?}", stage.name);
    }
    assert!(kinds.iter().all(|count| *count >= 2), "{kinds:?}");
}

#[test]
fn the_lens_of_all_tokens_has_that_of_each() {
    let model = small();
    let flow = Flow::of(&model, &IDS, None, None).unwrap();
    let all = lens_at(&model, &flow, &[0, 3, 6], 2).unwrap();
    for (i, place) in [0, 3, 6].into_iter().enumerate() {
        for (row, alone) in all.iter().zip(lens(&model, &flow, place, 2).unwrap()) {
            assert_eq!(
                (row[i].likeliest[0].0, &row[i].stage),
                (alone.likeliest[0].0, &alone.stage)
            );
        }
    }
    assert!(lens_at(&model, &flow, &[7], 1).is_err());
}

#[test]
fn changes_act_together_and_leave_nothing_behind() {
    let model = small();
    let logits = |changes: &[Change]| logits_with(&model, &IDS, changes).unwrap().data().to_vec();
    let before = logits(&[]);
    let name = "blocks.0.norm1.weight".to_owned();
    let own = hearken_explain::parameter(&model, &name).unwrap().value().data()[0];
    let edit = |value| Change::Edit { parameter: name.clone(), index: 0, value };
    let neuron = |column| Change::Ablate {
        names: Pattern::from("blocks.0.feed_forward.active"),
        column: Some(column),
    };
    let patch = |places: &[usize]| Change::Patch {
        name: "embedding".to_owned(),
        other: vec![3; 7],
        places: places.to_vec(),
    };
    for change in [edit(own + 1.0), neuron(1), patch(&[2])] {
        assert_ne!(logits(std::slice::from_ref(&change)), before, "{change:?}");
    }
    // Of two edits of one number the second counts; a patch of no place changes nothing.
    let same = |x: &[f32]| x.iter().zip(&before).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(same(&logits(&[edit(own + 1.0), edit(own)])));
    assert!(same(&logits(&[patch(&[]), neuron(99_999)])));
    assert_eq!(logits(&[]), before);
    let all: Vec<usize> = (0..7).collect();
    let other = logits_with(&model, &[3; 7], &[]).unwrap();
    let patched = logits(&[patch(&all)]);
    assert!(patched.iter().zip(other.data()).all(|(a, b)| (a - b).abs() < 1e-5));
}

#[test]
fn a_step_of_a_weight_follows_the_formula() {
    let model = small();
    let mut updates = Updates::new(&model, 1e-2, 1.0, 4, None).unwrap();
    assert!(updates.of_weight("norm.weight", 0).is_none());
    let mut biggest = 0.0_f64;
    for _ in 0..4 {
        updates.step(&IDS, (6, 3)).unwrap();
        for parameter in model.parameters() {
            let step = updates.of_weight(parameter.name(), 0).unwrap();
            let moved = f64::from(step.after) - f64::from(step.before);
            biggest = biggest.max(moved.abs());
            let off = (step.computed() - f64::from(step.after)).abs();
            assert!(off < 1e-6, "{}: {step:?} comes to {}", parameter.name(), step.computed());
            let g = f64::from(step.gradient) * step.clip_factor;
            let first = 0.9 * f64::from(step.first[0]) + 0.1 * g;
            assert!((first - f64::from(step.first[1])).abs() < 1e-6 * (1.0 + g.abs()));
        }
    }
    assert!(biggest > 1e-3);
}

#[test]
fn pronouns_are_found_with_the_name_they_stand_for() {
    let texts = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
    let (found, name) = pronouns(&texts("\nMia ran. She slept.")).unwrap();
    assert_eq!((found, name), (vec![10, 11, 12], vec![1, 2, 3]));
    assert!(pronouns(&texts("the shed")).is_none());
    let words: Vec<String> =
        ["Mia", " lost", " her", " kite", ".", " She", " ran"].map(String::from).to_vec();
    assert_eq!(pronouns(&words), Some((vec![2, 5], vec![0])));
    let flow = attending(|t| if t == 2 || t == 5 { 0 } else { t });
    let head = &roles_in(&flow, Some(&words))[0];
    assert_eq!(head.role, Some(("who she is", 1.0)));
}

#[test]
fn the_plane_lies_along_the_largest_differences() {
    // Points on a long line in one direction and a short one in another.
    let rows: Vec<f32> =
        (0..40).flat_map(|i| [0.1, i as f32 - 20.0, ((i * 7) % 5) as f32 * 0.5, 0.0]).collect();
    let table = Tensor::new([40, 4], &rows);
    let all: Vec<u32> = (0..40).collect();
    let plane = plane(&table, &all);
    assert!(plane.explained[0] > 0.99 && plane.explained.iter().sum::<f64>() > 0.9999);
    let along = |x: &[f32]| plane.place(x)[0];
    assert!((along(&rows[4..8]) - along(&rows[..4])).abs() - 1.0 < 0.01);
}
