//! Attention with a pencil, and what is around it.

use crate::lesson::lesson;
use crate::maths::{
    bars, chart, difference, digits, gradient, list, matrix, moments, numbers, row, softmax,
};
use crate::{Lesson, Sheet};
use hearken_kernels::attention::scores::{Bias, Causal, Mask};
use hearken_tensor::ops::attention::{Attend, attention, attention_entropy, attention_weights};
use hearken_tensor::ops::matmul::{matmul, matmul_transposed};
use hearken_tensor::ops::reshape::reshape;
use hearken_tensor::ops::softmax::softmax as softmax_op;
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Tensor, Var};

pub(crate) const LESSONS: &[Lesson] = &[
    lesson!(tiny_attention, "tiny-attention", "Attention with a pencil, forward and backward",
        "Two tokens, width 3: every number of scaled dot-product attention and of its gradient",
        "attention in a model" => "models.md"),
    lesson!(chat, "chat", "From cat to chat",
        "A decoder looks for an animal among six English words, then for an action",
        "looking at the weights of a real model" => "inspect.md"),
    lesson!(root_d, "root-d", "Why √D",
        "The variance of a score grows with the width; softmax saturates and the gradient dies",
        "how weights start" => "models.md"),
    lesson!(masks, "masks", "Masks: added, not multiplied",
        "How to hide a key, three ways that go wrong, and a row that sees nothing",
        "who sees whom" => "models.md"),
    lesson!(heads, "heads", "Twelve heads, and the shapes",
        "[4, 768] → [12, 4, 64] → [12, 4, 4] → [4, 768], computed both ways",
        "looking inside a pass" => "inspect.md"),
];

