//! What a Transformer block is made of.

use crate::lesson::lesson;
use crate::maths::{chart, difference, digits, gradient, matrix, numbers, row, span, tanh};
use crate::{Lesson, Sheet};
use hearken_nn::presets;
use hearken_tensor::ops::activations::{activate, gelu, relu};
use hearken_tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken_tensor::ops::embedding::embedding;
use hearken_tensor::ops::feed_forward::feed_forward;
use hearken_tensor::ops::layer_norm::layer_norm;
use hearken_tensor::ops::linear::linear;
use hearken_tensor::ops::matmul::{matmul, matmul_transposed};
use hearken_tensor::ops::rms_norm::rms_norm;
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Activation, Tensor, Var};

pub(crate) const LESSONS: &[Lesson] = &[
    lesson!(residuals, "residuals", "Residual connections as Euler steps",
        "h + F(h) follows a differential equation, and lets the gradient through 50 layers",
        "blocks and residual scaling" => "models.md"),
    lesson!(norms, "norms", "LayerNorm against BatchNorm",
        "Over the features of a token, or over the batch: what a neighbour may change",
        "norms in a model" => "models.md"),
    lesson!(bend, "gelu", "GELU against ReLU",
        "Two bends, their slopes, and what Φ(x) keeps",
        "feed-forward layers" => "models.md"),
    lesson!(one_by_one, "feed-forward", "The feed-forward layer is a 1×1 convolution",
        "The same weights at every position, nothing mixed between them; and what it costs",
        "what a model costs" => "plan.md"),
    lesson!(tying, "tying", "One table for input and output",
        "A tied embedding gets its gradient from two sides, and they add up",
        "biases and the head" => "models.md"),
];

fn residuals(s: &mut Sheet) {
    s.step("A step and a layer are the same formula");
    s.formula("layer: h ← h + F(h)        Euler: h ← h + Δt·F(h)   for   dh/dt = F(h)");
    s.text("Take F(h) = h·A with a matrix that turns: the exact solution after time 1 is a rotation by one \
            radian. A network of L layers that each add F(h)/L is Euler's method with L steps.");
    let a = matrix([[0.0, 1.0], [-1.0, 0.0]]); // row vectors: turns to the left
    let exact = [1f32.cos(), 1f32.sin()];
    let mut rows = Vec::new();
    let mut errors = Vec::new();
    for layers in [1usize, 2, 4, 8, 16, 32, 64] {
        let mut h = row(&[1.0, 0.0]);
        for _ in 0..layers {
            h = &h + matmul(&h, &a) * (1.0 / layers as f32);
        }
        let error = difference(h.value().data(), &exact);
        errors.push(error);
        rows.push([
            layers.to_string(),
            digits(numbers(&h)[0]),
            digits(numbers(&h)[1]),
            digits(error),
        ]);
    }
    s.table(&["layers", "h₁", "h₂", "distance to (cos 1, sin 1)"], rows);
    s.keep("errors", &errors);
    s.text("Twice the layers, half the error. Seen like this, depth is resolution, and a layer need only say \
            what to change.");

    s.step("The gradient through 50 layers");
    s.formula("∂h_L/∂h₀ = Π F′        against        Π (1 + F′)");
    let mut rng = Rng::new(11);
    let weights: Vec<Var> = (0..50).map(|_| Var::constant(rng.normal([16, 16], 0.15))).collect();
    let start = rng.normal([1, 16], 1.0);
    // The gradient at the input after each number of layers, every time from a fresh start.
    let through = |residual: bool, layers: usize| {
        let x = Var::leaf(start.clone());
        let end = weights[..layers].iter().fold(x.clone(), |h, w| {
            let f = tanh(&matmul(&h, w));
            if residual { &h + f * 0.2 } else { f }
        });
        end.sum().backward();
        gradient(&x).data().iter().map(|g| f64::from(g * g)).sum::<f64>().sqrt()
    };
    let all = |residual| (1..=50).map(|layers| through(residual, layers)).collect::<Vec<f64>>();
    let (plain, with) = (all(false), all(true));
    s.show("norm of the gradient at the input, 50 layers, plain", plain[49]);
    s.show("the same with residual connections", with[49]);
    let points = |y: &[f64]| y.iter().enumerate().map(|(i, y)| ((i + 1) as f64, *y)).collect();
    let mut curve = chart(
        "gradient that reaches the input",
        "layers",
        "norm",
        vec![("f(h)", points(&plain)), ("h + 0.2·f(h)", points(&with))],
    );
    curve.logarithmic = true;
    s.chart(curve);

    s.step("It can still vanish");
    let x = row(&[2.0]);
    (&x + -&x).sum().backward();
    s.text("The 1 in 1 + F′ is no guarantee. With F(x) = −x the sum is always 0, and so is its gradient:");
    s.show("gradient of x + F(x), F(x) = −x", gradient(&x).item());

    s.ask("You double the number of layers of a trained residual network by doing each layer twice. To stay \
           on the same curve,");
    let twice = |factor: f32| {
        let mut h = row(&[1.0, 0.0]);
        for _ in 0..16 {
            h = &h + matmul(&h, &a) * (factor / 8.0);
        }
        difference(h.value().data(), &exact)
    };
    s.answer(
        "each must add half as much",
        twice(0.5) < twice(1.0),
        "Twice the steps of half the length cover \
             the same time, as with learning rates.",
    );
    s.answer(
        "nothing must change",
        twice(1.0) < twice(0.5),
        "Then the time doubles: here the vector would \
             turn by two radians.",
    );
    s.answer(
        "each must add twice as much",
        twice(2.0) < twice(0.5),
        "That makes the time four times as long.",
    );
    s.wrong("3.28", "the +1 ensures that gradients cannot vanish.", "F(x) = −x gives 1 + F′ = 0.");
    s.wrong("3.25", "f(x) = x + FFN(x + Attention(x)).", "z = x + Attention(x), then z + FFN(z).");
}

