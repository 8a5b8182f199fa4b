//! From a slope to a network that learns.

use crate::lesson::lesson;
use crate::maths::{chart, difference, digits, gradient, list, matrix, numbers, scalar, tanh};
use crate::{Lesson, Sheet};
use hearken_tensor::ops::linear::linear;
use hearken_tensor::ops::matmul::matmul;
use hearken_tensor::ops::mse::mse;
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::{Param, Role, Tensor, Var};
use hearken_train::{DecayRule, Optimizer, OptimizerConfig};

pub(crate) const LESSONS: &[Lesson] = &[
    lesson!(descent, "descent", "Downhill on x²",
        "A slope, a learning rate and ten steps: when they arrive, when they run away",
        "how a training step uses the gradient" => "train.md"),
    lesson!(flow, "flow", "Gradient descent as a flow",
        "Small steps follow a differential equation; large ones leave it",
        "learning rates and schedules" => "train.md"),
    lesson!(two_variables, "two-variables", "Two variables, one learning rate",
        "The gradient as a vector, and a narrow valley that one learning rate must fit",
        "the optimisers that adapt each direction" => "train.md"),
    lesson!(matrix_form, "matrix-form", "A whole layer at once",
        "Mean squared error of XW + b, and its gradient as one product of matrices",
        "operations with their derivations" => "own-op.md"),
    lesson!(perceptron, "perceptron", "A two-layer perceptron, backward by hand",
        "Every δ computed by hand beside what automatic differentiation gives",
        "how to prove the gradient of an operation of your own" => "own-op.md"),
];

/// Gradient descent with the library's own SGD: the places visited, the first one included.
fn walk(start: f32, lr: f64, steps: usize, f: impl Fn(&Var) -> Var) -> Vec<f64> {
    let x = Param::new("x", Role::Vector, Tensor::new([1], &[start]));
    let sgd = OptimizerConfig::Sgd { momentum: 0.0, nesterov: false, averaged: false, l2: 0.0 };
    let mut optimizer = Optimizer::new(sgd, DecayRule::Hidden, [x.clone()]);
    let mut places = vec![f64::from(start)];
    for _ in 0..steps {
        f(&x.var()).sum().backward();
        optimizer.step(lr, 1.0);
        optimizer.zero_gradients();
        places.push(f64::from(x.value().item()));
    }
    places
}

fn descent(s: &mut Sheet) {
    s.step("What a slope says");
    s.text(
        "The slope of a function tells how much it rises when you take a small step to the right. \
            To go down, step against it. The size of the step is the slope times a number that you \
            choose, the learning rate α.",
    );
    s.formula("f(x) = x²        f′(x) = 2x        x ← x − α·f′(x)");
    let x = scalar(3.0);
    (&x * &x).backward();
    s.text("Hearken finds the slope by itself: it computes x·x, remembers how, and goes back. At x = 3 \
            it says:");
    s.show("f′(3)", gradient(&x).item());

    s.step("Ten steps from x = 3 with α = 0.1");
    let places = walk(3.0, 0.1, 10, |x| x * x);
    let rows = places.iter().enumerate();
    s.table(
        &["step", "x", "f(x)", "slope"],
        rows.map(|(i, x)| [i.to_string(), digits(*x), digits(x * x), digits(2.0 * x)]),
    );
    s.text("Each step multiplies x by 1 − 2α = 0.8, so after ten steps x is 3·0.8¹⁰.");
    s.show("x₁₀", places[10]);
    s.show("f(x₁₀)", places[10] * places[10]);

    s.step("Other learning rates");
    s.text("The factor 1 − 2α decides everything. Between −1 and 1 the walk arrives; at −1 it jumps to \
            and fro for ever; beyond, every step makes it worse.");
    let rates = [0.01, 0.1, 0.5, 1.0, 1.1];
    let walks: Vec<Vec<f64>> = rates.iter().map(|lr| walk(3.0, *lr, 10, |x| x * x)).collect();
    s.table(
        &["α", "factor 1 − 2α", "x after 10 steps"],
        rates
            .iter()
            .zip(&walks)
            .map(|(lr, w)| [lr.to_string(), digits(1.0 - 2.0 * lr), digits(w[10])]),
    );
    s.keep("x₁₀ by α", walks.iter().map(|w| w[10]).collect::<Vec<_>>());
    let names = ["α = 0.01", "α = 0.1", "α = 0.5", "α = 1.0", "α = 1.1"];
    let curves = |which: std::ops::Range<usize>| {
        let points = |w: &Vec<f64>| w.iter().enumerate().map(|(i, x)| (i as f64, *x)).collect();
        which.map(|i| (names[i], points(&walks[i]))).collect()
    };
    s.chart(chart("walks that arrive", "step", "x", curves(0..3)));
    s.chart(chart("walks that do not", "step", "x", curves(3..5)));

    s.ask(
        "With α = 0.5 the walk is at the bottom after one step. Which α does that for f(x) = 5x²?",
    );
    let one_step = |lr: f64| walk(3.0, lr, 1, |x| (x * x) * 5.0)[1];
    for (lr, because) in [
        (0.5, "The slope is now 10x, so α = 0.5 multiplies x by 1 − 5 = −4: it runs away."),
        (0.1, "The slope is 10x, and 1 − 0.1·10 = 0. Steeper functions need smaller steps."),
        (
            2.5,
            "That goes the wrong way: five times the slope needs a fifth of the step, not five times.",
        ),
    ] {
        s.answer(format!("α = {lr}"), one_step(lr).abs() < 1e-6, because);
    }
    s.wrong(
        "2.1",
        "after ten steps x ≈ 0.27 and f ≈ 0.07.",
        format!("x₁₀ = {} and f = {}.", digits(places[10]), digits(places[10] * places[10])),
    );
}

