//! How models learn: the optimiser's step, schedules and clipping.

use crate::lesson::lesson;
use crate::maths::{chart, digits};
use crate::{Lesson, Sheet};
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Role, Tensor, Var};
use hearken_train::norms::{clip_factor, gradient_squares};
use hearken_train::schedule::DecayShape;
use hearken_train::{DecayRule, Optimizer, OptimizerConfig, ScheduleConfig};

pub(crate) const LESSONS: &[Lesson] = &[
    lesson!(momentum, "momentum", "Momentum",
        "A ball that remembers: two formulas, ten times apart",
        "the optimisers" => "train.md"),
    lesson!(adam, "adam", "Adam by hand",
        "Two moments, their bias and its correction, beside the library's own Adam",
        "the optimisers" => "train.md"),
    lesson!(decay, "weight-decay", "AdamW against Adam with L2",
        "The same penalty before or after the moments: measured over 3,000 steps",
        "weight decay" => "train.md"),
    lesson!(schedules, "schedules", "Warm-up and schedules",
        "Five curves of the learning rate, and the peak of Noam's",
        "schedules" => "train.md"),
    lesson!(clipping, "clipping", "Clipping gradients",
        "Shorter, in the same direction: the factor 0.1 for a norm of 50 and a limit of 5",
        "a training step" => "train.md"),
];

fn plain_sgd(momentum: f64, averaged: bool) -> OptimizerConfig {
    OptimizerConfig::Sgd { momentum, nesterov: false, averaged, l2: 0.0 }
}

/// One parameter, stepped with these gradients: its value after every step.
fn drive(
    config: OptimizerConfig,
    start: f32,
    lr: f64,
    gradients: impl IntoIterator<Item = f32>,
) -> Vec<f64> {
    let p = Param::new("p", Role::Vector, Tensor::new([1], &[start]));
    let mut optimizer = Optimizer::new(config, DecayRule::All, [p.clone()]);
    gradients
        .into_iter()
        .map(|g| {
            p.set_gradient(Some(Tensor::new([1], &[g])));
            optimizer.step(lr, 1.0);
            f64::from(p.value().item())
        })
        .collect()
}

fn momentum(s: &mut Sheet) {
    s.step("A ball that remembers");
    s.formula("summed (PyTorch, here):  v ← βv + g          θ ← θ − η·v\naveraged (the document): v ← βv + (1 − β)g   θ ← θ − η·v");
    s.text("Let the gradient be 1 at every step, η = 0.1 and β = 0.9. The summed form speeds up to ten times the \
            plain step; the averaged one only slowly reaches the plain step.");
    let steps = |config| drive(config, 0.0, 0.1, vec![1.0; 60]);
    let (plain, summed, averaged) =
        (steps(plain_sgd(0.0, false)), steps(plain_sgd(0.9, false)), steps(plain_sgd(0.9, true)));
    let size = |x: &[f64]| x[58] - x[59];
    s.show(
        "size of step 60: plain, summed, averaged",
        [size(&plain), size(&summed), size(&averaged)],
    );
    let points =
        |x: &[f64]| x.windows(2).enumerate().map(|(i, w)| (i as f64 + 2.0, w[0] - w[1])).collect();
    s.chart(chart(
        "size of the step under a constant gradient",
        "step",
        "size",
        vec![
            ("plain", points(&plain)),
            ("summed", points(&summed)),
            ("averaged", points(&averaged)),
        ],
    ));

    s.step("In a narrow valley");
    s.text("f = x² + 10y² from (3, 1), with η = 0.02. Momentum averages out the to and fro across the valley and \
            adds up along it.");
    let valley = |beta: f64| {
        let p = Param::new("p", Role::Vector, Tensor::new([2], &[3.0, 1.0]));
        let weights = Var::constant(Tensor::new([2], &[1.0, 10.0]));
        let mut optimizer = Optimizer::new(plain_sgd(beta, false), DecayRule::Hidden, [p.clone()]);
        let mut distances = Vec::new();
        for step in 0..200 {
            let x = p.var();
            (&(&x * &x) * &weights).sum().backward();
            optimizer.step(0.02, 1.0);
            optimizer.zero_gradients();
            let v = p.value();
            let distance = f64::from(v.data()[0].powi(2) + v.data()[1].powi(2)).sqrt();
            distances.push((f64::from(step), distance));
        }
        distances
    };
    let (without, with) = (valley(0.0), valley(0.8));
    let mut curve = chart(
        "distance to the bottom",
        "step",
        "distance",
        vec![("plain", without.clone()), ("β = 0.8", with.clone())],
    );
    curve.logarithmic = true;
    s.chart(curve);
    let reach = |d: &[(f64, f64)]| d.iter().position(|p| p.1 < 0.01).map_or(200, |i| i + 1);
    s.show(
        "steps until the distance is below 0.01: plain, β = 0.8",
        [reach(&without) as f64, reach(&with) as f64],
    );

    s.ask("You change a program from the averaged to the summed form with β = 0.9. The learning rate should be");
    let ratio = size(&summed) / size(&averaged);
    for (text, claim, because) in [
        (
            "a tenth of what it was",
            10.0,
            "The summed form goes 1/(1 − β) = 10 times as far for the same η.",
        ),
        ("the same", 1.0, "Then every step is ten times as long, and training may run away."),
        ("ten times what it was", 0.1, "That is the wrong way round: hundred times the step."),
    ] {
        s.answer(text, (ratio - claim).abs() < 0.2 * claim, because);
    }
    s.wrong("0.16", "the averaged form speeds up in consistent directions.", "under a constant gradient it only reaches the plain step; the summed form goes ten times as far.");
}