fn norms(s: &mut Sheet) {
    let batch = matrix([[1.0, 2.0, 6.0], [0.0, 4.0, 8.0], [2.0, 3.0, 4.0], [5.0, 5.0, 11.0]]);
    s.step("Across the features of one token");
    s.formula("LayerNorm(x) = γ ⊙ (x − μ)/√(σ² + ε) + β        μ, σ over the features");
    s.matrix("four tokens of width 3", batch.value());
    let layer = layer_norm(&batch, None, None, 1e-5);
    s.matrix("LayerNorm: each row has mean 0 and variance 1", layer.value());

    s.step("Across the batch");
    s.text("BatchNorm takes mean and variance of each feature over all tokens of the batch. It is the same \
            operation on the transposed matrix.");
    let across = |x: &Var| transpose(&layer_norm(&transpose(x, 0, 1), None, None, 1e-5), 0, 1);
    s.matrix("BatchNorm: each column has mean 0 and variance 1", across(&batch).value());

    s.step("A neighbour changes");
    let mut other = batch.value().clone();
    other.data_mut()[9..].copy_from_slice(&[50.0, -50.0, 0.0]);
    let other = Var::constant(other);
    let first = |x: &Var| x.value().data()[..3].to_vec();
    s.text("Replace the last token by [50, −50, 0] and look at the first one:");
    let layer_change = difference(&first(&layer), &first(&layer_norm(&other, None, None, 1e-5)));
    let batch_change = difference(&first(&across(&batch)), &first(&across(&other)));
    s.show("change under LayerNorm", layer_change);
    s.show("change under BatchNorm", batch_change);
    s.text("With LayerNorm a token's value does not depend on who else is in the batch, on its size, or on \
            padding, and it is the same in training and in use.");

    s.step("RMSNorm, and where ε belongs");
    s.matrix("RMSNorm: mean square 1, the mean stays", rms_norm(&batch, None, 1e-5).value());
    let tiny = row(&[-1e-3, 1e-3]);
    let right = numbers(&layer_norm(&tiny, None, None, 1e-5))[1] / 1e-3;
    s.text("A row with σ = 0.001 and ε = 0.00001. Divided by √(σ² + ε) it is multiplied by 302, divided by \
            σ + ε by 990:");
    s.show("factor of LayerNorm", right);
    s.show("1/(σ + ε)", 1.0 / (1e-3 + 1e-5));

    s.ask("You multiply the input of a LayerNorm by 10. The output");
    let ten = difference(
        layer_norm(&(&batch * 10.0), None, None, 1e-5).value().data(),
        layer.value().data(),
    );
    s.answer(
        "stays practically the same",
        ten < 1e-3,
        "Mean and deviation grow with it. Only ε notices.",
    );
    s.answer(
        "is ten times as large",
        ten > 1.0,
        "It is divided by a deviation that is ten times as large.",
    );
    s.answer("depends on the batch", false, "That is BatchNorm.");
    s.wrong(
        "3.29",
        "LayerNorm divides by σ + ε.",
        format!(
            "by √(σ² + ε): a factor of {} against {}.",
            digits(right.round()),
            digits((1.0f64 / (1e-3 + 1e-5)).round())
        ),
    );
}