fn tiny_attention(s: &mut Sheet) {
    let q = matrix([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]);
    let k = matrix([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]);
    let v = matrix([[2.0, 0.0, 1.0], [1.0, 1.0, 0.0]]);
    let scale = 1.0 / 3f32.sqrt();
    s.step("Scores");
    s.formula("Attention(Q, K, V) = softmax(QKᵀ/√D)·V        D = 3");
    s.matrix("Q", q.value());
    s.matrix("K", k.value());
    s.matrix("V", v.value());
    let products = matmul_transposed(&q, &k);
    s.text("Row i, column j: how well query i fits key j.");
    s.matrix("QKᵀ", products.value());
    s.matrix("S = QKᵀ/√3", (&products * scale).value());

    s.step("Weights and output");
    let a = softmax_op(products.clone(), scale);
    s.text(
        "Softmax of every row. The first query likes the second key more; the second is undecided.",
    );
    s.matrix("A", a.value());
    let o = matmul(&a, &v);
    s.text("Each output is the mean of the values by these weights.");
    s.matrix("O = AV", o.value());

    s.step("Backward: what is given, and the values");
    s.text("Suppose that what comes after says how the loss changes with the output:");
    let go = matrix([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]);
    s.matrix("G_O", go.value());
    s.formula("G_V = AᵀG_O      G_A = G_O·Vᵀ");
    s.matrix("G_V", matmul(&transpose(&a, 0, 1), &go).value());
    let ga = matmul_transposed(&go, &v);
    s.matrix("G_A", ga.value());

    s.step("Through the softmax, to queries and keys");
    s.formula("G_S = A ⊙ (G_A − Σⱼ A·G_A)      G_Q = G_S·K/√D      G_K = G_Sᵀ·Q/√D");
    s.text("A push on all weights of a row changes nothing, since they must sum to 1: the mean push is \
            taken away.");
    let (av, gav) = (a.value().data(), ga.value().data());
    let mut gs = [0.0f32; 4];
    for r in 0..2 {
        let mean = av[2 * r] * gav[2 * r] + av[2 * r + 1] * gav[2 * r + 1];
        for c in 0..2 {
            gs[2 * r + c] = av[2 * r + c] * (gav[2 * r + c] - mean);
        }
    }
    let gs = Var::constant(Tensor::new([2, 2], &gs));
    s.matrix("G_S", gs.value());
    let gq = &matmul(&gs, &k) * scale;
    let gk = &matmul(&transpose(&gs, 0, 1), &q) * scale;
    s.matrix("G_Q", gq.value());
    s.matrix("G_K", gk.value());

    s.step("The kernel that trains models says the same");
    let wide = |x: &Var| Var::leaf(x.value().clone().reshape([1, 2, 3])); // (B, T, H·D)
    let (q3, k3, v3) = (wide(&q), wide(&k), wide(&v));
    let out = attention(&q3, &k3, &v3, &[], &Attend::new(1));
    out.backward_with(go.value().clone().reshape([1, 2, 3]));
    let off = [
        (out.value().data(), o.value().data()),
        (gradient(&q3).data(), gq.value().data()),
        (gradient(&k3).data(), gk.value().data()),
    ]
    .map(|(a, b)| difference(a, b))
    .into_iter()
    .fold(0.0, f64::max);
    s.show("largest difference of O, G_Q and G_K", off);

    s.ask("Why does every row of G_S sum to 0?");
    let sums: Vec<f32> = gs.value().data().chunks(2).map(|row| row.iter().sum()).collect();
    let zero = sums.iter().all(|sum| sum.abs() < 1e-6);
    s.answer(
        "Adding the same to all scores of a row changes no weight",
        zero,
        "So the loss cannot depend on \
             that direction, and its gradient has no part in it.",
    );
    s.answer(
        "Because the rows of G_O sum to 0",
        numbers(&go)[..3].iter().sum::<f64>() == 0.0,
        "The first row of G_O sums to 2. It is the softmax that does it.",
    );
    s.answer(
        "By accident, with these numbers",
        !zero,
        "Σⱼ aⱼ(gⱼ − Σ a·g) = Σ a·g − Σ a·g = 0 for any \
             numbers, as the weights sum to 1.",
    );
    s.wrong(
        "2.18",
        "A = [[0.359, 0.641], …], rounded to 3 places.",
        format!("{}, that is 0.360 and 0.640.", list(&numbers(&a)[..2])),
    );
    s.wrong(
        "2.21",
        "the second row's exponentials sum to 3.562.",
        format!("2·e^(1/√3) = {}.", digits(2.0 * (1.0 / 3f64.sqrt()).exp())),
    );
    s.wrong("2.19", "the example stops at G_V.", "completed above: G_A, G_S, G_Q and G_K.");
}

