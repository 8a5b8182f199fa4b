//! Tokens, losses that can be compared, and honest confidence.

use crate::lesson::lesson;
use crate::maths::{bars, chart, difference, digits, row};
use crate::{Lesson, Sheet};
use hearken_data::stories;
use hearken_data::tokenizer::{Kind, Training};
use hearken_infer::calibration::{
    Binning, Prediction, bins, expected_error, fit_temperature, judge,
};
use hearken_kernels::attention::scores::{Adjacency, UNRELATED};
use hearken_tensor::ops::attention::{Attend, attention};
use hearken_tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken_tensor::ops::linear::linear;
use hearken_tensor::ops::reshape::reshape;
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Param, Role, Tensor, Var};
use hearken_train::{DecayRule, Optimizer, OptimizerConfig};
use std::collections::{BTreeMap, HashMap};

pub(crate) const LESSONS: &[Lesson] = &[
    lesson!(bpe, "bpe", "Byte-pair encoding by hand",
        "Count pairs, merge the commonest, again and again: on one sentence, then by the library",
        "tokenizers" => "text.md"),
    lesson!(perplexity, "perplexity", "Perplexity and tokenizers",
        "The same model has two perplexities; bits per byte are the same",
        "how well a model predicts a text" => "evaluate.md"),
    lesson!(modalities, "modalities", "Images, graphs and sound as tokens",
        "196 patches of a picture, neighbours of a node, frames of a sound",
        "who sees whom" => "models.md"),
    lesson!(label_smoothing, "label-smoothing", "Label smoothing and its floor",
        "A loss that cannot reach 0, how low it can go, and what it does to confidence",
        "the loss" => "train.md"),
    lesson!(calibration, "calibration", "Calibration: right as often as sure",
        "An overconfident classifier, its reliability diagram, and one temperature that mends it",
        "how well a model predicts" => "evaluate.md"),
];