fn adam(s: &mut Sheet) {
    let config =
        |eps| OptimizerConfig::Adam { beta1: 0.9, beta2: 0.999, eps, l2: 0.0, beta2_warmup: None };
    s.step("Two memories");
    s.formula("m ← β₁m + (1 − β₁)g        v ← β₂v + (1 − β₂)g²\nm̂ = m/(1 − β₁ᵗ)    v̂ = v/(1 − β₂ᵗ)    θ ← θ − η·m̂/(√v̂ + ε)");
    s.text("m is the mean gradient, v the mean of its square. Both start at 0 and are too small at first: after t \
            steps with a constant gradient m is (1 − β₁ᵗ)·g. Dividing by that corrects it.");
    let gradients = [0.5f32, 0.3, -0.2, 0.4, 0.1];
    let library = drive(config(1e-8), 1.0, 0.1, gradients);
    let (mut m, mut v, mut theta) = (0.0f64, 0.0f64, 1.0f64);
    let mut rows = Vec::new();
    let mut by_hand = Vec::new();
    for (t, g) in gradients.iter().enumerate() {
        let g = f64::from(*g);
        m = 0.9 * m + 0.1 * g;
        v = 0.999 * v + 0.001 * g * g;
        let (mh, vh) =
            (m / (1.0 - 0.9f64.powi(t as i32 + 1)), v / (1.0 - 0.999f64.powi(t as i32 + 1)));
        theta -= 0.1 * mh / (vh.sqrt() + 1e-8);
        by_hand.push(theta);
        rows.push([
            (t + 1).to_string(),
            digits(g),
            digits(m),
            digits(v),
            digits(mh),
            digits(vh),
            digits(theta),
            digits(library[t]),
        ]);
    }
    s.step("Five steps by hand and by the library");
    s.table(&["t", "g", "m", "v", "m̂", "v̂", "θ by hand", "θ by the library"], rows);
    let off = by_hand.iter().zip(&library).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    s.show("largest difference", off);
    s.keep("θ", &library);

    s.step("The first step has full size");
    s.text("At t = 1, m̂ = g and √v̂ = |g|, so the step is η whatever the gradient. Without correction it would be \
            0.1/√0.001 = 3.16 times as large, since v lags more than m.");
    let first = |g: f32| 1.0 - drive(config(1e-8), 1.0, 0.1, [g])[0];
    s.show("first step for g = 0.001, 1 and 1,000", [first(0.001), first(1.0), first(1000.0)]);
    s.show("0.1/√0.001", 0.1 / 0.001f64.sqrt());

    s.step("v is not a variance");
    s.text("A gradient that is always 7 never changes, and yet v̂ = 49. So Adam divides it away: constant and \
            wild gradients of the same size get different steps only because m is smaller for wild ones.");
    let constant = drive(config(1e-8), 0.0, 0.1, vec![7.0; 100]);
    let wild = drive(config(1e-8), 0.0, 0.1, (0..100).map(|i| if i % 2 == 0 { 7.0 } else { -7.0 }));
    s.show("after 100 steps of 7", constant[99]);
    s.show("after 100 steps of 7, −7, 7, …", wild[99]);

    s.ask("All gradients of a model are multiplied by 1,000. What changes with Adam?");
    let same = (drive(config(1e-8), 1.0, 0.1, gradients)[4]
        - drive(config(1e-8), 1.0, 0.1, gradients.map(|g| 1000.0 * g))[4])
        .abs()
        < 1e-4;
    s.answer(
        "Nothing, apart from ε and clipping",
        same,
        "m̂/√v̂ does not know the unit of the gradient.",
    );
    s.answer("Steps are 1,000 times as large", !same, "That is plain gradient descent.");
    s.answer(
        "Steps are 1,000 times as small",
        !same,
        "Both moments scale: m̂ with 1,000, √v̂ with 1,000.",
    );
    s.wrong(
        "0.3",
        "v tracks how much the gradients have been changing.",
        "it is the mean square of the gradient, not its change.",
    );
    s.wrong(
        "0.4",
        "bias correction makes Adam start cautiously.",
        "the first step has the full size η, whatever the gradient.",
    );
}

