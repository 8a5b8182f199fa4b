//! How sure a model should be: label smoothing and calibration.

use crate::lesson::lesson;
use crate::maths::{bars, chart, digits, row};
use crate::{Lesson, Sheet};
use hearken_infer::calibration::{
    Binning, Prediction, bins, expected_error, fit_temperature, judge,
};
use hearken_tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken_tensor::ops::linear::linear;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Role, Tensor, Var};
use hearken_train::{DecayRule, Optimizer, OptimizerConfig};

pub(crate) const LESSONS: &[Lesson] = &[
    lesson!(label_smoothing, "label-smoothing", "Label smoothing and its floor",
        "A loss that cannot reach 0, how low it can go, and what it does to confidence",
        "the loss" => "train.md"),
    lesson!(calibration, "calibration", "Calibration: right as often as sure",
        "An overconfident classifier, its reliability diagram, and one temperature that mends it",
        "how well a model predicts" => "evaluate.md"),
];

fn label_smoothing(s: &mut Sheet) {
    s.step("Targets that leave a doubt");
    s.formula("y = (1 − α)·one-hot + α/V");
    s.text("Instead of all probability on the right token, a share α is spread over all V. A model that becomes \
            ever surer is now punished.");
    let options = |label_smoothing| Options { label_smoothing, ..Options::default() };
    let loss = |margin: f32, alpha: f32| {
        let mut z = vec![0.0; 10];
        z[0] = margin;
        f64::from(cross_entropy(row(&z), &[0], options(alpha)).value().item())
    };
    let curve =
        |alpha: f32| (0..=60).map(|i| (f64::from(i) / 4.0, loss(i as f32 / 4.0, alpha))).collect();
    s.chart(chart(
        "loss of a right answer among 10",
        "margin of its logit",
        "nats",
        vec![("α = 0", curve(0.0)), ("α = 0.1", curve(0.1))],
    ));
    let best = (0..=1500)
        .map(|i| f64::from(i) / 100.0)
        .min_by(|a, b| loss(*a as f32, 0.1).total_cmp(&loss(*b as f32, 0.1)))
        .unwrap_or(0.0);
    s.show("best margin with α = 0.1", best);
    s.show("ln((0.9 + 0.01)/0.01)", (0.91f64 / 0.01).ln());

    s.step("The floor");
    s.text("The loss is lowest where the prediction equals the smoothed target, and there it is the target's \
            entropy, not 0. For α = 0.1 and a vocabulary of 37,000, as in the first Transformer:");
    s.formula("floor = −q ln q − (V − 1)·r ln r,   q = 1 − α + α/V,  r = α/V");
    let (alpha, v) = (0.1f64, 37_000usize);
    let (q, r) = (1.0 - alpha + alpha / v as f64, alpha / v as f64);
    let formula = -q * q.ln() - (v - 1) as f64 * r * r.ln();
    let mut z = vec![r.ln() as f32; v];
    z[0] = q.ln() as f32;
    let by_op = f64::from(cross_entropy(row(&z), &[0], options(0.1)).value().item());
    s.show("by the formula", formula);
    s.show("by the operation, at the best logits", by_op);
    s.text("So a training loss of 1.4 with label smoothing may be almost perfect. Validation is measured without.");

    s.step("What it does to confidence");
    s.text("Linear classifiers of four overlapping classes with 40 features, trained on 300 or on 3,000 samples \
         and measured on 2,000 fresh ones. ECE is the mean distance between how sure a model is and how often \
         it is right; the next lesson computes it.");
    let test = clouds(2000, 2);
    let mut rows = Vec::new();
    for samples in [300usize, 3000] {
        let train = clouds(samples, 1);
        for alpha in [0.0f32, 0.1, 0.3] {
            let logits = classifier(&train, &test, alpha);
            let judged: Vec<(Prediction, f64)> =
                logits.chunks(4).zip(&test.1).map(|(z, y)| judge(z, *y as usize, 1.0)).collect();
            let predictions: Vec<Prediction> = judged.iter().map(|j| j.0).collect();
            let n = predictions.len() as f64;
            let accuracy = predictions.iter().filter(|p| p.is_right).count() as f64 / n;
            let confidence = predictions.iter().map(|p| p.confidence).sum::<f64>() / n;
            let error = expected_error(&bins(&predictions, 15, Binning::EqualWidth));
            s.keep(format!("{samples} samples, α = {alpha}"), [accuracy, confidence, error]);
            rows.push([
                digits(samples as f64),
                alpha.to_string(),
                digits(accuracy),
                digits(confidence),
                digits(error),
            ]);
        }
    }
    s.table(&["samples", "α", "accuracy", "mean confidence", "ECE"], rows);
    s.text(
        "Smoothing lowers the confidence. With few samples the model was too sure, and that is a repair; \
         with many it was about right, and smoothing makes it too modest: the error grows.",
    );

    s.ask("With α = 0.1 and V = 10, what probability of the right class gives the lowest loss?");
    let p = best.exp() / (best.exp() + 9.0);
    for (claim, text, because) in [
        (1.0, "1", "Then the other nine, which are given 0.01 each, would cost infinitely much."),
        (
            0.91,
            "0.91",
            "Exactly the target: 0.9 and a tenth of the 0.1 that is spread over all ten.",
        ),
        (0.9, "0.9", "Almost: the right class also gets its share of what is spread."),
    ] {
        s.answer(text, (p - claim).abs() < 2e-3, because);
    }
    s.wrong(
        "0.17",
        "label smoothing improves calibration.",
        "it lowers confidence, which helps a model that is too sure and harms one that is not.",
    );
}

type Samples = (Tensor, Vec<u32>);

