//! How alike are two vectors, and what can be looked up by likeness?

use crate::lesson::lesson;
use crate::maths::{bars, chart, difference, digits, list, matrix, moments, numbers, row, softmax};
use crate::{Lesson, Sheet};
use hearken_tensor::ops::linear::linear;
use hearken_tensor::ops::matmul::{matmul, matmul_transposed};
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Tensor, Var};

pub(crate) const LESSONS: &[Lesson] = &[
    lesson!(cosine, "cosine", "Cosine and distance",
        "How alike are cat and dog? Two measures, and when they agree",
        "embeddings of a model" => "inspect.md"),
    lesson!(dimensions, "dimensions", "Why many dimensions are different",
        "Random vectors become orthogonal and equally far apart: measured from 2 to 1,000 dimensions",
        "how weights start" => "models.md"),
    lesson!(lookup, "lookup", "Hard and soft lookup",
        "A dictionary that forgives spelling, a library, a student database, and the temperature τ",
        "how attention chooses" => "models.md"),
    lesson!(three_matrices, "three-matrices", "Why three matrices",
        "XXᵀ is symmetric, QKᵀ is not; and a value is not a key",
        "attention in a model" => "models.md"),
];

/// Cosine and Euclidean distance of two vectors, by products of matrices.
fn compare(a: &[f32], b: &[f32]) -> (f64, f64) {
    let both = Var::constant(Tensor::new([2, a.len()], &[a, b].concat()));
    let products = numbers(&matmul_transposed(&both, &both)); // a·a, a·b, b·a, b·b
    let apart = row(a) - &row(b);
    let square = numbers(&matmul_transposed(&apart, &apart))[0];
    (products[1] / (products[0] * products[3]).sqrt(), square.sqrt())
}

fn cosine(s: &mut Sheet) {
    s.step("Two measures");
    s.text(
        "A vector has a direction and a length. The cosine compares directions only; the distance \
            compares both.",
    );
    s.formula("cos(u, v) = u·v / (‖u‖·‖v‖)        d(u, v) = ‖u − v‖");
    let (cat, dog) = ([0.8, 0.2, 0.1], [0.7, 0.3, 0.2]);
    s.show("cat", &cat.map(f64::from)[..]);
    s.show("dog", &dog.map(f64::from)[..]);
    let (cos, distance) = compare(&cat, &dog);
    s.show("u·v", numbers(&matmul_transposed(&row(&cat), &row(&dog))));
    s.show("cosine", cos);
    s.show("distance", distance);

    s.step("Longer vectors, same direction");
    let twice = cat.map(|x| 2.0 * x);
    let (same, far) = compare(&cat, &twice);
    s.text("Twice the cat has the same direction. The cosine does not see the difference, the distance \
            does. A cosine of 1 means parallel, not equal.");
    s.show("cosine of cat and 2·cat", same);
    s.show("distance of cat and 2·cat", far);

    s.step("For vectors of length 1 both give the same order");
    s.formula("‖u − v‖² = 2 − 2·cos(u, v)      if ‖u‖ = ‖v‖ = 1");
    let unit = |v: &[f32]| -> Vec<f32> {
        let length = v.iter().map(|x| x * x).sum::<f32>().sqrt();
        v.iter().map(|x| x / length).collect()
    };
    let (cos1, distance1) = compare(&unit(&cat), &unit(&dog));
    s.show("distance² of the unit vectors", distance1 * distance1);
    s.show("2 − 2·cosine", 2.0 - 2.0 * cos1);

    s.ask("You search the nearest of a million normalised vectors, once by cosine and once by distance. \
           The two answers");
    let order_agrees = (distance1 * distance1 - (2.0 - 2.0 * cos1)).abs() < 1e-6;
    s.answer(
        "are always the same",
        order_agrees,
        "Distance² is 2 − 2·cos: the largest cosine has the \
             smallest distance.",
    );
    s.answer("differ in high dimensions", !order_agrees, "The formula knows no dimension. What changes in \
             high dimensions is how close all the candidates are to each other, for both measures alike.");
    s.answer("differ if a vector is negative", !order_agrees, "Signs enter both in the same way.");
    s.wrong(
        "2.5",
        "the cosine is 0.97.",
        format!("{}; the document rounds both lengths before it divides.", digits(cos)),
    );
    s.wrong("2.6", "a cosine of 1 means identical.", "it means the same direction.");
}