fn chat(s: &mut Sheet) {
    let words = ["the₁", "cat", "sat", "on", "the₂", "mat"];
    let k = matrix([
        [0.0, 0.0, 0.0, 1.0],
        [1.0, 0.0, 0.3, 0.0],
        [0.0, 1.0, 0.0, 0.0],
        [0.0; 4],
        [0.0, 0.0, 0.0, 1.0],
        [0.0, 0.0, 1.0, 0.0],
    ]);
    let v = matrix([
        [0.1, 0.0, 0.0, 0.8],
        [0.9, 0.0, 0.1, 0.7],
        [0.0, 0.9, 0.0, 0.3],
        [0.0, 0.0, 0.5, 0.0],
        [0.0, 0.0, 0.0, 0.9],
        [0.0, 0.0, 0.9, 0.6],
    ]);
    let look = |query: &[f32]| {
        let scores = matmul_transposed(&row(query), &k);
        let weights = softmax_op(scores.clone(), 0.5); // 1/√4
        let out = matmul(&weights, &v);
        (numbers(&scores), numbers(&weights), numbers(&out))
    };
    s.step("The query");
    s.text("A decoder that translates \"The cat sat on the mat\" is about to write the French word for cat. \
            Vectors have four features: animal, action, object, definite. The query asks for an animal. \
            Each English word advertises what it is with a key.");
    s.show("query", [0.9, 0.1, 0.2, 0.3]);
    s.matrix("keys: the₁, cat, sat, on, the₂, mat", k.value());

    s.step("Scores and weights");
    let (scores, weights, out) = look(&[0.9, 0.1, 0.2, 0.3]);
    s.formula("weights = softmax(q·Kᵀ/√4)");
    s.show("scores", &scores);
    s.show("weights", &weights);
    s.bars(bars("who is looked at", &words, &weights));
    s.text("\"cat\" gets most, but not much more than the others: the scores lie between 0 and 0.96, and \
            halved they hardly differ for softmax.");

    s.step("What comes back");
    s.matrix("values", v.value());
    s.show("output: animal, action, object, definite", &out);
    s.text(format!(
        "The animal is the third of four. These are coordinates, not shares: they sum to {}.",
        digits(out.iter().sum())
    ));
    let parts: Vec<f64> =
        weights.iter().zip(v.value().data().chunks(4)).map(|(w, v)| w * f64::from(v[3])).collect();
    s.bars(bars("where the definiteness comes from", &words, &parts));
    s.keep("parts of definiteness", &parts);

    s.step("A sharper query");
    s.text("Ten times the query is ten times the scores: the same question, asked with more determination. \
            A trained model can do that by itself, since W_Q is learned.");
    let (_, sharp, sharp_out) = look(&[9.0, 1.0, 2.0, 3.0]);
    s.show("weights of 10·query", &sharp);
    s.show("output of 10·query", &sharp_out);

    s.step("Looking for an action");
    let (_, action, _) = look(&[0.1, 0.9, 0.1, 0.1]);
    s.show("weights of the query [0.1, 0.9, 0.1, 0.1]", &action);
    s.bars(bars("who is looked at now", &words, &action));

    s.ask("\"on\" has a key of zeros. Why does it still get a weight of 0.14?");
    let zero = softmax(&[0.0, -30.0], 1.0);
    s.answer(
        "A score of 0 is an ordinary score: e⁰ = 1",
        zero[0] > 0.99,
        "Against scores of −30 a score of 0 \
             even wins. To be ignored, a key needs a score far below the others, or a mask.",
    );
    s.answer(
        "Because of rounding",
        false,
        "It is exactly e⁰ divided by the sum of all exponentials.",
    );
    s.answer("Because its value is not zero", false, "Values do not enter the weights.");
    s.wrong(
        "3.13",
        "the output is [0.22, 0.14, 0.24, 0.57].",
        format!("{}; the weights were rounded first.", list(&out)),
    );
    s.wrong("3.14", "it is mostly animal.", "the animal is third of four.");
    s.wrong(
        "3.5",
        "weights [0.8, 0.15, …] stand above the French words.",
        "they belong to the English words, and 0.8 to the second, cat.",
    );
}