/// Features of a sample of the classifiers below.
const WIDTH: usize = 40;

/// Samples of four classes that overlap: clouds of deviation 1 around centres not far apart.
fn clouds(n: usize, seed: u64) -> Samples {
    let centres = Rng::new(5).normal([4, WIDTH], 0.25);
    let mut rng = Rng::new(seed);
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for _ in 0..n {
        let class = rng.below(4);
        let centre = &centres.data()[class * WIDTH..(class + 1) * WIDTH];
        x.extend(centre.iter().map(|c| c + rng.normal_one() as f32));
        y.push(class as u32);
    }
    (Tensor::new([n, WIDTH], &x), y)
}

/// The logits on `test` of a linear classifier after 100 steps on all of `train`.
fn classifier(train: &Samples, test: &Samples, alpha: f32) -> Vec<f32> {
    let (inside, outside) = (Var::constant(train.0.clone()), Var::constant(test.0.clone()));
    let w = Param::new("w", Role::Head, Tensor::zeros([4, WIDTH]));
    let adam =
        OptimizerConfig::Adam { beta1: 0.9, beta2: 0.999, eps: 1e-8, l2: 0.0, beta2_warmup: None };
    let mut optimizer = Optimizer::new(adam, DecayRule::Hidden, [w.clone()]);
    for _ in 0..100 {
        let options = Options { label_smoothing: alpha, ..Options::default() };
        cross_entropy(linear(&inside, &w.var(), None), &train.1, options).backward();
        optimizer.step(0.05, 1.0);
        optimizer.zero_gradients();
    }
    linear(&outside, &w.var(), None).value().data().to_vec()
}

fn calibration(s: &mut Sheet) {
    s.step("Sure and right");
    s.text("A model says 90 % a hundred times. If it is right about ninety times, it is calibrated. Sort its \
            answers into bins by confidence and compare each bin's accuracy with its confidence.");
    s.formula("ECE = Σ (|B|/n)·|accuracy(B) − confidence(B)|        here 10 bins of equal width");

    s.step("An overconfident classifier");
    s.text("A linear classifier of four overlapping classes with 40 features has only 300 samples to learn from: \
            it finds directions that separate these and no others. On 2,000 fresh samples:");
    let (train, held_out, test) = (clouds(300, 1), clouds(1000, 3), clouds(2000, 2));
    let logits = classifier(&train, &test, 0.0);
    let predictions = |temperature: f64| -> Vec<Prediction> {
        logits.chunks(4).zip(&test.1).map(|(z, y)| judge(z, *y as usize, temperature).0).collect()
    };
    let before = predictions(1.0);
    let n = before.len() as f64;
    let accuracy = before.iter().filter(|p| p.is_right).count() as f64 / n;
    s.show("accuracy", accuracy);
    s.show("mean confidence", before.iter().map(|p| p.confidence).sum::<f64>() / n);
    let diagram = bins(&before, 10, Binning::EqualWidth);
    let used: Vec<_> = diagram.iter().filter(|bin| bin.count > 0).collect();
    s.table(
        &["confidence", "accuracy", "answers"],
        used.iter()
            .map(|bin| [digits(bin.confidence), digits(bin.accuracy), bin.count.to_string()]),
    );
    let error = |p: &[Prediction], binning| expected_error(&bins(p, 10, binning));
    s.show("ECE", error(&before, Binning::EqualWidth));

    s.step("One temperature");
    s.formula("p = softmax(z/T),   T minimises the loss on held-out data");
    s.text("Dividing all logits by T changes no answer, only how sure it is. T is fitted on 1,000 samples that \
            neither trained nor test the model.");
    let fitting = classifier(&train, &held_out, 0.0);
    let loss = |t: f64| {
        fitting.chunks(4).zip(&held_out.1).map(|(z, y)| judge(z, *y as usize, t).1).sum::<f64>()
            / 1000.0
    };
    let temperature = fit_temperature(loss);
    s.show("T", temperature);
    let after = predictions(temperature);
    s.show("ECE after", error(&after, Binning::EqualWidth));
    s.show(
        "ECE with bins of equal mass, before and after",
        [error(&before, Binning::EqualMass), error(&after, Binning::EqualMass)],
    );
    s.show("accuracy after", after.iter().filter(|p| p.is_right).count() as f64 / n);
    let points = |p: &[Prediction]| {
        bins(p, 10, Binning::EqualWidth)
            .into_iter()
            .filter(|bin| bin.count >= 10)
            .map(|bin| (bin.confidence, bin.accuracy))
            .collect()
    };
    s.chart(chart(
        "reliability (bins with 10 answers or more)",
        "confidence",
        "accuracy",
        vec![
            ("before", points(&before)),
            ("after", points(&after)),
            ("ideal", vec![(0.25, 0.25), (1.0, 1.0)]),
        ],
    ));

    s.step("Which way is too sure?");
    s.bars(bars(
        "loss on held-out data by temperature",
        &["T = 0.5", "T = 1", "T = 2", "T = 4", "T = 8"],
        &[0.5, 1.0, 2.0, 4.0, 8.0].map(loss),
    ));

    s.ask("A fitted temperature of 0.7 means that the model was");
    let too_sure = temperature > 1.0
        && error(&before, Binning::EqualWidth) > error(&after, Binning::EqualWidth);
    s.answer("too sure", !too_sure, "Dividing by 0.7 makes logits larger: it needs to be surer. Ours, which was too sure, has T > 1.");
    s.answer(
        "too modest",
        too_sure,
        "T < 1 sharpens. The overconfident model above needed a T above 1.",
    );
    s.answer(
        "70 % accurate",
        false,
        "The temperature says nothing about accuracy; it changes no answer.",
    );
}