fn flow(s: &mut Sheet) {
    s.step("Steps that become a flow");
    s.text("Make the learning rate smaller and take more steps. In the limit, the point flows: its speed \
            at every moment is minus the gradient. For f(x) = x² this equation can be solved exactly.");
    s.formula("dx/dt = −f′(x) = −2x        x(t) = x(0)·e^(−2t)");
    s.text("Gradient descent with learning rate α is Euler's method for that equation with steps of length \
            α. After a time t it has made t/α steps.");

    s.step("Euler against the exact curve, at t = 1");
    let exact = 3.0 * (-2.0f64).exp();
    s.show("x(1), exact", exact);
    let mut errors = Vec::new();
    let mut rows = Vec::new();
    for steps in [2usize, 5, 10, 20, 40, 80] {
        let lr = 1.0 / steps as f64;
        let x = walk(3.0, lr, steps, |x| x * x)[steps];
        errors.push((x - exact).abs());
        rows.push([digits(lr), steps.to_string(), digits(x), digits((x - exact).abs())]);
    }
    s.table(&["α", "steps", "x", "error"], rows);
    s.text("Halving α halves the error: Euler's method is of first order.");
    s.show("error(α = 0.025) / error(α = 0.0125)", errors[4] / errors[5]);

    s.step("Where the flow and the steps part");
    let euler = |lr: f64| -> Vec<(f64, f64)> {
        let steps = (1.5 / lr).round() as usize;
        let places = walk(3.0, lr, steps, |x| x * x);
        places.iter().enumerate().map(|(i, x)| (i as f64 * lr, *x)).collect()
    };
    let curve = crate::maths::span(0.0, 1.5, 61).map(|t| (t, 3.0 * (-2.0 * t).exp())).collect();
    s.chart(chart(
        "x(t): the flow and two walks",
        "time t",
        "x",
        vec![("exact", curve), ("α = 0.1", euler(0.1)), ("α = 0.75", euler(0.75))],
    ));
    s.text("The flow can never pass the bottom. A walk with α > 0.5 does: at 0.75 it lands on the other \
            side. Whatever is proved for the flow holds for the walk only while α is small against the \
            curvature, here α < 1.");
    s.keep("walk with 0.75", euler(0.75).iter().map(|p| p.1).collect::<Vec<_>>());

    s.ask(
        "You halve the learning rate and want to come equally far down the flow. How many steps?",
    );
    let reached = |steps: usize, lr: f64| walk(3.0, lr, steps, |x| x * x)[steps];
    let goal = reached(10, 0.05);
    for (text, steps, because) in [
        ("As many as before", 10, "Ten steps of half the length cover half the time."),
        ("Twice as many", 20, "Time is steps times α: half the length, twice the steps."),
        (
            "Four times as many",
            40,
            "That covers twice the time: the error falls with α, the time does not \
          grow with its square.",
        ),
    ] {
        let close = (reached(steps, 0.025) - goal).abs() < 0.06;
        s.answer(text, close, because);
    }
}