fn bend(s: &mut Sheet) {
    let xs: Vec<f32> = span(-3.0, 3.0, 121).map(|x| x as f32).collect();
    let curve = |f: Activation| {
        let x = Var::leaf(Tensor::new([xs.len()], &xs));
        let y = activate(x.clone(), f);
        y.sum().backward();
        let points = |t: &Tensor| {
            xs.iter().zip(t.data()).map(|(x, y)| (f64::from(*x), f64::from(*y))).collect::<Vec<_>>()
        };
        (points(y.value()), points(&gradient(&x)))
    };
    s.step("Two bends");
    s.formula(
        "ReLU(x) = max(0, x)        GELU(x) = x·Φ(x)\nΦ(x): share of a normal distribution below x",
    );
    let (relu_curve, relu_slope) = curve(Activation::Relu);
    let (gelu_curve, gelu_slope) = curve(Activation::Gelu);
    s.chart(chart("the functions", "x", "f(x)", vec![("ReLU", relu_curve), ("GELU", gelu_curve)]));
    let at = |x: f32| f64::from(gelu(Var::constant(Tensor::scalar(x))).value().item());
    s.show(
        "GELU(−3), GELU(−1), GELU(0), GELU(1), GELU(3)",
        [at(-3.0), at(-1.0), at(0.0), at(1.0), at(3.0)],
    );

    s.step("What Φ keeps");
    s.text("GELU multiplies x by the chance that a normal number is below it. Large inputs are kept, small ones \
            dropped; nothing special happens near the mean except that the chance is ½.");
    s.show("Φ(−3), Φ(−1), Φ(1), Φ(3)", [at(-3.0) / -3.0, at(-1.0) / -1.0, at(1.0), at(3.0) / 3.0]);

    s.step("The slopes");
    s.chart(chart(
        "their slopes, by automatic differentiation",
        "x",
        "f′(x)",
        vec![("ReLU", relu_slope), ("GELU", gelu_slope.clone())],
    ));
    s.text("ReLU's slope jumps from 0 to 1; a unit that is below 0 for every input never learns again. GELU's \
            slope is continuous, even a little above 1 for x near 1.4 and below 0 for x < −0.75.");
    let steepest =
        gelu_slope.iter().copied().fold((0.0, 0.0), |best, p| if p.1 > best.1 { p } else { best });
    s.show("steepest point of GELU and its slope", [steepest.0, steepest.1]);

    s.step("The approximation of GPT-2");
    let tanh_form = activate(Var::constant(Tensor::new([xs.len()], &xs)), Activation::GeluTanh);
    let exact = activate(Var::constant(Tensor::new([xs.len()], &xs)), Activation::Gelu);
    s.text("GPT-2 computes Φ with a tanh. The largest difference on −3 … 3:");
    s.show("difference", difference(tanh_form.value().data(), exact.value().data()));

    s.ask("Is there an x with GELU(x) < ReLU(x)?");
    let below = xs
        .iter()
        .any(|x| at(*x) < f64::from(relu(Var::constant(Tensor::scalar(*x))).value().item()) - 1e-6);
    let above = xs.iter().any(|x| at(*x) > f64::from(x.max(0.0)) + 1e-6);
    s.answer(
        "Yes: everywhere but at 0",
        below && !above,
        "For x > 0 it is x·Φ(x) < x; for x < 0 it is negative, \
             and ReLU is 0.",
    );
    s.answer(
        "No: GELU is a smooth ReLU from above",
        above,
        "It lies below; softplus is the smooth one from above.",
    );
    s.answer("Only for x < 0", !below, "For x > 0 also: Φ(1) = 0.84, so GELU(1) = 0.84 < 1.");
    s.wrong(
        "2.17",
        "inputs near the mean of the normal survive most likely.",
        "large inputs do: with probability Φ(x).",
    );
}