fn root_d(s: &mut Sheet) {
    s.step("The variance of a score");
    s.text("Let the numbers of q and k be independent with mean 0 and variance 1. Each product has variance \
            1, and a score is the sum of D of them.");
    s.formula("Var(q·k) = D        Var(q·k/√D) = 1");
    let mut rows = Vec::new();
    let (mut plain, mut scaled) = (Vec::new(), Vec::new());
    let widths = [1usize, 4, 16, 64, 256];
    for d in widths {
        let mut rng = Rng::new(d as u64);
        let (q, k) = (rng.normal([128, d], 1.0), rng.normal([128, d], 1.0));
        let scores = numbers(&matmul_transposed(&Var::constant(q), &Var::constant(k)));
        let (_, variance) = moments(&scores);
        plain.push(variance);
        scaled.push(variance / d as f64);
        rows.push([d.to_string(), digits(variance), digits(variance / d as f64)]);
    }
    s.table(&["D", "variance of q·k", "variance of q·k/√D"], rows);
    s.keep("variance / D", &scaled);

    s.step("What softmax does with it");
    s.text("The entropy of a row of weights over 64 keys: ln 64 = 4.16 nats if all are equal, 0 if all weight \
            is on one. Without the root it collapses as heads become wider.");
    let mut entropies = [Vec::new(), Vec::new()];
    let mut slopes = [Vec::new(), Vec::new()];
    for d in widths {
        let mut rng = Rng::new(100 + d as u64);
        let (q, k) = (rng.normal([1, 64, d], 1.0), rng.normal([1, 64, d], 1.0));
        for (i, scale) in [1.0, 1.0 / (d as f32).sqrt()].into_iter().enumerate() {
            let attend = Attend::new(1).scale(scale);
            entropies[i].push(f64::from(attention_entropy(&q, &k, &attend).data()[0]));
            let weights = attention_weights(&q, &k, &attend);
            let slope: f64 =
                weights.data().iter().map(|p| f64::from(p * (1.0 - p))).sum::<f64>() / 64.0;
            slopes[i].push(slope);
        }
    }
    let rows = widths.iter().enumerate().map(|(i, d)| {
        [
            d.to_string(),
            digits(entropies[0][i]),
            digits(entropies[1][i]),
            digits(slopes[0][i]),
            digits(slopes[1][i]),
        ]
    });
    s.table(&["D", "entropy, raw", "entropy, scaled", "Σ p(1−p), raw", "Σ p(1−p), scaled"], rows);
    s.keep("entropy without scaling", &entropies[0]);
    s.keep("entropy with scaling", &entropies[1]);
    s.keep("slope without scaling", &slopes[0]);
    let points = |y: &[f64]| widths.iter().map(|d| *d as f64).zip(y.iter().copied()).collect();
    let mut curve = chart(
        "entropy of the weights",
        "head width D",
        "nats",
        vec![("q·k", points(&entropies[0])), ("q·k/√D", points(&entropies[1]))],
    );
    curve.doublings = true;
    s.chart(curve);
    s.text("Σ p(1 − p) is the trace of softmax's Jacobian: how much gradient comes through. Where the weights \
            are one-hot it is near 0, and the head learns slowly or not at all.");

    s.step("Only with mean 0");
    s.formula("Var(q·k) = D(σ⁴ + 2μ²σ²)     entries independent, mean μ, variance σ²");
    let mut rng = Rng::new(5);
    let mut shifted = || {
        let mut x = rng.normal([400, 1], 1.0);
        x.data_mut().iter_mut().for_each(|x| *x += 3.0);
        x
    };
    let (a, b) = (shifted(), shifted());
    let products: Vec<f64> =
        a.data().iter().flat_map(|a| b.data().iter().map(move |b| f64::from(a * b))).collect();
    s.show("variance with μ = 3, σ = 1, D = 1 (formula: 19)", moments(&products).1);

    s.ask("A head has width 64 and its queries and keys start with a deviation of 0.5 instead of 1. What is \
           the deviation of q·k/√D?");
    let mut rng = Rng::new(9);
    let (q, k) = (rng.normal([128, 64], 0.5), rng.normal([128, 64], 0.5));
    let scores = numbers(&(matmul_transposed(&Var::constant(q), &Var::constant(k)) * 0.125));
    let deviation = moments(&scores).1.sqrt();
    for (claim, because) in [
        (0.25, "Each product has deviation 0.5·0.5, and √D takes care of how many there are."),
        (0.5, "Both factors are halved: 0.5·0.5."),
        (1.0, "√D makes up for the width, not for the size of the entries."),
    ] {
        s.answer(digits(claim), (deviation - claim).abs() < 0.05, because);
    }
    s.wrong(
        "2.8",
        "Var(QKᵀ) = D·σ⁴ for any entries of variance σ².",
        "only with mean 0; else D(σ⁴ + 2μ²σ²).",
    );
    s.wrong("2.9", "σ is the variance.", "σ is the standard deviation.");
}