fn decay(s: &mut Sheet) {
    s.step("Two places for the same penalty");
    s.formula("Adam + L2:  g ← g + λθ, then the moments         AdamW:  θ ← θ − ηλθ beside them");
    s.text("A penalty on large weights adds λθ to the gradient. Adam then divides by the size of the gradient, \
            penalty included: where gradients are large, the decay all but disappears. AdamW keeps it out of \
            the moments.");

    s.step("Three thousand steps");
    s.text("300 parameters start at 1 and get noise of deviation 10 as gradients, so that nothing but the decay \
            has a direction. η = 0.001, λ = 0.1. Their mean:");
    let run = |config: OptimizerConfig| {
        let p = Param::new("p", Role::Vector, Tensor::full([300], 1.0));
        let mut optimizer = Optimizer::new(config, DecayRule::All, [p.clone()]);
        let mut rng = Rng::new(12);
        let mut curve = Vec::new();
        for step in 0..3000u32 {
            p.set_gradient(Some(rng.normal([300], 10.0)));
            optimizer.step(0.001, 1.0);
            if step % 50 == 49 {
                let mean = p.value().data().iter().map(|x| f64::from(*x)).sum::<f64>() / 300.0;
                curve.push((f64::from(step + 1), mean));
            }
        }
        curve
    };
    let l2 = run(OptimizerConfig::Adam {
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        l2: 0.1,
        beta2_warmup: None,
    });
    let adamw = run(OptimizerConfig::AdamW {
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.1,
        beta2_warmup: None,
    });
    let ends = [l2[59].1, adamw[59].1];
    s.chart(chart(
        "mean of the parameters",
        "step",
        "θ",
        vec![("Adam + L2", l2), ("AdamW", adamw)],
    ));
    s.show("Adam + L2", ends[0]);
    s.show("AdamW", ends[1]);
    s.show("expected of AdamW: (1 − ηλ)³⁰⁰⁰", (1.0 - 1e-4f64).powi(3000));

    s.step("Which parameters decay");
    s.text("Biases, the gains of norms and embeddings are left alone: shrinking them does not make the function \
            simpler. Hearken decays hidden matrices and heads.");
    s.table(
        &["role", "decays"],
        [
            [
                "hidden matrix",
                if DecayRule::Hidden.applies(Role::Hidden, 2) { "yes" } else { "no" },
            ],
            ["output head", if DecayRule::Hidden.applies(Role::Head, 2) { "yes" } else { "no" }],
            ["embedding", if DecayRule::Hidden.applies(Role::Table, 2) { "yes" } else { "no" }],
            ["bias or gain", if DecayRule::Hidden.applies(Role::Vector, 1) { "yes" } else { "no" }],
        ],
    );

    s.ask("With plain gradient descent, without moments, L2 and decoupled decay are");
    let sgd = drive(
        OptimizerConfig::Sgd { momentum: 0.0, nesterov: false, averaged: false, l2: 0.5 },
        1.0,
        0.1,
        vec![0.3; 20],
    )[19];
    let by_hand = (0..20).fold(1.0f64, |theta, _| theta * (1.0 - 0.1 * 0.5) - 0.1 * 0.3);
    let same = (sgd - by_hand).abs() < 1e-5;
    s.answer(
        "the same",
        same,
        "θ − η(g + λθ) = (1 − ηλ)θ − ηg. The difference begins when something divides.",
    );
    s.answer("different, as with Adam", !same, "Nothing is divided there; write the two out.");
    s.answer("different, but only with a schedule", !same, "Both are multiplied by the same η.");
    s.wrong(
        "0.1",
        "\"Adam with L2\" is θ − η·m̂/√v̂ − ηλθ.",
        "that is AdamW, written twice; L2 adds λθ to the gradient before the moments.",
    );
    s.wrong(
        "0.2",
        "β₂ warm-up starts high at 0.99 and decreases to 0.999.",
        "it rises: 0.99 < 0.999.",
    );
}

