//! Sequences before the Transformer: teacher forcing, recurrence, and a first look back.

use crate::lesson::lesson;
use crate::maths::{bars, chart, difference, digits, gradient, matrix, numbers, scalar, tanh};
use crate::{Lesson, Sheet};
use hearken_nn::config::{DecoderConfig, StackConfig};
use hearken_nn::models::{Decoder, Model, PredictsTokens, Tokens};
use hearken_nn::pass::Pass;
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::ops::matmul::{matmul, matmul_transposed};
use hearken_tensor::ops::softmax::softmax;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Tensor, Var};
use hearken_train::{DecayRule, Optimizer, OptimizerConfig};

pub(crate) const LESSONS: &[Lesson] = &[
    lesson!(teacher_forcing, "teacher-forcing", "Teacher forcing",
        "A sentence shifted by one gives five predictions in a single pass",
        "batches of training" => "text.md"),
    lesson!(recurrence, "recurrence", "Backpropagation through time",
        "A product of Jacobians: why recurrent networks forget or explode",
        "when it does not learn" => "train.md"),
    lesson!(bahdanau, "bahdanau", "A fixed vector against looking back",
        "Twelve words squeezed into one vector, and Bahdanau's attention over all of them",
        "attention in a model" => "models.md"),
];

fn teacher_forcing(s: &mut Sheet) {
    let words = ["SOS", "Le", "chat", "s'est", "assis", "EOS"];
    let (inputs, targets) = ([0u32, 1, 2, 3, 4], [1u32, 2, 3, 4, 5]);
    s.step("Shift by one");
    s.text("To learn the next word, the model reads the true sentence, not its own guesses. Input and target \
            are the same sentence, one without its end, the other without its start. Both have five tokens.");
    s.table(
        &["position", "input", "target"],
        (0..5).map(|i| {
            [
                i.to_string(),
                words[inputs[i] as usize].to_owned(),
                words[targets[i] as usize].to_owned(),
            ]
        }),
    );

    s.step("One pass is as good as five");
    let config =
        DecoderConfig { vocabulary: 6, context: 8, tied: true, stack: StackConfig::new(1, 16, 2) };
    let model = Decoder::drawn(config, 1);
    let all = model.logits(&Tokens::new(&inputs, 1)); // (1, 5, 6)
    let mut worst = 0.0f64;
    for n in 1..=5 {
        let prefix = model.logits(&Tokens::new(&inputs[..n], 1));
        worst =
            worst.max(difference(&prefix.data()[(n - 1) * 6..], &all.data()[(n - 1) * 6..n * 6]));
    }
    s.text("The causal mask hides what comes later. So the prediction at each position in the whole sentence \
            equals the one from the prefix alone, and one pass gives five losses:");
    s.show("largest difference of the logits", worst);
    s.show("the five losses", &model.token_losses(&Tokens::new(&inputs, 1), &targets));

    s.step("Learn the sentence");
    let adam =
        OptimizerConfig::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, l2: 0.0, beta2_warmup: None };
    let mut optimizer = Optimizer::new(adam, DecayRule::Hidden, model.parameters().to_vec());
    let mut losses = Vec::new();
    for step in 0..80 {
        let loss = model
            .loss(&Tokens::new(&inputs, 1), &targets, &Pass::evaluate(), Options::default())
            .mean();
        losses.push((f64::from(step), f64::from(loss.value().item())));
        loss.backward();
        optimizer.step(0.01, 1.0);
        optimizer.zero_gradients(); // without this, gradients would add up from step to step
    }
    let mut curve =
        chart("loss of a small decoder", "step", "nats per token", vec![("loss", losses.clone())]);
    curve.logarithmic = true;
    s.chart(curve);
    s.show("first and last loss", [losses[0].1, losses[79].1]);

    s.step("Use it: now without a teacher");
    let mut ids = vec![0u32];
    while ids.len() < 6 && ids.last() != Some(&5) {
        let logits = model.logits(&Tokens::new(&ids, 1));
        let last = &logits.data()[(ids.len() - 1) * 6..];
        let best = (0..6).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap_or(0);
        ids.push(best as u32);
    }
    s.text(format!(
        "It writes: {}",
        ids.iter().map(|id| words[*id as usize]).collect::<Vec<_>>().join(" ")
    ));
    s.keep("written", ids.iter().map(|id| f64::from(*id)).collect::<Vec<_>>());

    s.ask("How long is the input if the target is \"Le chat s'est assis EOS\"?");
    for (n, because) in [
        (4, "Then the last target would have nothing to be predicted from."),
        (
            5,
            "SOS stands in the place of what comes before the first word; every target has an input.",
        ),
        (6, "That is the whole sequence with both ends. The last token, EOS, predicts nothing."),
    ] {
        s.answer(n.to_string(), n == inputs.len() && n == targets.len(), because);
    }
    s.wrong(
        "3.31",
        "the input has 4 tokens and the target 5.",
        "both have 5: the input is [SOS, Le, chat, s'est, assis].",
    );
    s.wrong(
        "3.32",
        "target[:-1] and target[1:] on a batch, and no zero_grad.",
        "the first axis is the batch; and gradients must be zeroed.",
    );
}