fn masks(s: &mut Sheet) {
    let scores = [2.0f32, 1.0, 3.0];
    s.step("Hide the last of three keys");
    s.text("The scores are [2, 1, 3], and the third must not be seen. Adding −∞ before softmax is right: its \
            exponential is 0, and the others share all the weight.");
    let added = softmax(&[2.0, 1.0, f32::NEG_INFINITY], 1.0);
    s.show("scores + [0, 0, −∞]", &added);

    s.step("Multiplying goes wrong");
    let times_scores = softmax(&[2.0, 1.0, 0.0], 1.0);
    s.text(
        "Multiply the scores by [1, 1, 0]: the hidden key has the score 0, which is still a score.",
    );
    s.show("softmax(scores·mask)", &times_scores);
    let all = softmax(&scores, 1.0);
    let times_weights: Vec<f64> = all.iter().zip([1.0, 1.0, 0.0]).map(|(w, m)| w * m).collect();
    s.text(
        "Multiply the weights instead: the hidden one is gone, but the others no longer sum to 1.",
    );
    s.show("softmax(scores)·mask", &times_weights);
    s.show("their sum", times_weights.iter().sum::<f64>());

    s.step("Before or after the division by √D");
    s.text("A finite bias, as ALiBi adds, must be added after the scores were divided. Inside it is divided \
            too. With D = 64 a bias of −8 would become −1:");
    let q = Tensor::new([1, 1, 64], &[0.0; 64]);
    let k = Tensor::new([1, 2, 64], &[0.0; 128]);
    let with = |bias: f32| {
        let rule = Bias::new(vec![0.0, bias], [1, 1, 1, 2]);
        numbers(&Var::constant(attention_weights(&q, &k, &Attend::new(1).rule(rule))))
    };
    s.show("bias added after scaling", with(-8.0));
    s.show("the same, divided by √64", with(-1.0));

    s.step("A row that sees nothing");
    s.text("With −10⁹ for −∞ a row where all is hidden has equal scores, and attends to all the padding. With \
            −∞ the formula gives 0/0. Hearken gives zeros, and zero gradients.");
    let finite = softmax(&[0.3 - 1e9, 0.5 - 1e9, -0.2 - 1e9, 0.1 - 1e9], 1.0);
    s.show("four keys hidden with −10⁹", &finite);
    let mut rng = Rng::new(2);
    let x = rng.normal([1, 4, 8], 1.0);
    let rule = Mask::new(vec![false; 16], [1, 1, 4, 4]);
    let none = attention(
        &Var::constant(x.clone()),
        &Var::constant(x.clone()),
        &Var::constant(x.clone()),
        &[],
        &Attend::new(1).rule(rule),
    );
    s.show(
        "largest output of a row that sees nothing",
        none.value().data().iter().fold(0.0f32, |m, x| m.max(x.abs())),
    );

    s.step("The causal mask");
    let weights = attention_weights(&x, &x, &Attend::new(1).rule(Causal::new(4, 4)));
    s.matrix("weights of four tokens that may not look ahead", &weights.reshape([4, 4]));

    s.ask("In a causal model, which weight does the first token give to itself?");
    for (text, claim, because) in [
        ("1", 1.0, "There is nothing else that it may see, whatever the scores are."),
        ("1/4", 0.25, "The other three are hidden: they take no share."),
        ("It depends on its score", -1.0, "Softmax of a single number is 1 for any number."),
    ] {
        let first =
            f64::from(attention_weights(&x, &x, &Attend::new(1).rule(Causal::new(4, 4))).data()[0]);
        s.answer(text, (first - claim).abs() < 1e-6, because);
    }
    s.wrong(
        "2.10",
        "the mask is added before the division by √D.",
        "a finite mask or bias must be added after it.",
    );
    s.wrong(
        "2.11",
        "−10⁹ may stand for −∞.",
        "a row that sees nothing then attends to padding; it must give zeros.",
    );
    s.wrong(
        "3.22",
        "scores.masked_fill(tokens == PAD, …) with a mask (B, S).",
        "it must be shaped (B, 1, 1, S).",
    );
}