fn dimensions(s: &mut Sheet) {
    s.step("Two random vectors");
    s.text(
        "Draw pairs of vectors with independent normal numbers and measure their cosine and their \
            distance. In two dimensions anything may happen. In a thousand, almost nothing can.",
    );
    s.formula(
        "cosine:   mean 0, deviation about 1/√d\ndistance: mean about √(2d), deviation about 1",
    );
    let mut rows = Vec::new();
    let (mut deviations, mut spreads) = (Vec::new(), Vec::new());
    for d in [2usize, 10, 100, 1000] {
        let mut rng = Rng::new(d as u64);
        let n = 400;
        let (u, v) = (rng.normal([n, d], 1.0), rng.normal([n, d], 1.0));
        let pairs = u.data().chunks(d).zip(v.data().chunks(d));
        let (cosines, distances): (Vec<f64>, Vec<f64>) = pairs.map(|(u, v)| compare(u, v)).unzip();
        let (_, variance) = moments(&cosines);
        let (mean, spread) = moments(&distances);
        deviations.push(variance.sqrt());
        spreads.push(spread.sqrt() / mean);
        rows.push([
            d.to_string(),
            digits(variance.sqrt()),
            digits(1.0 / (d as f64).sqrt()),
            digits(mean),
            digits((2.0 * d as f64).sqrt()),
            digits(spread.sqrt() / mean),
        ]);
    }
    s.table(&["d", "deviation of cos", "1/√d", "mean distance", "√(2d)", "spread / mean"], rows);
    s.keep("deviation of cosine", &deviations);
    s.keep("relative spread of distance", &spreads);
    let points =
        |y: &[f64]| [2.0, 10.0, 100.0, 1000.0].into_iter().zip(y.iter().copied()).collect();
    let mut curve = chart(
        "both concentrate",
        "dimensions",
        "spread",
        vec![
            ("deviation of the cosine", points(&deviations)),
            ("spread/mean of the distance", points(&spreads)),
        ],
    );
    (curve.logarithmic, curve.doublings) = (true, true);
    s.chart(curve);
    s.text("Both fall with 1/√d. So there is room for very many directions that hardly disturb each other, \
            which is what a model needs; and a likeness that is more than a few times 1/√d is no accident.");

    s.step("A signal among noise");
    let d = 1000;
    let mut rng = Rng::new(7);
    let u = rng.normal([d], 1.0);
    let noise = rng.normal([d], 1.0);
    let near: Vec<f32> = u.data().iter().zip(noise.data()).map(|(u, n)| 0.3 * u + n).collect();
    let (cos, _) = compare(u.data(), &near);
    s.text("A vector that is 0.3 parts u and 1 part noise has this cosine with u, in 1,000 dimensions, where \
            accidents have a deviation of 0.03:");
    s.show("cosine", cos);
    s.show("in deviations", cos * (d as f64).sqrt());

    s.ask("Does the concentration make the cosine a better judge than the distance?");
    let alike = deviations[3] / deviations[1] - spreads[3] / spreads[1];
    s.answer("Yes, since random vectors become orthogonal", alike.abs() > 0.5,
        "Their distances become equal at the same rate: see the table. For unit vectors the two are one.");
    s.answer("No, both concentrate at the same rate", alike.abs() < 0.1,
        "What the cosine ignores is the length. That is a reason to use it, and has nothing to do with the \
         number of dimensions.");
    s.answer(
        "No, the distance is better",
        false,
        "Neither is: for vectors of equal length they give the \
             same order.",
    );
    s.wrong("0.8", "in more than 100 dimensions cosine discriminates better than distance, since vectors are nearly orthogonal.",
        "the concentration hits both.");
}

fn lookup(s: &mut Sheet) {
    s.step("A dictionary that forgives");
    s.text("A dictionary gives something only for a key that is spelt exactly. Give each word a vector, here \
            the counts of its letters, and a misspelt word still finds the nearest key.");
    let keys = ["cat", "dog", "bird"];
    let letters = |word: &str| -> Vec<f32> {
        let mut counts = [0.0; 26];
        for c in word.bytes().filter(u8::is_ascii_lowercase) {
            counts[usize::from(c - b'a')] += 1.0;
        }
        let length = counts.iter().map(|x| x * x).sum::<f32>().sqrt();
        counts.iter().map(|x| x / length).collect()
    };
    let table: Vec<f32> = keys.iter().flat_map(|word| letters(word)).collect();
    let table = Var::constant(Tensor::new([3, 26], &table));
    let queries = ["ct", "catt", "dog"];
    let mut rows = Vec::new();
    for query in queries {
        let scores = matmul_transposed(&row(&letters(query)), &table);
        let weights = softmax(scores.value().data(), 5.0);
        s.keep(format!("weights of {query}"), &weights);
        rows.push([vec![query.to_owned()], weights.iter().map(|w| digits(*w)).collect()].concat());
    }
    s.text("Each query is compared with every key by cosine; softmax with τ = 0.2 makes weights of it:");
    s.table(&["query", "cat", "dog", "bird"], rows);

    s.step("Temperature: from soft to hard");
    s.formula("weights = softmax(scores / τ)        τ → 0: all weight on the best key");
    let scores = [0.1, 0.9, 0.5];
    let mut rows = Vec::new();
    for tau in [10.0f32, 1.0, 0.3, 0.1, 0.01] {
        let weights = softmax(&scores, 1.0 / tau);
        s.keep(format!("τ = {tau}"), &weights);
        rows.push([vec![tau.to_string()], weights.iter().map(|w| digits(*w)).collect()].concat());
    }
    s.table(&["τ", "score 0.1", "score 0.9", "score 0.5"], rows);
    s.text(
        "At τ = 0.01 it is the argmax. But the argmax has no slope, and nothing could be learned \
            through it; softmax has one everywhere.",
    );

    s.step("A library and a student database");
    s.text("A document has a library answer a query with scores [0.1, 0.9, 0.5] and uses them as weights. \
            They sum to 1.5, so what comes out is one and a half books. The softmax of the scores sums to 1.");
    let library = softmax(&scores, 1.0);
    s.show("library", &library);
    let students = softmax(&[0.95, 0.1, 0.3, 0.9], 1.0);
    s.text("The same for its students, whose scores [0.95, 0.1, 0.3, 0.9] sum to 2.25:");
    s.show("students", &students);
    s.bars(bars("weights of the students", &["Alice", "Bob", "Carol", "Dave"], &students));
    s.text("With scores that all lie between 0 and 1, softmax is nearly flat: Bob, who matches hardly at \
            all, still gets 15 %. Attention needs scores with a wider range, or a smaller τ.");

    s.ask("How small must τ be for the best book, 0.9 against 0.5 and 0.1, to get at least 98 %?");
    let best = |tau: f32| softmax(&scores, 1.0 / tau)[1];
    for (tau, larger, because) in [
        (1.0, 2.0, "At τ = 1 it has 47 %."),
        (0.1, 0.15, "A difference of 0.4 is then 4 in the exponent, a ratio of e⁴ ≈ 55."),
        (0.01, 0.1, "That is much smaller than needed: the second best then has a weight of e⁻⁴⁰."),
    ] {
        s.answer(format!("about {tau}"), best(tau) >= 0.98 && best(larger) < 0.98, because);
    }
    s.wrong(
        "3.10",
        "the similarities are used as weights.",
        format!("normalised they are {} and {}.", list(&library), list(&students)),
    );
    s.wrong(
        "2.7",
        "attention computes the argmax search.",
        "it computes a weighted mean; the argmax is its limit for τ → 0.",
    );
}