fn two_variables(s: &mut Sheet) {
    s.step("The gradient");
    s.text("With two variables there are two slopes. Together they are the gradient, a vector that points \
            where the function rises most steeply. One learning rate serves both.");
    s.formula("f(x, y) = x² + y²        ∇f = [2x, 2y]        [x, y] ← [x, y] − α·∇f");
    let p = Var::leaf(Tensor::new([2], &[3.0, -1.0]));
    (&p * &p).sum().backward();
    s.show("∇f at (3, −1)", &gradient(&p));

    s.step("A round bowl and a narrow valley");
    s.text("In the round bowl the walk goes straight to the bottom. In the valley g = x² + 10y² the slope \
            across is ten times the slope along. The learning rate must be small enough for the steep \
            direction, and then the flat one is slow.");
    let walk = |steep: f32, lr: f64| -> Vec<[f64; 2]> {
        let p = Param::new("p", Role::Vector, Tensor::new([2], &[3.0, 1.0]));
        let weights = Var::constant(Tensor::new([2], &[1.0, steep]));
        let sgd = OptimizerConfig::Sgd { momentum: 0.0, nesterov: false, averaged: false, l2: 0.0 };
        let mut optimizer = Optimizer::new(sgd, DecayRule::Hidden, [p.clone()]);
        let mut places = vec![[3.0, 1.0]];
        for _ in 0..20 {
            let x = p.var();
            (&(&x * &x) * &weights).sum().backward();
            optimizer.step(lr, 1.0);
            optimizer.zero_gradients();
            let v = p.value();
            places.push([f64::from(v.data()[0]), f64::from(v.data()[1])]);
        }
        places
    };
    let cases = [
        ("bowl, α = 0.09", 1.0, 0.09),
        ("valley, α = 0.09", 10.0, 0.09),
        ("valley, α = 0.11", 10.0, 0.11),
    ];
    let mut rows = Vec::new();
    let mut curves = Vec::new();
    for (name, steep, lr) in cases {
        let places = walk(steep, lr);
        let [x, y] = places[20];
        s.keep(name, [x, y]);
        rows.push([
            name.to_owned(),
            digits(1.0 - 2.0 * lr),
            digits(1.0 - 2.0 * lr * f64::from(steep)),
            digits(x),
            digits(y),
        ]);
        let distance = |[x, y]: &[f64; 2]| (x * x + y * y).sqrt();
        curves.push((
            name,
            places.iter().enumerate().map(|(i, p)| (i as f64, distance(p))).collect(),
        ));
    }
    s.table(&["walk", "factor of x", "factor of y", "x after 20", "y after 20"], rows);
    s.chart(chart("distance to the bottom", "step", "√(x² + y²)", curves));
    s.text(
        "The ratio of the two curvatures, here 10, is the condition number. Momentum, Adam and \
            normalisation are all answers to it.",
    );

    s.ask("What is the largest α with which the valley x² + 10y² does not run away?");
    let ends = |lr: f64| walk(10.0, lr)[20][1].abs();
    for (lr, text, because) in [
        (
            0.05,
            "0.05",
            "It is safe, but it is not the limit: 1 − 20·0.05 = 0, the best for y alone.",
        ),
        (0.1, "0.1", "1 − 2·10·α reaches −1 there. The steepest direction sets the limit."),
        (
            1.0,
            "1.0",
            "That is the limit of the flat direction; y is multiplied by −19 at every step.",
        ),
    ] {
        let right = ends(lr) <= 1.0 + 1e-3 && ends(lr * 1.05) > 1.5;
        s.answer(text, right, because);
    }
    s.wrong(
        "2.23",
        "the gradient is [2x, 2y], without naming the function.",
        "It belongs to f(x, y) = x² + y².",
    );
}