fn heads(s: &mut Sheet) {
    s.step("Why heads");
    s.text("One softmax gives one pattern of who looks at whom. Cut the width into twelve parts and each part \
            has a pattern of its own, for the same number of parameters.");
    s.formula("MultiHead(X) = [head₁ … head₁₂]·W_O        headᵢ = softmax(QᵢKᵢᵀ/√D)·Vᵢ");
    let (t, c, h) = (4, 768, 12);
    let d = c / h;
    let mut rng = Rng::new(1);
    let x = Var::constant(rng.normal([t, c], 1.0));
    let mut project = || Var::constant(rng.normal([c, c], 0.02));
    let (q, k, v) = (matmul(&x, &project()), matmul(&x, &project()), matmul(&x, &project()));

    s.step("Split");
    let split = |x: &Var| transpose(&reshape(x.clone(), [t, h, d]), 0, 1); // (H, T, D)
    let (qh, kh, vh) = (split(&q), split(&k), split(&v));
    let scores = matmul_transposed(&qh, &kh); // (H, T, T)
    let weights = softmax_op(scores.clone(), 1.0 / (d as f32).sqrt());
    let mixed = matmul(&weights, &vh); // (H, T, D)
    let joined = reshape(transpose(&mixed, 0, 1), [t, c]);
    let shape = |x: &Var| format!("{:?}", x.shape().dims());
    s.table(
        &["what", "shape"],
        [
            ["X, and Q, K, V".to_owned(), shape(&q)],
            ["Q by heads".to_owned(), shape(&qh)],
            ["scores QKᵀ".to_owned(), shape(&scores)],
            ["weights".to_owned(), shape(&weights)],
            ["weights·V".to_owned(), shape(&mixed)],
            ["joined again".to_owned(), shape(&joined)],
        ],
    );
    for (name, x) in [
        ("shape of Q by heads", &qh),
        ("shape of scores", &scores),
        ("shape of the result", &joined),
    ] {
        s.keep(name, x.shape().dims().iter().map(|n| *n as f64).collect::<Vec<_>>());
    }

    s.step("The kernel does all heads at once");
    let wide = |x: &Var| reshape(x.clone(), [1, t, c]);
    let out = attention(&wide(&q), &wide(&k), &wide(&v), &[], &Attend::new(h));
    s.show("largest difference", difference(out.value().data(), joined.value().data()));
    let rows: Vec<f64> =
        weights.value().data().chunks(t).map(|r| r.iter().map(|x| f64::from(*x)).sum()).collect();
    s.show(
        "smallest and largest sum of a row of weights",
        [rows.iter().copied().fold(2.0, f64::min), rows.iter().copied().fold(0.0, f64::max)],
    );

    s.step("Parameters");
    s.table(
        &["projection", "numbers"],
        [
            ["W_Q, W_K, W_V with 12 heads: 3·12·768·64".to_owned(), digits((3 * h * c * d) as f64)],
            ["the same with one head: 3·768·768".to_owned(), digits((3 * c * c) as f64)],
            ["W_O".to_owned(), digits((c * c) as f64)],
        ],
    );
    s.keep("parameters of twelve heads and of one", [(3 * h * c * d) as f64, (3 * c * c) as f64]);

    s.ask("Someone forgets to move the heads to the front and multiplies (4, 12, 64) by (4, 64, 12). The \
           result is (4, 12, 12). What does it compare?");
    let wrong = matmul_transposed(&reshape(q.clone(), [t, h, d]), &reshape(k.clone(), [t, h, d]));
    let is_heads = wrong.shape().dims() == [t, h, h];
    s.answer(
        "Heads with heads, within each token",
        is_heads,
        "The first dimension is a batch: for every token \
             its twelve queries meet its twelve keys. No token sees another.",
    );
    s.answer("Tokens with tokens, within each head", !is_heads, "That would be (12, 4, 4).");
    s.answer(
        "Nothing: it is an error",
        false,
        "The shapes fit, which is why this mistake is not noticed.",
    );
    s.wrong(
        "4.10",
        "Q, K of shape n×H×D give scores n×H×n.",
        "heads must come first: (H, n, D) → (H, n, n).",
    );
    s.wrong(
        "3.17",
        "many small projections need fewer parameters than one large one.",
        "the number is the same.",
    );
    s.wrong("3.18", "the heads are averaged.", "they are concatenated and projected by W_O.");
}
