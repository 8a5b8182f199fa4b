//! From scores to probabilities, and a loss for them.

use crate::lesson::lesson;
use crate::maths::{bars, chart, digits, gradient, list, row, softmax as soft, span};
use crate::{Lesson, Sheet};
use hearken_tensor::ops::cross_entropy::{Options, cross_entropy};

use hearken_tensor::{HalfTensor, Storage, Tensor};

pub(crate) const LESSONS: &[Lesson] = &[
    lesson!(softmax, "softmax", "Softmax, cross-entropy and p − y",
        "Scores become probabilities; the gradient of the loss is the error itself",
        "what the loss means" => "evaluate.md"),
    lesson!(overflow, "overflow", "Log-sum-exp: the same numbers without overflow",
        "e¹⁰⁰⁰ is no number, and yet its softmax is; scores of ±10,000 and 16 bits",
        "training with 16-bit numbers" => "train.md"),
];

fn softmax(s: &mut Sheet) {
    s.step("From scores to probabilities");
    s.text(
        "A model gives each choice a score, a logit, which may be any number. Softmax makes them \
            positive and lets them sum to 1.",
    );
    s.formula("pᵢ = e^zᵢ / Σⱼ e^zⱼ");
    let scores = [2.1, 0.3, -0.5, 1.8];
    let p = soft(&scores, 1.0);
    s.text("For the scores [2.1, 0.3, −0.5, 1.8] the operation that attention uses gives:");
    s.show("softmax", &p);
    s.show("their sum", p.iter().sum::<f64>());
    s.bars(bars("probability of each score", &["2.1", "0.3", "−0.5", "1.8"], &p));
    s.text("Only differences matter: adding 5 to all scores changes nothing. Multiplying does: twice the \
            scores are a sharper choice.");
    s.show("softmax of scores + 5", soft(&scores.map(|z| z + 5.0), 1.0));
    s.show("softmax of 2·scores", soft(&scores, 2.0));

    s.step("Cross-entropy");
    s.text("The loss of a prediction is −ln of the probability that it gave to what really came. Sure and \
            right costs almost nothing; sure and wrong costs much.");
    s.formula("L = −Σᵢ yᵢ ln pᵢ = −ln p(right)");
    let loss = |p: f32| {
        let z = row(&[p.ln(), (1.0 - p).ln()]); // the softmax of ln p is p
        f64::from(cross_entropy(z, &[0], Options::default()).value().item())
    };
    s.show("−ln 0.9", loss(0.9));
    s.show("−ln 0.01", loss(0.01));
    let curve = span(0.01, 0.99, 80).map(|p| (p, loss(p as f32))).collect();
    s.chart(chart("loss", "probability given to what came", "nats", vec![("−ln p", curve)]));

    s.step("The gradient is p − y");
    let z = row(&scores);
    cross_entropy(z.clone(), &[3], Options::default()).backward();
    let dz = gradient(&z);
    s.text(
        "Let the last choice be right, y = [0, 0, 0, 1]. Going back from the loss to the scores:",
    );
    s.show("∂L/∂z", &dz);
    let y = [0.0, 0.0, 0.0, 1.0];
    let error: Vec<f64> = p.iter().zip(y).map(|(p, y)| p - y).collect();
    s.show("p − y", &error);
    s.text("They are the same. What got too much probability is pushed down by the excess, what came is \
            pushed up by what it lacks. The pushes sum to 0.");
    let off =
        dz.data().iter().zip(&error).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
    s.show("largest difference", off);

    s.ask("A model has two choices and gives 0.5 to each. You add 1 to the first score. Its probability?");
    let new = soft(&[1.0, 0.0], 1.0)[0];
    for (claim, because) in [
        (
            0.7311,
            "e/(e + 1): a difference of 1 in the scores is a ratio of e in the probabilities.",
        ),
        (1.0, "Softmax never gives 1 for finite scores: e^z is never 0."),
        (0.75, "Close, but it is not linear. The ratio of the two is e, and e/(1 + e) is not ¾."),
    ] {
        s.answer(digits(claim), (new - claim).abs() < 1e-4, because);
    }
    s.wrong(
        "3.12",
        "the softmax of [2.1, 0.3, −0.5, 1.8] is [0.58, 0.10, 0.04, 0.28].",
        format!("it is {}.", list(&p)),
    );
    s.wrong(
        "4.21",
        "∂L/∂logits = probs − targets, for a mean over n positions.",
        "each position's p − y is divided by n.",
    );
}