fn matrix_form(s: &mut Sheet) {
    s.step("All samples at once");
    s.text("A row of X is a sample, a column of W makes one output. One product of matrices predicts all \
            samples, and one gives the gradient of all weights.");
    s.formula("Ŷ = XW + b        L = (1/N) Σᵢ ‖Ŷᵢ − Yᵢ‖²\n∂L/∂W = (2/N)·Xᵀ(Ŷ − Y)        ∂L/∂b = (2/N)·Σᵢ (Ŷᵢ − Yᵢ)");
    let x = matrix([[1.0, 2.0], [0.0, 1.0], [-1.0, 1.0], [2.0, 0.0]]); // (N, 2)
    let w = matrix([[0.5], [-0.5]]); // (2, 1)
    let y = matrix([[1.0], [0.0], [-1.0], [2.0]]);
    s.matrix("X", x.value());
    s.matrix("Y", y.value());

    s.step("By hand");
    let predicted = matmul(&x, &w);
    let residual = predicted.clone() - &y; // (N, 1)
    s.matrix("Ŷ − Y with W = [0.5, −0.5], b = 0", residual.value());
    let by_hand = matmul(&transpose(&x, 0, 1), &residual) * (2.0 / 4.0);
    s.show("(2/N)·Xᵀ(Ŷ − Y)", by_hand.value());

    s.step("By automatic differentiation");
    s.text("The operation mse is the mean of the squares of all numbers; with one output per sample that \
            is the same L. It goes back through the product by itself.");
    mse(&matmul(&x, &w), &y).backward();
    let dw = gradient(&w);
    s.show("∂L/∂W", &dw);
    s.show("largest difference", difference(dw.data(), by_hand.value().data()));

    s.step("Two hundred steps");
    let weight = Param::new("w", Role::Hidden, Tensor::new([1, 2], &[0.5, -0.5]));
    let sgd = OptimizerConfig::Sgd { momentum: 0.0, nesterov: false, averaged: false, l2: 0.0 };
    let mut optimizer = Optimizer::new(sgd, DecayRule::Hidden, [weight.clone()]);
    let mut losses = Vec::new();
    for step in 0..=200 {
        let loss = mse(&linear(&x, &weight.var(), None), &y);
        losses.push((f64::from(step), f64::from(loss.value().item())));
        loss.backward();
        optimizer.step(0.1, 1.0);
        optimizer.zero_gradients();
    }
    s.show("W at the end", &weight.value());
    s.text("The data were made with y = x₁, and that is what it finds.");
    let mut curve = chart("loss", "step", "L", vec![("loss", losses[..60].to_vec())]);
    curve.logarithmic = true;
    s.chart(curve);

    s.ask("The batch becomes ten times as large, with samples like these. What happens to ∂L/∂W?");
    let many = Tensor::new([40, 2], &x.value().data().repeat(10));
    let targets = Tensor::new([40, 1], &y.value().data().repeat(10));
    let big = matrix([[0.5], [-0.5]]);
    mse(&matmul(&Var::constant(many), &big), &Var::constant(targets)).backward();
    let ratio = f64::from(gradient(&big).data()[0] / dw.data()[0]);
    for (text, factor, because) in [
        (
            "It stays as it is",
            1.0,
            "L is a mean: ten times the terms, divided by ten times as many.",
        ),
        (
            "It becomes ten times as large",
            10.0,
            "That would be the gradient of a sum. Here 1/N takes it back, \
          which is why the learning rate need not follow the batch.",
        ),
        ("It becomes a tenth", 0.1, "The 1/N is already in the formula for both batches."),
    ] {
        s.answer(text, (ratio - factor).abs() < 1e-3, because);
    }
}