fn recurrence(s: &mut Sheet) {
    s.step("The same weight, many times");
    s.formula("h_t = tanh(w·h_(t−1) + x_t)        ∂h_t/∂h_(t−1) = w·(1 − h_t²)");
    s.text("How much does the last state feel the first? The chain rule multiplies the slopes of all steps. \
            By hand and by automatic differentiation, for w = 0.9 and six steps with inputs of 0.1:");
    let run = |w: f32, steps: usize, x: f32| {
        let (h0, weight) = (scalar(0.5), scalar(w));
        let mut h = h0.clone();
        let mut product = 1.0f64;
        for _ in 0..steps {
            h = tanh(&(&(&weight * &h) + &Var::constant(Tensor::scalar(x))));
            product *= f64::from(w * (1.0 - h.value().item().powi(2)));
        }
        h.backward();
        (product, f64::from(gradient(&h0).item()), f64::from(gradient(&weight).item()))
    };
    let (by_hand, auto, dw) = run(0.9, 6, 0.1);
    s.show("product of the six slopes", by_hand);
    s.show("∂h₆/∂h₀ by autograd", auto);

    s.step("Vanish or explode");
    s.text("Far from saturation the slope is near w, so the product is about w to the power t. Below, all with \
            inputs of 0 and a state near 0:");
    let small = |w: f32, steps: usize| {
        let h0 = scalar(1e-6);
        let mut h = h0.clone();
        for _ in 0..steps {
            h = tanh(&(&h * w));
        }
        h.backward();
        f64::from(gradient(&h0).item())
    };
    let lengths = [1usize, 5, 10, 20, 40];
    let rows: Vec<Vec<String>> = lengths
        .iter()
        .map(|n| {
            [vec![n.to_string()], [0.5, 0.9, 1.0, 1.1].map(|w| digits(small(w, *n))).to_vec()]
                .concat()
        })
        .collect();
    s.table(&["steps", "w = 0.5", "w = 0.9", "w = 1.0", "w = 1.1"], rows);
    s.keep("∂h₂₀/∂h₀ for w = 0.5, 0.9, 1.1", [small(0.5, 20), small(0.9, 20), small(1.1, 20)]);
    let points = |w: f32| (1..=40).map(|n| (n as f64, small(w, n))).collect();
    let mut curve = chart(
        "how much the first state is felt",
        "steps",
        "∂h_t/∂h₀",
        vec![("w = 0.5", points(0.5)), ("w = 0.9", points(0.9)), ("w = 1.1", points(1.1))],
    );
    curve.logarithmic = true;
    s.chart(curve);

    s.step("With matrices: a norm, and a bound");
    s.text("For vectors \"smaller than 1\" must mean: the norm of every Jacobian is at most some c < 1. Each \
            below 1 is not enough: 1 − 1/t² is, and the product of all of them from t = 2 on is ½.");
    let slow: f64 = (2..=10_000).map(|t| 1.0 - 1.0 / f64::from(t).powi(2)).product();
    s.show("Π (1 − 1/t²), t = 2 … 10,000", slow);
    let a = matrix([[0.0, 3.0], [0.0, 0.0]]);
    s.text("And eigenvalues are not norms: this matrix has only eigenvalues 0, yet one step makes a vector \
            three times as long.");
    s.show("[1, 0] after one step", matmul(&crate::maths::row(&[1.0, 0.0]), &a).value());

    s.step("The gradient of w has a term for every step");
    s.formula("∂h_t/∂w = Σₛ (∂h_t/∂h_s)·(1 − h_s²)·h_(s−1)");
    let mut states = vec![0.5f64];
    for _ in 0..6 {
        states.push((0.9 * states[states.len() - 1] + 0.1).tanh());
    }
    let slope = |t: usize| 1.0 - states[t] * states[t];
    let terms: Vec<f64> = (1..=6)
        .map(|t| {
            let later: f64 = (t + 1..=6).map(|u| 0.9 * slope(u)).product();
            later * slope(t) * states[t - 1]
        })
        .collect();
    s.bars(bars("terms of ∂h₆/∂w by step", &["1", "2", "3", "4", "5", "6"], &terms));
    s.show("their sum", terms.iter().sum::<f64>());
    s.show("∂h₆/∂w by autograd", dw);

    s.ask("In a Transformer, how many such factors lie between the first token and the last, in one layer?");
    let paths = |layers: usize| layers; // attention reaches every token in one step
    for (text, claim, because) in [
        (
            "One",
            1,
            "Attention connects every pair directly; the number of factors grows with layers, not with length.",
        ),
        (
            "As many as tokens lie between them",
            40,
            "That is the recurrent network, one factor per step.",
        ),
        ("The logarithm of their distance", 6, "That is a dilated convolution."),
    ] {
        s.answer(text, paths(1) == claim, because);
    }
    s.wrong(
        "3.46",
        "if ∂h_i/∂h_(i−1) < 1, gradients vanish.",
        "the norms must stay below a bound c < 1.",
    );
    s.wrong(
        "3.1",
        "LSTM and GRU help by introducing ReLU.",
        "they use sigmoid gates and tanh; the gating helps.",
    );
    s.wrong(
        "3.49",
        "a convolution's path is O(log n).",
        "only if it is dilated; else n/(k − 1) layers are needed.",
    );
}

