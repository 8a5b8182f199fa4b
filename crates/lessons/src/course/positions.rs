//! Where does a token stand?

use crate::lesson::lesson;
use crate::maths::{chart, difference, digits, numbers, row, span};
use crate::{Lesson, Sheet};
use hearken_kernels::attention::scores::{Alibi, And, Causal};
use hearken_kernels::rope::Pairing;
use hearken_tensor::ops::attention::{Attend, attention, attention_weights};
use hearken_tensor::ops::matmul::{matmul, matmul_transposed};
use hearken_tensor::ops::rope::rope;
use hearken_tensor::positions::sinusoidal;
use hearken_tensor::rng::Rng;
use hearken_tensor::rope_table::{Scaling, frequencies};
use hearken_tensor::{RopeTable, Tensor, Var};

pub(crate) const LESSONS: &[Lesson] = &[
    lesson!(sinusoids, "sinusoids", "Positions as sines and cosines",
        "Why order must be added, and why PE(p + k) is a matrix times PE(p), proved and shown",
        "positions in a model" => "models.md"),
    lesson!(rotation, "rotation", "Rotation: RoPE",
        "Turn queries and keys by their position, and the score knows how far apart they stand",
        "RoPE and its scaling" => "models.md"),
    lesson!(alibi, "alibi", "ALiBi: a penalty for distance",
        "A straight line added to the scores, one slope per head",
        "numbers added to scores" => "models.md"),
];

fn sinusoids(s: &mut Sheet) {
    s.step("Attention without positions knows no order");
    s.text("Swap two tokens of the input, and the outputs are swapped: nothing else changes. A sentence is a \
            bag of words.");
    let mut rng = Rng::new(3);
    let x = rng.normal([1, 4, 8], 1.0);
    let swap = |x: &Tensor| {
        let d = x.data();
        Tensor::new([1, 4, 8], &[&d[8..16], &d[..8], &d[16..]].concat())
    };
    let run = |x: &Tensor| {
        let x = Var::constant(x.clone());
        attention(&x, &x, &x, &[], &Attend::new(2)).into_value()
    };
    s.show(
        "attention(swapped) − swapped(attention), largest",
        difference(run(&swap(&x)).data(), swap(&run(&x)).data()),
    );
    let causal = |x: &Tensor| {
        let x = Var::constant(x.clone());
        attention(&x, &x, &x, &[], &Attend::new(2).rule(Causal::new(4, 4))).into_value()
    };
    s.text("With a causal mask this no longer holds: the mask itself gives order.");
    s.show(
        "the same with a causal mask",
        difference(causal(&swap(&x)).data(), swap(&causal(&x)).data()),
    );

    s.step("The encoding");
    s.formula("PE(p, 2i) = sin(p·ωᵢ)      PE(p, 2i+1) = cos(p·ωᵢ)      ωᵢ = 10000^(−2i/C)");
    let table = sinusoidal(64, 8);
    let at = |p: usize| &table.data()[8 * p..8 * (p + 1)];
    s.matrix("positions 0 to 3, width 8", &Tensor::new([4, 8], &table.data()[..32]));
    let curve = |i: usize| (0..64).map(|p| (p as f64, f64::from(at(p)[i]))).collect();
    s.chart(chart(
        "four of the eight numbers",
        "position",
        "PE",
        vec![
            ("sin ω₀p", curve(0)),
            ("sin ω₁p", curve(2)),
            ("sin ω₂p", curve(4)),
            ("sin ω₃p", curve(6)),
        ],
    ));

    s.step("A shift is a matrix");
    s.text("The sum formulas of sine and cosine say it: going k further turns each pair by the angle k·ωᵢ, \
            wherever you are. So one matrix per k carries PE(p) to PE(p + k).");
    s.formula(
        "[sin ω(p+k)]   [ cos ωk   sin ωk] [sin ωp]\n[cos ω(p+k)] = [−sin ωk   cos ωk]·[cos ωp]",
    );
    let k = 5;
    let mut shift = vec![0.0f32; 64]; // row vectors: PE(p + k) = PE(p)·T
    for i in 0..4 {
        let angle = k as f64 * 10_000f64.powf(-2.0 * i as f64 / 8.0);
        let (sin, cos) = (angle.sin() as f32, angle.cos() as f32);
        let (a, b) = (2 * i, 2 * i + 1);
        (shift[a * 8 + a], shift[b * 8 + a], shift[a * 8 + b], shift[b * 8 + b]) =
            (cos, sin, -sin, cos);
    }
    let shift = Var::constant(Tensor::new([8, 8], &shift));
    let worst = (0..50)
        .map(|p| difference(matmul(&row(at(p)), &shift).value().data(), at(p + k)))
        .fold(0.0, f64::max);
    s.show("PE(p)·T₅ − PE(p + 5), largest over 50 positions", worst);

    s.step("The product depends on the distance alone");
    s.formula("PE(i)·PE(j) = Σ cos(ω(i − j))");
    let dot = |i: usize, j: usize| numbers(&matmul_transposed(&row(at(i)), &row(at(j))))[0];
    s.show("PE(3)·PE(10), PE(20)·PE(27), PE(50)·PE(57)", [dot(3, 10), dot(20, 27), dot(50, 57)]);
    let points = (0..60).map(|j| (j as f64, dot(0, j))).collect();
    s.chart(chart("PE(0)·PE(j)", "distance j", "product", vec![("PE(0)·PE(j)", points)]));

    s.ask("Does PE(3)·W·PE(10) depend on the distance alone, too, for a learned matrix W?");
    let mut rng = Rng::new(8);
    let w = Var::constant(rng.normal([8, 8], 1.0));
    let through =
        |i: usize, j: usize| numbers(&matmul_transposed(&matmul(&row(at(i)), &w), &row(at(j))))[0];
    let same = (through(3, 10) - through(20, 27)).abs() < 1e-3;
    s.answer("Yes, for any W", same, "Try a random W: PE(3)·W·PE(10) and PE(20)·W·PE(27) differ.");
    s.answer(
        "No, only for special W",
        !same,
        "The property holds for the raw encodings. W must learn to keep \
             it; RoPE builds it in.",
    );
    s.answer("Yes, if W is symmetric", false, "Symmetry only makes it equal in both directions.");
    s.wrong("3.24", "i runs over 0 … C/2.", "0 … C/2 − 1.");
    s.wrong(
        "3.23",
        "without positions [cat, sat, mat] and [mat, cat, sat] are identical.",
        "the outputs are permuted, not identical.",
    );
    s.wrong(
        "4.7",
        "without positions a GPT cannot tell two orders apart.",
        "its causal mask gives order.",
    );
}