fn perceptron(s: &mut Sheet) {
    s.step("Forward");
    s.text("Two layers with a bend between them: here tanh, whose slope is 1 − tanh². Three samples, two \
            inputs, two hidden units, one output.");
    s.formula("Z₁ = XW₁ + b₁      A₁ = tanh(Z₁)      Ŷ = A₁W₂ + b₂      L = (1/N) Σ ‖Ŷ − Y‖²");
    let x = matrix([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]);
    let y = matrix([[1.0], [1.0], [0.0]]);
    // Stored as PyTorch does, (outputs, inputs): x·Wᵀ.
    let (w1, b1) = (matrix([[0.5, -0.3], [0.8, 0.2]]), Var::leaf(Tensor::new([2], &[0.1, -0.1])));
    let (w2, b2) = (matrix([[0.7, -0.6]]), Var::leaf(Tensor::new([1], &[0.2])));
    let z1 = linear(&x, &w1, Some(&b1));
    let a1 = tanh(&z1);
    let predicted = linear(&a1, &w2, Some(&b2));
    s.matrix("A₁", a1.value());
    s.matrix("Ŷ", predicted.value());
    let loss = mse(&predicted, &y);
    s.show("L", loss.value().item());

    s.step("Backward by hand");
    s.text("Start at the end. δ₂ is how the loss changes with each output; the factor 2/N comes from the \
            square and the mean. Carry it back through W₂, multiply by the slope of tanh, and you have δ₁.");
    s.formula("δ₂ = (2/N)(Ŷ − Y)              ∂L/∂W₂ = A₁ᵀδ₂     ∂L/∂b₂ = Σ δ₂\nδ₁ = (δ₂W₂ᵀ) ⊙ (1 − A₁²)       ∂L/∂W₁ = Xᵀδ₁      ∂L/∂b₁ = Σ δ₁");
    let n = 3.0;
    let d2 = (predicted.clone() - &y) * (2.0 / n); // (N, 1)
    let dw2 = matmul(&transpose(&d2, 0, 1), &a1); // (1, 2)
    let slope = Var::constant(Tensor::full([3, 2], 1.0)) - &(&a1 * &a1);
    let d1 = &matmul(&d2, &w2) * &slope; // (N, 2)
    let dw1 = matmul(&transpose(&d1, 0, 1), &x); // (2, 2)
    s.matrix("δ₂", d2.value());
    s.matrix("δ₁", d1.value());
    s.matrix("∂L/∂W₂ by hand", dw2.value());
    s.matrix("∂L/∂W₁ by hand", dw1.value());

    s.step("Backward by the machine");
    loss.backward();
    s.matrix("∂L/∂W₂", &gradient(&w2));
    s.matrix("∂L/∂W₁", &gradient(&w1));
    let off = difference(gradient(&w1).data(), dw1.value().data())
        .max(difference(gradient(&w2).data(), dw2.value().data()));
    s.show("largest difference", off);
    s.text("They agree to the last bits of 32-bit numbers. The same walk backward, node by node, trains \
            every model here.");

    s.step("And a third opinion: finite differences");
    let at = |nudge: f32| {
        let mut moved = w1.value().clone();
        moved.data_mut()[0] += nudge;
        let a = tanh(&linear(&x, &Var::constant(moved), Some(&b1)));
        f64::from(mse(&linear(&a, &w2, Some(&b2)), &y).value().item())
    };
    s.formula("∂L/∂w ≈ (L(w + h) − L(w − h)) / 2h");
    s.show("∂L/∂W₁ [0, 0] by differences, h = 0.01", (at(0.01) - at(-0.01)) / 0.02);
    s.show("∂L/∂W₁ [0, 0]", gradient(&w1).data()[0]);

    s.ask("A document drops the factor 2 and uses δ₂ = Ŷ − Y with ∂L/∂W₂ = A₁ᵀδ₂/N. What is its gradient \
           compared with the true one?");
    let theirs = matmul(&transpose(&(predicted.clone() - &y), 0, 1), &a1) * (1.0 / n);
    let ratio = numbers(&theirs)[0] / f64::from(gradient(&w2).data()[0]);
    for (text, factor, because) in [
        (
            "Half of it, everywhere",
            0.5,
            "Training still works, with a learning rate that is really half as \
          large; but a check against finite differences fails.",
        ),
        (
            "The same",
            1.0,
            "The derivative of a square is twice the number. The 2 can be hidden in the \
          definition of the loss, but then the loss must have a ½.",
        ),
        (
            "Half of it in the second layer, a quarter in the first",
            0.25,
            "The factor enters once, at the \
          start, and everything behind it is linear in δ₂: it is a half everywhere.",
        ),
    ] {
        s.answer(text, (ratio - factor).abs() < 1e-3, because);
    }
    s.wrong(
        "2.2",
        "δ₂ = Ŷ − Y for the mean of squares.",
        format!(
            "the factor 2 is missing; here its gradient of W₂ is {} instead of {}.",
            list(&numbers(&theirs)),
            list(&gradient(&w2).data().iter().map(|x| f64::from(*x)).collect::<Vec<_>>())
        ),
    );
    s.wrong(
        "2.3",
        "the drawing has δ₂ ← δ₁ ← ∇W₁.",
        "δ₁ is made from δ₂: the arrows point the other way.",
    );
}