fn bpe(s: &mut Sheet) {
    let sentence = "the cat sat on the mat";
    s.step("Letters first");
    s.text("Start with single letters; a blank belongs to the word after it, and nothing is merged across \
            words. Count all neighbouring pairs.");
    let mut words: Vec<Vec<String>> = Vec::new();
    for c in sentence.chars() {
        if c == ' ' || words.is_empty() {
            words.push(Vec::new());
        }
        let shown = if c == ' ' { "␣".to_owned() } else { c.to_string() };
        words.last_mut().expect("one was pushed").push(shown);
    }
    let written =
        |words: &[Vec<String>]| words.iter().flatten().cloned().collect::<Vec<_>>().join(" ");
    s.formula(written(&words));
    let count = |words: &[Vec<String>]| {
        let mut pairs: BTreeMap<(String, String), usize> = BTreeMap::new();
        for word in words {
            for pair in word.windows(2) {
                *pairs.entry((pair[0].clone(), pair[1].clone())).or_default() += 1;
            }
        }
        pairs
    };
    let first = count(&words);
    let mut common: Vec<(&(String, String), &usize)> =
        first.iter().filter(|(_, n)| **n > 1).collect();
    common.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    s.table(
        &["pair", "times"],
        common.iter().map(|((a, b), n)| [format!("{a} {b}"), n.to_string()]),
    );

    s.step("Merge, again and again");
    let letters: usize = words.iter().map(Vec::len).sum();
    let mut rows = Vec::new();
    let mut learned = Vec::new();
    loop {
        let pairs = count(&words);
        let best = pairs.iter().max_by_key(|(pair, n)| (**n, std::cmp::Reverse((*pair).clone())));
        let Some(((a, b), n)) = best.filter(|(_, n)| **n > 1) else { break };
        for word in &mut words {
            let mut i = 0;
            while i + 1 < word.len() {
                if &word[i] == a && &word[i + 1] == b {
                    let second = word.remove(i + 1);
                    word[i].push_str(&second);
                }
                i += 1;
            }
        }
        learned.push(format!("{a}{b}"));
        rows.push([
            learned.len().to_string(),
            format!("{a} + {b}"),
            n.to_string(),
            written(&words),
        ]);
    }
    s.table(&["merge", "pair", "times", "the sentence now"], rows);
    let pieces: usize = words.iter().map(Vec::len).sum();
    s.show("tokens before and after", [letters as f64, pieces as f64]);

    s.step("The library's tokenizer, on the same sentence");
    let mut training = Training::new(Kind::Bpe);
    training.vocabulary = Some(256 + 1 + learned.len()); // all bytes, an end of text, and the merges
    let tokenizer = training.train_on_text(sentence).expect("a sentence can be learned");
    let ids = tokenizer.encode(sentence).expect("its own text");
    let tokens: Vec<String> =
        ids.iter().filter_map(|id| tokenizer.token(*id)).map(|t| t.replace('Ġ', "␣")).collect();
    s.formula(tokens.join(" "));
    s.show("tokens", ids.len());
    s.text("Byte-level BPE starts from the 256 bytes, so that any text can be written: a letter such as é is \
            two bytes, and merges join bytes, not characters.");
    s.show("tokens of é, which was never seen", tokenizer.encode("é").expect("any text").len());

    s.step("What it learns from more text");
    let text = stories::text(1, 20_000);
    let mut rows = Vec::new();
    for vocabulary in [300usize, 500, 1000] {
        let mut training = Training::new(Kind::Bpe);
        training.vocabulary = Some(vocabulary);
        let tokenizer = training.train_on_text(&text).expect("stories can be learned");
        let n = tokenizer.encode(&text).expect("its own text").len();
        rows.push([
            digits(tokenizer.vocabulary_size() as f64),
            digits(n as f64),
            digits(text.len() as f64 / n as f64),
        ]);
    }
    s.table(&["vocabulary", "tokens of 20,000 bytes", "bytes per token"], rows);

    s.ask("How many tokens has \"hat\" with the merges learned from \"the cat sat on the mat\"?");
    let hat = tokenizer.encode("hat").expect("any text").len();
    for (n, because) in [
        (1, "\"hat\" itself never occurred, so no merge made it."),
        (
            2,
            "h stays alone, \"at\" was merged first. A word that was never seen is written with pieces that were.",
        ),
        (3, "\"at\" occurs three times in the sentence and was merged."),
    ] {
        s.answer(n.to_string(), hat == n, because);
    }
    s.wrong("0.15", "BPE merges character pairs.", "byte-level BPE merges bytes.");
    s.wrong(
        "0.7",
        "GPT's tokenizer cuts \"hello world\" into 4 pieces.",
        "2: \"hello\" and \" world\".",
    );
    s.wrong(
        "4.1",
        "\"The cat sat on\" is [464, 2415, 3332, 319].",
        "[464, 3797, 3332, 319]; 2415 is \" woman\".",
    );
}