fn rotation(s: &mut Sheet) {
    s.step("Turn each pair by its position");
    s.text("RoPE adds nothing to the vectors. It turns each pair of numbers of a query or key by an angle \
            proportional to the position. A product of two turned vectors depends on the difference of the \
            angles.");
    s.formula(
        "(a, b) at position m → (a·cos mθ − b·sin mθ, a·sin mθ + b·cos mθ)\nθᵢ = 10000^(−2i/D)",
    );
    let d = 8;
    let table = RopeTable::new(d, d, 10_000.0, Scaling::None, Pairing::Neighbours, 256);
    let mut rng = Rng::new(4);
    let (q, k) = (rng.normal([1, 1, d], 1.0), rng.normal([1, 1, d], 1.0));
    let turned = |x: &Tensor, m: usize| {
        rope(Var::constant(x.clone()), &table, 1, m).into_value().reshape([1, d])
    };
    let score = |m: usize, n: usize| {
        let (q, k) = (Var::constant(turned(&q, m)), Var::constant(turned(&k, n)));
        numbers(&matmul_transposed(&q, &k))[0]
    };
    s.text("A query at position m and a key at position n, three apart at three places, then two apart:");
    s.show(
        "scores for (m, n) = (5, 2), (45, 42), (205, 202)",
        [score(5, 2), score(45, 42), score(205, 202)],
    );
    s.show("score for (5, 3)", score(5, 3));

    s.step("Lengths stay");
    let norm = |x: &Tensor| x.data().iter().map(|x| f64::from(x * x)).sum::<f64>().sqrt();
    s.show("‖q‖ and ‖q turned by 100 positions‖", [norm(&q), norm(&turned(&q, 100))]);

    s.step("Fast and slow pairs");
    let (plain, _) = frequencies(64, 10_000.0, Scaling::None);
    s.text("With head width 64 there are 32 pairs. The first turns by a radian per position, the last needs \
            47,000 positions for one turn. So some pairs tell neighbours apart, others know roughly where in \
            a long text they are.");
    s.show("θ of the first, the 16th and the last pair", [plain[0], plain[15], plain[31]]);
    s.show(
        "the last pair, if the model's width 768 were used by mistake",
        10_000f64.powf(-2.0 * 31.0 / 768.0),
    );
    s.chart({
        let curve = |i: usize| span(0.0, 60.0, 121).map(|p| (p, (p * plain[i]).cos())).collect();
        chart(
            "cos(mθ) of three pairs",
            "position m",
            "",
            vec![("pair 0", curve(0)), ("pair 8", curve(8)), ("pair 20", curve(20))],
        )
    });

    s.step("Longer texts: slow the clocks down");
    let (linear, _) = frequencies(64, 10_000.0, Scaling::Linear { factor: 4.0 });
    let (ntk, _) = frequencies(64, 10_000.0, Scaling::Ntk { factor: 4.0 });
    s.text("To reach four times the length, linear scaling divides all frequencies by 4. NTK-aware scaling \
            raises the base: the slowest pair is divided by 4, the fastest stays as it is.");
    s.table(
        &["pair", "plain", "linear ÷ 4", "NTK"],
        [0usize, 8, 16, 31]
            .map(|i| [i.to_string(), digits(plain[i]), digits(linear[i]), digits(ntk[i])]),
    );
    s.show("NTK: factor of the slowest pair", plain[31] / ntk[31]);
    s.show("NTK: what the base is multiplied by, 4^(64/62)", 4f64.powf(64.0 / 62.0));

    s.ask("A query at position 7 and a key at position 7 are both moved to position 1,000. Their score");
    let same = (score(7, 7) - score(200, 200)).abs() < 1e-4;
    s.answer(
        "stays the same",
        same,
        "Both are turned by the same angle, and products do not see a common turn.",
    );
    s.answer(
        "becomes smaller: they are far from the start",
        !same,
        "Only the distance between the two counts, \
             and that is 0 in both cases.",
    );
    s.answer("becomes larger", !same, "A rotation keeps lengths and angles.");
    s.wrong("2.13", "θᵢ = 10000^(−2i/d_model).", "the width of a head, not of the model.");
    s.wrong(
        "2.15",
        "base scaling increases the frequency.",
        "it increases the base and lowers the frequencies.",
    );
    s.wrong(
        "2.16",
        "NTK scaling is another method than base scaling.",
        "it is base scaling with α = s^(D/(D−2)).",
    );
}