fn schedules(s: &mut Sheet) {
    let steps = 1000u64;
    s.step("Why a schedule");
    s.text("At the start gradients are large and point anywhere: a warm-up keeps the first steps small. At the \
            end the noise of batches keeps the loss up: smaller steps average it out.");
    let kinds: [(&str, ScheduleConfig); 5] = [
        ("constant", ScheduleConfig::Constant { warmup: 100 }),
        ("linear", ScheduleConfig::Linear { warmup: 100, floor: 0.1 }),
        ("cosine", ScheduleConfig::Cosine { warmup: 100, floor: 0.1 }),
        ("inverse-sqrt", ScheduleConfig::InverseSqrt { warmup: 100 }),
        (
            "wsd",
            ScheduleConfig::Wsd { warmup: 100, decay: 0.2, floor: 0.0, shape: DecayShape::Root },
        ),
    ];
    let curves = kinds.iter().map(|(name, kind)| {
        (*name, (0..steps).step_by(5).map(|step| (step as f64, kind.factor(step, steps))).collect())
    });
    s.chart(chart("factor of the learning rate", "step", "factor", curves.collect()));
    let rows = kinds.iter().map(|(name, kind)| {
        [
            vec![(*name).to_owned()],
            [0, 50, 100, 550, 999].map(|step| digits(kind.factor(step, steps))).to_vec(),
        ]
        .concat()
    });
    s.table(&["schedule", "step 0", "50", "100", "550", "999"], rows);
    let cosine = kinds[2].1;
    s.keep("cosine at 550", cosine.factor(550, steps));

    s.step("Noam: the schedule of 2017");
    s.formula("η = C^(−½)·min(t^(−½), t·w^(−1.5))        peak at t = w:  (C·w)^(−½)");
    let noam = |t: f64| 512f64.powf(-0.5) * t.powf(-0.5).min(t * 4000f64.powf(-1.5));
    s.show("peak for C = 512, w = 4,000", noam(4000.0));
    s.text("It is Hearken's inverse-sqrt with lr = (C·w)^(−½):");
    let ours = ScheduleConfig::InverseSqrt { warmup: 3999 };
    let lr = (512.0f64 * 4000.0).powf(-0.5);
    let off = [1u64, 100, 4000, 20_000]
        .into_iter()
        .map(|t| (noam(t as f64) - lr * ours.factor(t - 1, 100_000)).abs())
        .fold(0.0, f64::max);
    s.show("largest difference at t = 1, 100, 4,000, 20,000", off);

    s.step("The first step counts");
    s.text("A schedule that begins with step/warmup has a rate of 0 at step 0: the first batch is computed and \
            thrown away. And t^(−½) at t = 0 is a division by zero. Here the line is (s + 1)/(w + 1).");
    s.show("factor of the first step here", cosine.factor(0, steps));
    s.show("factor of the first step in the document", 0.0 / 100.0);

    s.step("After the end");
    s.formula("½(1 + cos πu),  u = (t − w)/(n − w)");
    s.text("The formula itself rises again after the last step, u > 1; a schedule must stop at its floor.");
    let raw = |t: f64| 0.5 * (1.0 + (std::f64::consts::PI * (t - 100.0) / 900.0).cos());
    s.show("the bare formula at 1,900 of 1,000 steps", raw(1900.0));
    s.show("Hearken's cosine there (floor 0.1)", cosine.factor(1900, steps));

    s.ask("In the middle of a cosine from 1 to a floor of 0.1, the factor is");
    for (claim, because) in [
        (0.5, "The cosine is at its middle between 1 and the floor, and the floor is 0.1."),
        (0.55, "Half way between 1 and 0.1: 0.1 + 0.9·½."),
        (0.1, "That is the end."),
    ] {
        s.answer(digits(claim), (cosine.factor(550, steps) - claim).abs() < 1e-3, because);
    }
    s.wrong(
        "3.33",
        "get_lr may be called with any step.",
        "it must start at 1: 0 to the power −½ is a division by zero.",
    );
    s.wrong(
        "4.28",
        "the warm-up is max_lr·step/warmup from step 0.",
        "the first update is then multiplied by 0.",
    );
}

