//! Tokens, and losses that can be compared.

use crate::lesson::lesson;
use crate::maths::{chart, difference, digits, row};
use crate::{Lesson, Sheet};
use hearken_data::stories;
use hearken_data::tokenizer::{Kind, Training};
use hearken_kernels::attention::scores::{Adjacency, UNRELATED};
use hearken_tensor::ops::attention::{Attend, attention};
use hearken_tensor::ops::cross_entropy::{Options, cross_entropy};
use hearken_tensor::ops::reshape::reshape;
use hearken_tensor::ops::transpose::transpose;
use hearken_tensor::rng::Rng;
use hearken_tensor::{Tensor, Var};
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
