//! From logits to text.

use crate::lesson::lesson;
use crate::maths::{bars, chart, digits};
use crate::{Lesson, Sheet};
use hearken_infer::sampler::Sampling;

pub(crate) const LESSONS: &[Lesson] = &[lesson!(sampling, "sampling", "Temperature, top-k, top-p",
    "What may come after \"The cat sat on the\", and how each filter changes it",
    "how the next token is chosen" => "generate.md")];

fn sampling(s: &mut Sheet) {
    let words = ["mat", "floor", "sofa", "table", "roof", "moon", "idea", "seven"];
    let logits = [4.0f32, 3.2, 2.9, 2.0, 1.5, 0.2, -1.0, -2.0];
    let probabilities = |sampling: Sampling| {
        let mut p = vec![0.0; 8];
        for candidate in sampling.candidates(&logits, &[]) {
            p[candidate.id as usize] = f64::from(candidate.probability);
        }
        p
    };
    let base = Sampling::default();
    s.step("The distribution");
    s.text("A model has read \"The cat sat on the\" and gives eight words these logits. Their softmax says how \
            likely each is. Taking the best always gives the same text, and often a dull one; drawing from all \
            sometimes takes \"seven\".");
    s.show("logits", &logits[..]);
    let p = probabilities(base);
    s.bars(bars("probabilities at temperature 1", &words, &p));
    s.keep("p", &p);

    s.step("Temperature");
    s.formula("p = softmax(logits/τ)");
    let temperatures = [0.5f32, 1.0, 2.0];
    let columns: Vec<Vec<f64>> =
        temperatures.iter().map(|t| probabilities(Sampling { temperature: *t, ..base })).collect();
    s.table(
        &["word", "τ = 0.5", "τ = 1", "τ = 2"],
        words.iter().enumerate().map(|(i, w)| {
            [vec![(*w).to_owned()], columns.iter().map(|c| digits(c[i])).collect()].concat()
        }),
    );
    s.text("Below 1 the likely become likelier, above 1 all become more equal; at 0 the best is taken.");
    s.keep("best at τ = 0.5, 1, 2", columns.iter().map(|c| c[0]).collect::<Vec<_>>());

    s.step("Top-k");
    s.text("Keep the k most likely and let them share all the probability. k does not look at how sure the model \
            is: with k = 3 a certain model and a clueless one both get three words.");
    let k3 = probabilities(Sampling { top_k: Some(3), ..base });
    s.show("top-k, k = 3", &k3);

    s.step("Top-p");
    s.formula("the smallest set of most likely words whose probabilities sum to at least p");
    let mut sum = 0.0;
    s.table(
        &["word", "probability", "sum so far"],
        words.iter().zip(&p).map(|(w, p)| {
            sum += p;
            [(*w).to_owned(), digits(*p), digits(sum)]
        }),
    );
    let p9 = probabilities(Sampling { top_p: Some(0.9), ..base });
    s.show("top-p, p = 0.9", &p9);
    s.show("words kept", p9.iter().filter(|p| **p > 0.0).count());
    s.text("The set grows and shrinks with the certainty of the model. It is never empty: the best word is \
            always in it.");

    s.step("Drawing, a thousand times");
    let mut counts = [0usize; 8];
    let sampler = Sampling { top_p: Some(0.9), seed: 1, ..base };
    for position in 0..1000 {
        counts[sampler.choose(&logits, &[], position).id as usize] += 1;
    }
    let shares: Vec<f64> = counts.iter().map(|n| *n as f64 / 1000.0).collect();
    let curve = |y: &[f64]| y.iter().enumerate().map(|(i, y)| (i as f64, *y)).collect();
    s.chart(chart(
        "drawn and expected, top-p 0.9",
        "word, the likeliest first",
        "share",
        vec![("expected", curve(&p9)), ("drawn", curve(&shares))],
    ));
    s.keep("drawn", &shares);
    s.text("The same seed gives the same text, on any machine and any number of threads.");

    s.ask("A model is 95 % sure of a word. What does top-p with p = 0.9 keep?");
    let sure = Sampling { top_p: Some(0.9), ..base }.candidates(&[2.944_44, 0.0], &[]);
    for (text, count, because) in [
        ("That word alone", 1, "It reaches 0.9 by itself."),
        (
            "Nothing: 0.95 is more than 0.9",
            0,
            "That would be the set whose sum is at most p, which a document \
          writes. The set must reach p.",
        ),
        ("Both words, shares 0.95 and 0.05", 2, "The second is not needed to reach 0.9."),
    ] {
        s.answer(text, sure.len() == count, because);
    }
    s.wrong(
        "4.20",
        "top-p keeps the set whose sum is at most p.",
        "the smallest set whose sum is at least p; with [0.95, 0.05] the other would be empty.",
    );
}