fn alibi(s: &mut Sheet) {
    s.step("A line instead of an encoding");
    s.text("ALiBi adds nothing to the tokens. It takes something from each score that grows with the distance. \
            Each head has its own slope: steep ones look near, flat ones far.");
    s.formula("score = q·k/√D − m·|i − j|        m = 2^(−8h/H),  h = 1 … H");
    let slopes = Alibi::slopes(8);
    s.show("slopes of 8 heads", &slopes[..]);

    s.step("What the slopes do");
    s.text("Let all q·k be 0, so that only the line counts, and look from the last of 16 tokens:");
    let zero = Tensor::zeros([1, 16, 8 * 4]);
    let rule = And(Causal::new(16, 16), Alibi::new(8, 16, 16));
    let weights = attention_weights(&zero, &zero, &Attend::new(8).rule(rule)); // (1, 8, 16, 16)
    let last = |head: usize| -> Vec<f64> {
        let row = (head * 16 + 15) * 16;
        weights.data()[row..row + 16].iter().map(|x| f64::from(*x)).collect()
    };
    let curve = |head: usize| {
        last(head).into_iter().enumerate().map(|(j, w)| (15.0 - j as f64, w)).rev().collect()
    };
    s.chart(chart(
        "weight by distance",
        "tokens back",
        "weight",
        vec![
            ("head 1, m = 1/2", curve(0)),
            ("head 4, m = 1/16", curve(3)),
            ("head 8, m = 1/256", curve(7)),
        ],
    ));
    let reach =
        |head: usize| last(head).iter().enumerate().map(|(j, w)| (15 - j) as f64 * w).sum::<f64>();
    s.show("mean distance looked at by heads 1, 4 and 8", [reach(0), reach(3), reach(7)]);

    s.step("The ratio of two neighbours is constant");
    let w = last(0);
    s.text("One token further is always e^(−m) times the weight, whatever the position. So the rule is the same \
            for texts longer than those seen in training.");
    s.show("weight(1 back)/weight(0 back) of head 1", w[14] / w[15]);
    s.show("e^(−1/2)", (-0.5f64).exp());

    s.ask("A model was trained on 1,024 tokens and reads 2,048. What is new to an ALiBi head?");
    let long = Alibi::slopes(8);
    let same = long == slopes;
    s.answer("Its slope changes", !same, "The slopes depend on the number of heads only.");
    s.answer(
        "Only larger distances, on the same line",
        same,
        "And steep heads give them no weight anyway.",
    );
    s.answer(
        "Nothing: it sees at most 1,024",
        false,
        "The line has no end. A window would be another rule.",
    );
    s.wrong("2.14", "T5's bias is added to q·k/√D.", "T5 does not divide by √D.");
}