fn perplexity(s: &mut Sheet) {
    s.step("What perplexity says");
    s.formula("loss = −(1/n) Σ ln p(tokenᵢ)        perplexity = e^loss");
    s.text("A model that hesitates between 8 equally likely tokens has a perplexity of 8.");
    let eight = cross_entropy(row(&[0.0; 8]), &[3], Options::default()).value().item();
    s.show("e^loss of 8 equal logits", f64::from(eight).exp());

    s.step("One model, two tokenizers");
    s.text("Take a text and the simplest model: every character has its own probability, whatever came before. \
            Then read the same text in pairs of characters. The probability of a pair is the product, so the \
            model says exactly the same about the text; but there are half as many tokens.");
    let text = stories::text(3, 4000);
    let characters: Vec<char> = text.chars().take(4000).collect();
    let mut counts: HashMap<char, usize> = HashMap::new();
    for c in &characters {
        *counts.entry(*c).or_default() += 1;
    }
    let mut alphabet: Vec<char> = counts.keys().copied().collect();
    alphabet.sort_unstable();
    let logits: Vec<f32> =
        alphabet.iter().map(|c| (counts[c] as f32 / characters.len() as f32).ln()).collect();
    let id = |c: &char| alphabet.iter().position(|a| a == c).expect("of this text") as u32;
    let ids: Vec<u32> = characters.iter().map(id).collect();
    let rows = Tensor::new([ids.len(), logits.len()], &logits.repeat(ids.len()));
    let per_character =
        f64::from(cross_entropy(Var::constant(rows), &ids, Options::default()).value().item());
    let per_pair = 2.0 * per_character;
    let bits = per_character * characters.len() as f64
        / (2f64.ln() * characters.iter().map(|c| c.len_utf8()).sum::<usize>() as f64);
    s.table(
        &["tokens", "how many", "loss per token", "perplexity", "bits per byte"],
        [
            [
                "characters".to_owned(),
                digits(characters.len() as f64),
                digits(per_character),
                digits(per_character.exp()),
                digits(bits),
            ],
            [
                "pairs".to_owned(),
                digits(characters.len() as f64 / 2.0),
                digits(per_pair),
                digits(per_pair.exp()),
                digits(bits),
            ],
        ],
    );
    s.keep("perplexity by characters and by pairs", [per_character.exp(), per_pair.exp()]);
    s.keep("bits per byte", bits);
    s.text("The perplexity is squared, though nothing about the model changed. Compare perplexities only with \
            the same tokenizer; bits per byte divide by what the text itself has.");
    s.formula("bits per byte = n·loss / (ln 2 · bytes)");

    s.step("A floor");
    s.text("The stories that Hearken generates for training have a known entropy. No model can go below it:");
    s.show("nats per character", stories::floor().nats_per_character());
    s.show("our model above", per_character);

    s.ask("Model A has perplexity 20 per token with 4 bytes per token, model B 5 with 2 bytes per token. Which \
           predicts better?");
    let per_byte = |perplexity: f64, bytes: f64| perplexity.log2() / bytes;
    let (a, b) = (per_byte(20.0, 4.0), per_byte(5.0, 2.0));
    s.answer("A", a < b, format!("A needs {} bits per byte, B {}.", digits(a), digits(b)));
    s.answer(
        "B, since 5 < 20",
        b < a,
        "B's tokens are half as long: it must guess twice as often.",
    );
    s.answer("It cannot be known", false, "The bytes per token make them comparable.");
    s.wrong(
        "4.4",
        "the vocabulary has 50,000 words.",
        "50,257 tokens, many of them parts of words.",
    );
}