fn three_matrices(s: &mut Sheet) {
    s.step("Without any matrix");
    s.text("Take the vectors X of three words as queries, keys and values at once. The scores XXᵀ are \
            symmetric: the first looks at the second exactly as much as the second at the first. And every \
            word likes itself.");
    let x = matrix([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]]);
    let plain = matmul_transposed(&x, &x);
    s.matrix("XXᵀ", plain.value());
    let back = transpose(&plain, 0, 1);
    s.show("XXᵀ − (XXᵀ)ᵀ, largest", difference(plain.value().data(), back.value().data()));

    s.step("With W_Q and W_K");
    s.formula("Q = X·W_Q      K = X·W_K      scores = QKᵀ = X·(W_Q·W_Kᵀ)·Xᵀ");
    let wq = matrix([[1.0, 0.0], [0.0, 1.0]]);
    let wk = matrix([[0.0, 1.0], [0.2, 0.0]]); // stored (out, in)
    let (q, k) = (linear(&x, &wq, None), linear(&x, &wk, None));
    let scores = matmul_transposed(&q, &k);
    s.text("Two matrices break the symmetry: an adjective can look for a noun while the noun does not look \
            for adjectives.");
    s.matrix("QKᵀ", scores.value());
    let asymmetry = difference(scores.value().data(), transpose(&scores, 0, 1).value().data());
    s.show("QKᵀ − (QKᵀ)ᵀ, largest", asymmetry);

    s.step("And W_V");
    s.text("The third matrix says what is handed over. A key is made to be found, a value to be used. With \
            V = X a head can only pass on mixtures of what is already there; with W_V it can pass on any part \
            of it.");
    let wv = matrix([[0.0, 0.0], [0.0, 1.0]]);
    let weights = hearken_tensor::ops::softmax::softmax(scores, 1.0 / 2f32.sqrt());
    s.matrix("weights", weights.value());
    s.matrix(
        "weights·V, with a W_V that keeps the second feature only",
        matmul(&weights, &linear(&x, &wv, None)).value(),
    );

    s.step("What it costs");
    s.table(
        &["choice", "parameters for width d", "d = 768"],
        [
            ["Q = K = V = X", "0", "0"],
            ["one shared matrix", "d²", "589,824"],
            ["three matrices", "3d²", "1,769,472"],
        ],
    );

    s.ask("Two different words have the same key. Can a query tell them apart?");
    let same = softmax(&[0.7, 0.7], 1.0);
    let equal = (same[0] - same[1]).abs() < 1e-7;
    s.answer(
        "No: they get the same weight",
        equal,
        "The score is q·k, and k is all it sees of them. Their \
             values may still differ, and the output has the mean of both.",
    );
    s.answer(
        "Yes, if their values differ",
        !equal,
        "Values do not enter the scores. That is the point of \
             keeping them apart.",
    );
    s.answer(
        "Yes, with a large enough query",
        !equal,
        "A longer query sharpens differences between scores; \
             here there is none.",
    );
    s.wrong(
        "3.47",
        "with Q = K = V = X there are d² parameters.",
        "there are none: no matrix is left. d² belongs to one shared projection.",
    );
}