fn one_by_one(s: &mut Sheet) {
    s.step("The same at every position");
    s.formula("FFN(x) = max(0, xW₁ + b₁)·W₂ + b₂");
    s.text("The layer sees one token at a time. A convolution with a kernel of length 1 over a sequence drawn \
            as an image of one row does the same: channels are mixed, positions are not.");
    let mut rng = Rng::new(6);
    let (n, c, f) = (5, 8, 32);
    let x = Var::constant(rng.normal([n, c], 1.0));
    let (up, down) =
        (Var::constant(rng.normal([f, c], 0.3)), Var::constant(rng.normal([c, f], 0.3)));
    let out = feed_forward(&x, &up, Activation::Relu, &down, None);
    // Channels first, as convolutions have it: (C, n).
    let channels = transpose(&x, 0, 1);
    let hidden = relu(matmul(&up, &channels)); // (F, n): y[k, i] = Σ_c W[k, c]·x[c, i]
    let conv = transpose(&matmul(&down, &hidden), 0, 1);
    s.show(
        "FFN − two 1×1 convolutions, largest difference",
        difference(out.value().data(), conv.value().data()),
    );

    s.step("Nothing is mixed, and a shift stays a shift");
    let mut changed = x.value().clone();
    changed.data_mut()[..c].fill(9.0);
    let after = feed_forward(&Var::constant(changed), &up, Activation::Relu, &down, None);
    s.text("Change the first token: the other four outputs do not move.");
    s.show(
        "change of the other outputs",
        difference(&after.value().data()[c..], &out.value().data()[c..]),
    );
    let rolled: Vec<f32> =
        [&x.value().data()[(n - 1) * c..], &x.value().data()[..(n - 1) * c]].concat();
    let rolled = feed_forward(
        &Var::constant(Tensor::new([n, c], &rolled)),
        &up,
        Activation::Relu,
        &down,
        None,
    );
    s.text("Move all tokens one place on, and the outputs move one place on:");
    s.show(
        "difference",
        difference(&rolled.value().data()[c..], &out.value().data()[..(n - 1) * c]),
    );

    s.step("What it costs");
    let count = |c: usize, f: usize| (2 * c * f, 2 * c * f + c + f);
    let (plain, with) = count(512, 2048);
    let (gpt, gpt_with) = count(768, 3072);
    s.table(
        &["widths", "without biases", "with biases"],
        [
            ["512 → 2,048 → 512".to_owned(), digits(plain as f64), digits(with as f64)],
            ["768 → 3,072 → 768, GPT-2".to_owned(), digits(gpt as f64), digits(gpt_with as f64)],
        ],
    );
    let config = presets::model_of(presets::find("gpt2-small").expect("a preset"), "gpt2-small")
        .expect("a valid preset");
    let plan = crate::maths::cost(&config, 128);
    let part = plan
        .parts
        .iter()
        .find(|part| part.name == "feed-forward")
        .map_or(0, |part| part.parameters);
    s.show("feed-forward layers of GPT-2, counted by the planner, per layer", part / 12);
    s.show("their share of all parameters", part as f64 / plan.parameters() as f64);
    s.keep("GPT-2's layer without biases", gpt);
    s.text(
        "Two thirds of a block's matrices, but 46 % of the whole model: the embedding counts, too.",
    );

    s.ask("A sequence becomes twice as long. The parameters of the feed-forward layer");
    let same = part / 12 == gpt_with as u64;
    s.answer(
        "stay the same",
        same,
        "There is one pair of matrices for all positions. The arithmetic doubles.",
    );
    s.answer("double", !same, "Then a model could only read texts of the length it was built for.");
    s.answer(
        "grow fourfold",
        !same,
        "Quadratic growth is that of attention's scores, and those are not parameters.",
    );
    s.wrong(
        "3.21",
        "its parameters are 2·d_model·d_ff.",
        format!(
            "with the biases of the formula {}, not {}.",
            digits(with as f64),
            digits(plain as f64)
        ),
    );
    s.wrong(
        "4.15",
        "it holds two thirds of the model's parameters.",
        "two thirds of a block's; 46 % of the GPT-2 described.",
    );
    s.wrong("3.20", "y(i, j) = Σ W(c, k)·x(i, j, c).", "the left side needs the channel k.");
}