fn overflow(s: &mut Sheet) {
    s.step("Where the formula breaks");
    s.text("32-bit numbers end near 3.4·10³⁸, and e^89 is beyond. The formula for softmax, computed as it is \
            written, gives ∞/∞.");
    let naive = |z: &[f32]| -> Vec<f64> {
        let e: Vec<f32> = z.iter().map(|z| z.exp()).collect();
        let sum: f32 = e.iter().sum();
        e.iter().map(|e| f64::from(e / sum)).collect()
    };
    let z = [1000.0f32, 999.0, 990.0];
    s.show("as written, for [1000, 999, 990]", naive(&z));

    s.step("Subtract the largest first");
    s.formula("ln Σ e^zᵢ = c + ln Σ e^(zᵢ − c),   c = max z");
    s.text("Subtracting the same number from all scores does not change the softmax, and then the largest \
            exponent is 0. Nothing can overflow; what underflows was 0 anyway.");
    s.show("Hearken's softmax", soft(&z, 1.0));

    s.step("Scores of ±10,000");
    let cases: [(&str, Vec<f32>, u32); 4] = [
        ("[10⁴, −10⁴], right", vec![1e4, -1e4], 0),
        ("[10⁴, −10⁴], wrong", vec![1e4, -1e4], 1),
        ("[−10⁴, −10⁴]", vec![-1e4, -1e4], 0),
        ("[10⁴, 10⁴ − 1]", vec![1e4, 1e4 - 1.0], 1),
    ];
    let mut rows = Vec::new();
    let mut losses = Vec::new();
    for (name, z, target) in cases {
        let leaf = row(&z);
        let loss = cross_entropy(leaf.clone(), &[target], Options::default());
        loss.backward();
        let dz: Vec<f64> = gradient(&leaf).data().iter().map(|x| f64::from(*x)).collect();
        losses.push(f64::from(loss.value().item()));
        rows.push([
            name.to_owned(),
            list(&soft(&z, 1.0)),
            digits(losses[losses.len() - 1]),
            list(&dz),
        ]);
    }
    s.table(&["scores", "softmax", "loss", "gradient"], rows);
    s.keep("losses at ±10⁴", &losses);
    s.text("The loss of a certain mistake is 20,000 nats, a finite number with a finite gradient.");

    s.step("16 bits");
    s.text("bfloat16 has eight bits of precision, half float eleven, but ends at 65,504. Scores of 10,000 \
            are stored with steps of 64 and of 8: neighbours that differ by 1 become equal. So scores and \
            sums are kept in 32 bits, and 16 bits are for storage.");
    let stored =
        |storage| HalfTensor::new(&Tensor::new([2], &[10_000.0, 9_999.0]), storage).widen();
    let (bf16, f16) = (stored(Storage::Bf16), stored(Storage::F16));
    s.show("10,000 and 9,999 in bfloat16", &bf16);
    s.show("10,000 and 9,999 in half float", &f16);
    s.show("10⁶ in half float", &HalfTensor::new(&Tensor::new([1], &[1e6]), Storage::F16).widen());

    s.ask("A document hides scores by adding −10⁹ to them. In half float that number is");
    let hidden = HalfTensor::new(&Tensor::new([1], &[-1e9]), Storage::F16).widen().item();
    for (text, right, because) in [
        (
            "−65,504, the lowest there is",
            hidden == -65504.0,
            "Rounding does not stop at the largest number.",
        ),
        (
            "−∞",
            hidden == f32::NEG_INFINITY,
            "Beyond 65,504 there is only ∞. Then a row with nothing visible \
          is ∞ − ∞, which is no number, unless it is treated as a case of its own, as here.",
        ),
        (
            "−10⁹, rounded a little",
            hidden < -9e8 && hidden.is_finite(),
            "That is true of bfloat16, which has \
          the range of 32-bit numbers.",
        ),
    ] {
        s.answer(text, right, because);
    }
    s.wrong("2.11", "use −10⁹ in place of −∞ against NaN.", "a row where everything is hidden must give zeros; with −10⁹ it attends to all the padding equally.");
}