fn bahdanau(s: &mut Sheet) {
    let sentence = "The agreement on the European Economic Area was signed in August 1992";
    let words: Vec<&str> = sentence.split(' ').collect();
    let n = words.len();
    s.step("One vector for a sentence");
    s.text(format!("\"{sentence}\": {n} words. An encoder makes a state of each, here 24 random numbers for the \
            word and a one-hot code of its place. The old way hands one vector to the decoder, say the mean \
            of all states. To read word t, the decoder looks which word the vector resembles most."));
    s.keep("words", n);
    let mut rng = Rng::new(21);
    let codes = rng.normal([n, 24], 1.0); // (n, 24)
    let codes = Var::constant(codes);
    let mean = Var::constant(Tensor::full([1, n], 1.0 / n as f32));
    let fixed = matmul(&mean, &codes); // (1, 24)
    let nearest = |vector: &Var| {
        let likeness = matmul_transposed(vector, &codes);
        let d = likeness.value().data();
        (0..n).max_by(|a, b| d[*a].total_cmp(&d[*b])).unwrap_or(0)
    };
    let read_fixed: Vec<usize> = (0..n).map(|_| nearest(&fixed)).collect();
    let right = read_fixed.iter().enumerate().filter(|(t, w)| t == *w).count();
    s.text(format!(
        "The vector is the same for every t, so the answer is always \"{}\".",
        words[read_fixed[0]]
    ));
    s.show("words read correctly from the fixed vector", right);

    s.step("Bahdanau: look at all states");
    s.formula("e_tj = vᵀ·tanh(W₁·s_(t−1) + W₂·h_j)      α = softmax(e)      c_t = Σ α_tj·h_j");
    s.text("Now the decoder has a state s, here the one-hot code of the place it wants to read. A small network \
            scores every encoder state. Let W₁ pass s on as it is, and W₂ pick the code of the place out of h. If \
            the places are the same, the two ones fall on one unit, tanh 2 = 0.96; if not, on two units, \
            2·tanh 1 = 1.52. With v = −10 in every unit the smaller sum has the higher score, so a match wins.");
    let mut picks = Vec::new();
    let mut first = Vec::new();
    let ones = Var::constant(Tensor::full([1, n], -10.0)); // v
    for t in 0..n {
        let sums: Vec<f32> = (0..n)
            .flat_map(|j| {
                (0..n).map(move |k| f32::from(u8::from(k == t)) + f32::from(u8::from(k == j)))
            })
            .collect();
        let hidden = tanh(&Var::constant(Tensor::new([n, n], &sums))); // row j: W₁s + W₂h_j
        let scores = matmul_transposed(&ones, &hidden); // (1, n)
        let weights = softmax(scores, 1.0);
        if t == 1 {
            first = numbers(&weights);
        }
        picks.push(nearest(&matmul(&weights, &codes)));
    }
    let found = picks.iter().enumerate().filter(|(t, w)| t == *w).count();
    s.bars(bars("weights while reading the second word", &words, &first));
    s.show("words read correctly with attention", found);
    s.show("weight on the right word", first[1]);

    s.step("What it changed");
    s.text("The capacity no longer depends on one vector, and the path from any word to the output has length \
            one. The Transformer keeps this idea, scores by a product instead of a network, and drops the \
            recurrence.");

    s.ask(
        "The decoder's state s_t is computed from the context c_t. Which state may the score use?",
    );
    s.answer(
        "s_t",
        false,
        "c_t needs the scores, s_t needs c_t: the scores would need themselves.",
    );
    s.answer("s_(t−1)", found == n, "The state before is all there is when the word is chosen.");
    s.answer(
        "Either, they are the same",
        false,
        "They differ by exactly the word that is being computed.",
    );
    s.wrong("3.3", "the sentence has 14 words.", format!("{n}."));
    s.wrong(
        "3.4",
        "the score uses s_t on the right side.",
        "s_(t−1) on both sides, else it is a circle.",
    );
}