fn tying(s: &mut Sheet) {
    s.step("Two uses of one table");
    s.text("A language model looks tokens up in a table E at the beginning and compares its result with every \
            token at the end. Tying uses the same table for both: it saves V·C parameters, 38.6 million in \
            GPT-2.");
    s.formula("h = f(E[token])        logits = h·Eᵀ");
    let table = || matrix([[0.5, -0.2], [0.1, 0.8], [-0.6, 0.3]]); // (V, C)
    let w = Var::constant(Tensor::new([2, 2], &[0.9, 0.4, -0.3, 1.1]));
    let loss = |input: &Var, output: &Var| {
        let h = linear(&embedding(input, &[0, 2], [2]), &w, None); // (T, C)
        cross_entropy(matmul_transposed(&h, output), &[1, 0], Options::default())
    };
    s.matrix("E: three tokens of width 2", table().value());

    s.step("The gradient has two parts");
    let e = table();
    loss(&e, &e).backward();
    s.matrix("∂L/∂E, tied", &gradient(&e));
    let (input, output) = (table(), table());
    loss(&input, &output).backward();
    s.matrix("part from looking up: only rows of tokens that occur", &gradient(&input));
    s.matrix("part from the head: every row", &gradient(&output));
    let sum: Vec<f32> =
        gradient(&input).data().iter().zip(gradient(&output).data()).map(|(a, b)| a + b).collect();
    s.show("tied − (both parts added), largest", difference(gradient(&e).data(), &sum));

    s.step("Why it matters");
    s.text("A token that does not occur in the text gets no gradient as an input. As an output every token gets \
            one, at every position: it is pushed away from what came instead. Forgetting one of the two parts \
            is an error that training hides.");
    s.show("V·C of GPT-2", 50_257usize * 768);

    s.ask("Token 1 never occurs in the input. Its row of the tied ∂L/∂E is");
    let row_in = gradient(&input).data()[2..4].iter().all(|x| *x == 0.0);
    let row_all = gradient(&e).data()[2..4].iter().all(|x| *x == 0.0);
    s.answer(
        "zero",
        row_in && row_all,
        "The looked-up part is zero, but the head compares with all rows.",
    );
    s.answer(
        "what the head gives it",
        row_in && !row_all,
        "Only that part is left, and it is not zero.",
    );
    s.answer(
        "undefined",
        false,
        "A row that is not used has a gradient of zero, in each part by itself.",
    );
    s.wrong(
        "4.25",
        "memory of O(N·d²) for parameters.",
        "and V·d for the embedding: 38.6 of GPT-2's 124.4 million.",
    );
}