fn clipping(s: &mut Sheet) {
    s.step("Too long");
    s.text("Now and then a batch gives a gradient a hundred times as long as usual, and one step undoes an hour. \
            Clipping looks at the length of all gradients together and shortens them all by the same factor.");
    s.formula("g ← g·min(1, c/‖g‖)");
    let weight = |name: &str, g: &[f32]| {
        let p = Param::new(name, Role::Hidden, Tensor::zeros([g.len()]));
        p.set_gradient(Some(Tensor::new([g.len()], g)));
        p
    };
    let parameters = [weight("a", &[30.0, 0.0]), weight("b", &[0.0, -40.0])];
    let norm = gradient_squares(&parameters, 1.0).iter().sum::<f64>().sqrt();
    s.show("‖g‖ of [30, 0] and [0, −40] together", norm);
    let factor = clip_factor(norm, 5.0);
    s.show("factor for c = 5", factor);
    s.show("clipped", [30.0 * factor, 0.0, 0.0, -40.0 * factor]);
    s.show("factor for a norm of 3", clip_factor(3.0, 5.0));

    s.step("Together, not one by one");
    s.text("Clip each parameter by itself and the direction changes. Here the gradient [30, −0.4] would become \
            [5, −0.4]: seventy-five to one becomes twelve to one.");
    let joint = clip_factor((30f64.powi(2) + 0.4f64.powi(2)).sqrt(), 5.0);
    s.show("together", [30.0 * joint, -0.4 * joint]);
    s.show("one by one", [30.0 * clip_factor(30.0, 5.0), -0.4 * clip_factor(0.4, 5.0)]);

    s.step("A factor as the gradient is read");
    s.text("The optimiser multiplies by the factor while it reads the gradient, so nothing is written twice. One \
            step of SGD with η = 1:");
    let mut optimizer =
        Optimizer::new(plain_sgd(0.0, false), DecayRule::Hidden, parameters.to_vec());
    optimizer.step(1.0, factor as f32);
    s.show(
        "parameters after the step",
        [parameters[0].value().data()[0], parameters[1].value().data()[1]].map(f64::from),
    );

    s.step("Exactly at the limit");
    s.text("A common form divides by ‖g‖ + 10⁻⁶. At ‖g‖ = c it should do nothing, and shrinks a little.");
    s.show("c/(c + 10⁻⁶) for c = 5", 5.0f64 / (5.0 + 1e-6));
    s.show("Hearken's factor at the limit", clip_factor(5.0, 5.0));

    s.ask(
        "With Adam, which is indifferent to the unit of the gradient, does clipping do anything?",
    );
    let config =
        OptimizerConfig::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, l2: 0.0, beta2_warmup: None };
    let mut spike = vec![1.0f32; 20];
    spike.push(1000.0);
    spike.extend([1.0; 20]);
    let clipped: Vec<f32> = spike.iter().map(|g| g.min(5.0)).collect();
    let last = |g: &[f32]| {
        let x = drive(config, 0.0, 0.01, g.to_vec());
        x[39] - x[40]
    };
    let (raw, cut) = (last(&spike), last(&clipped));
    s.answer(
        "No: all sizes are the same to it",
        (raw - cut).abs() < 1e-5,
        "A constant factor is; a single spike is not.",
    );
    s.answer(
        "Yes: a spike stays in its memory",
        (raw - cut).abs() > 1e-3,
        "v remembers the square of the spike for \
             about 1/(1 − β₂) = 1,000 steps, and all steps in that time are too small.",
    );
    s.answer("Only in the first step", false, "The memory of v is long: see the formula.");
    s.wrong(
        "4.29",
        "clip_coef = min(1, max_norm/(norm + 1e-6)).",
        "it shrinks even a gradient that is exactly at the limit.",
    );
}