fn modalities(s: &mut Sheet) {
    s.step("A picture is 196 tokens");
    s.text("Cut a picture of 224×224 pixels with three colours into squares of 16×16. Each square is a token of \
            16·16·3 = 768 numbers. Cutting is a reshape and a transpose:");
    s.formula("(224, 224·3) → (14, 16, 14, 48) → (14, 14, 16, 48) → (196, 768)");
    let size = 224;
    let pixels: Vec<f32> = (0..size * size * 3).map(|i| i as f32).collect();
    let image = Var::constant(Tensor::new([14, 16, 14, 48], &pixels));
    let patches = reshape(transpose(&image, 1, 2), [196, 768]);
    s.keep(
        "shape of the patches",
        patches.shape().dims().iter().map(|n| *n as f64).collect::<Vec<_>>(),
    );
    s.table(
        &["patch", "its first number is pixel number"],
        [0usize, 1, 14]
            .map(|i| [i.to_string(), digits(f64::from(patches.value().data()[768 * i]))]),
    );
    s.text("Patch 1 begins 16 pixels to the right, 48 numbers on; patch 14 begins 16 rows further down.");
    s.keep(
        "first numbers of patches 0, 1 and 14",
        [0usize, 1, 14].map(|i| f64::from(patches.value().data()[768 * i])),
    );

    s.step("A graph is its nodes");
    s.text("Nodes have no order, and attention needs none. Edges become a mask: a node sees itself and its \
            neighbours. Here a chain of four, 0–1–2–3:");
    let edges = |names: [usize; 4]| {
        let mut relations = vec![UNRELATED; 16];
        for i in 0..4usize {
            for j in 0..4 {
                if i.abs_diff(j) <= 1 {
                    relations[names[i] * 4 + names[j]] = 0;
                }
            }
        }
        Adjacency::new(relations, [1, 4, 4], Vec::<f32>::new(), 1)
    };
    let mut rng = Rng::new(2);
    let x = rng.normal([1, 4, 4], 1.0);
    let run = |x: &Tensor, names| {
        let x = Var::constant(x.clone());
        attention(&x, &x, &x, &[], &Attend::new(1).rule(edges(names))).into_value()
    };
    let out = run(&x, [0, 1, 2, 3]);
    let mut far = x.clone();
    far.data_mut()[12..].fill(9.0); // node 3
    let moved = run(&far, [0, 1, 2, 3]);
    s.show(
        "node 3 changes: change of nodes 0 and 1",
        difference(&moved.data()[..8], &out.data()[..8]),
    );
    s.show("and of node 2, its neighbour", difference(&moved.data()[8..12], &out.data()[8..12]));
    let names = [2usize, 0, 3, 1]; // node i is now called names[i]
    let mut renamed = Tensor::zeros([1, 4, 4]);
    for i in 0..4 {
        renamed.data_mut()[4 * names[i]..4 * names[i] + 4]
            .copy_from_slice(&x.data()[4 * i..4 * i + 4]);
    }
    let after = run(&renamed, names);
    let worst = (0..4)
        .map(|i| {
            difference(&after.data()[4 * names[i]..4 * names[i] + 4], &out.data()[4 * i..4 * i + 4])
        })
        .fold(0.0, f64::max);
    s.text("Give the nodes other names, and the outputs are the same under the new names:");
    s.show("difference", worst);

    s.step("A sound is its frames");
    s.text("A second of sound at 16,000 samples would be 16,000 tokens. Frames of 400 samples every 160 are 98, \
            each with its spectrum.");
    let frames = (16_000 - 400) / 160 + 1;
    s.show("frames", frames as usize);
    s.text("Taking every 100th sample instead is no way to a coarse view: at 160 samples a second a tone of 1,000 \
            Hz looks like one of 40 Hz.");
    let tone = |frequency: f64, n: usize| {
        (std::f64::consts::TAU * frequency * n as f64 * 100.0 / 16_000.0).sin()
    };
    let points = |f: f64| (0..12).map(|n| (n as f64, tone(f, n))).collect();
    s.chart(chart(
        "every 100th sample",
        "sample",
        "",
        vec![("1,000 Hz", points(1000.0)), ("40 Hz", points(40.0))],
    ));
    let alias = (0..100).map(|n| (tone(1000.0, n) - tone(40.0, n)).abs()).fold(0.0, f64::max);
    s.show("largest difference of the two", alias);

    s.ask("A picture has twice the width and height, with the same patches. Attention's scores become");
    let tokens = |size: usize| (size / 16) * (size / 16);
    let ratio = (tokens(448) * tokens(448)) as f64 / (tokens(224) * tokens(224)) as f64;
    for (claim, because) in [
        (2.0, "Both directions double, so there are four times as many patches."),
        (4.0, "That is the number of tokens; scores are pairs of tokens."),
        (16.0, "Four times the tokens, sixteen times the pairs."),
    ] {
        s.answer(format!("{claim} times as many"), (ratio - claim).abs() < 1e-9, because);
    }
    s.wrong(
        "3.30",
        "CLIP joins image and text tokens into one sequence.",
        "CLIP has two towers and a contrastive loss; DALL·E joins.",
    );
}

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
         and measured on 2,000 fresh ones:");
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
    for (claim, because) in [
        (1.0, "Then the other nine, which are given 0.01 each, would cost infinitely much."),
        (0.91, "Exactly the target: 0.9 and a tenth of the 0.1 that is spread over all ten."),
        (0.9, "Almost: the right class also gets its share of what is spread."),
    ] {
        s.answer(digits(claim), (p - claim).abs() < 2e-3, because);
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
