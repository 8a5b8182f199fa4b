//! What the report shows of a language model: where every head looks, and what surprised the model.

use hearken_data::batches::{Batch, Examples, IGNORED};
use hearken_data::tokenizer::Tokenizer;
use hearken_nn::models::{PredictsTokens, Tokens};
use hearken_nn::pass::{Layout, Pass};
use hearken_nn::taps::Taps;
use hearken_show::grid::Grid;
use hearken_show::svg::escape;
use hearken_tensor::no_grad;
use hearken_train::exhibit::Exhibit;
use std::fmt::Write as _;
use std::sync::Arc;

/// Tokens of the sentence that heads are shown on.
const SENTENCE: usize = 32;
/// Heads that are shown at most.
const MOST_HEADS: usize = 256;
/// Tokens of the passage that surprise is shown on, about.
const PASSAGE: usize = 320;
/// Logits that are computed at once, at most.
const MOST_LOGITS: usize = 1 << 25;
/// Candidates that are listed.
const CANDIDATES: usize = 5;

/// Both, on what is held out.
pub(crate) fn of(
    model: &dyn PredictsTokens,
    held: &dyn Examples,
    tokenizer: &Tokenizer,
) -> Vec<Exhibit> {
    if held.count() == 0 {
        return Vec::new();
    }
    let first = held.batch_of(&[0]);
    let sections = [attention(model, &sentence(&first, tokenizer), tokenizer)];
    sections.into_iter().flatten().chain(surprise(model, held, tokenizer)).collect()
}

/// A token for the eye.
fn shown(tokenizer: &Tokenizer, id: u32) -> String {
    let text = tokenizer.decode_known(&[id]);
    match text.as_str() {
        "" => tokenizer.token(id).unwrap_or_default(),
        "\n" => "↵".to_owned(),
        " " => "␣".to_owned(),
        _ => text,
    }
}

/// The first tokens of a row, from the beginning of a line or sentence on if one begins early.
fn sentence(batch: &Batch, tokenizer: &Tokenizer) -> Vec<u32> {
    let length = batch.lengths.as_ref().map_or(batch.length, |lengths| lengths[0]);
    let row = &batch.inputs[..length.min(batch.length)];
    let ends = |id: &u32| tokenizer.decode_known(&[*id]).ends_with('\n');
    let start = row.iter().position(ends).filter(|at| at + SENTENCE < row.len());
    let start = start.map_or(0, |at| at + 1);
    row[start..row.len().min(start + SENTENCE)].to_vec()
}

/// Where every head looks on a sentence.
fn attention(model: &dyn PredictsTokens, ids: &[u32], tokenizer: &Tokenizer) -> Option<Exhibit> {
    if !model.config().stack()?.weighs_tokens() {
        return None;
    }
    let taps = Arc::new(Taps::new().record("*.attention.weights[*]"));
    no_grad(|| model.hidden(&Tokens::new(ids, 1), &Pass::evaluate().watched(&taps)));
    let labels: Vec<String> = ids.iter().map(|id| shown(tokenizer, *id)).collect();
    let mut body = String::from("<div class=\"heads\">\n");
    let seen = taps.take();
    for (name, weights) in seen.iter().take(MOST_HEADS) {
        let title = name.replace(".attention.weights[", " head ").replace(']', "");
        let grid = Grid { title: &title, rows: &labels, columns: &labels, cells: weights.data() };
        let _ = writeln!(
            body,
            "<figure>{}<figcaption>{}</figcaption></figure>",
            grid.svg(),
            habit(weights.data(), ids.len())
        );
    }
    body.push_str("</div>\n");
    let about = "Where each head looks on a sentence that is held out. A row is a token, a cell \
        the share of its attention that goes to the token below: the strongest blue is all of it. \
        Heads that differ divide the work; many that all look at the first token or at themselves \
        are idle.";
    (!seen.is_empty() && ids.len() > 1).then(|| Exhibit {
        title: "Where heads look".to_owned(),
        about: about.to_owned(),
        body,
    })
}

/// What a head does most, measured on its weights (T, T) after the first token.
fn habit(weights: &[f32], length: usize) -> String {
    let (mut own, mut before, mut first, mut back) = (0.0, 0.0, 0.0, 0.0);
    for (query, row) in weights.chunks(length.max(1)).enumerate().skip(1) {
        own += row.get(query).copied().unwrap_or(0.0);
        before += row.get(query - 1).copied().unwrap_or(0.0);
        first += row.first().copied().unwrap_or(0.0);
        let distance = |(key, weight): (usize, &f32)| weight * query.abs_diff(key) as f32;
        back += row.iter().enumerate().map(distance).sum::<f32>();
    }
    let rows = length.saturating_sub(1).max(1) as f32;
    let shares = [(own, "itself"), (before, "the token before"), (first, "the first token")];
    let most = shares.into_iter().max_by(|a, b| a.0.total_cmp(&b.0));
    match most {
        Some((share, what)) if share > 0.5 * rows => {
            format!("{what}: {:.0} %", 100.0 * share / rows)
        }
        _ => format!("{:.1} tokens back on average", back / rows),
    }
}

/// A passage that is held out, each token coloured by how little it was expected.
fn surprise(
    model: &dyn PredictsTokens,
    held: &dyn Examples,
    tokenizer: &Tokenizer,
) -> Option<Exhibit> {
    let mut body = String::from("<p class=\"passage\">");
    let (mut nats, mut count) = (0.0, 0);
    for example in 0..held.count() {
        let batch = held.batch_of(&[example]);
        let vocabulary = model.config().vocabulary();
        if count >= PASSAGE || batch.inputs.len().saturating_mul(vocabulary) > MOST_LOGITS {
            break;
        }
        let mut tokens = Tokens::new(&batch.inputs, 1);
        if let Some(lengths) = &batch.lengths {
            tokens = tokens.laid_out(Layout::padded(lengths));
        }
        let logits = model.logits(&tokens); // (1, T, V)
        let rows = logits.data().chunks(vocabulary.max(1)).zip(&batch.targets);
        for (row, &target) in rows.filter(|(_, target)| **target != IGNORED).take(PASSAGE - count) {
            nats += token(&mut body, row, target, tokenizer);
            count += 1;
        }
    }
    body.push_str("</p>\n<p class=\"key\">surprise in nats: ");
    for (class, text) in [(0, "below 0.1"), (1, "0.5"), (2, "1"), (3, "2"), (4, "4"), (5, "more")] {
        let _ = write!(body, "<span class=\"s{class}\">{text}</span> ");
    }
    body.push_str("</p>\n");
    let mean = nats / count.max(1) as f64;
    (count > 0).then(|| Exhibit {
        title: "What surprised it".to_owned(),
        about: format!(
            "{count} tokens that are held out, each coloured by how little the model expected it: \
             −ln of the probability it gave, {mean:.3} nats on average here. What can be known from \
             the text before should be faint; the beginnings of names and choices stay strong. \
             Point at a token for its probability and the {CANDIDATES} likeliest candidates."
        ),
        body,
    })
}

/// Adds a token; gives its surprise.
fn token(body: &mut String, logits: &[f32], target: u32, tokenizer: &Tokenizer) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|z| f64::from(z - largest).exp()).sum();
    let probability =
        |id: usize| logits.get(id).map_or(0.0, |z| f64::from(z - largest).exp() / total);
    let mut ranked: Vec<usize> = (0..logits.len()).collect();
    let by_logit = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]);
    let most = CANDIDATES.min(ranked.len());
    if most < ranked.len() {
        ranked.select_nth_unstable_by(most, by_logit);
    }
    ranked.truncate(most);
    ranked.sort_by(by_logit);
    let nats = -probability(target as usize).ln();
    let class = [0.1, 0.5, 1.0, 2.0, 4.0].iter().filter(|bound| nats >= **bound).count();
    let name = |id: usize| shown(tokenizer, id as u32);
    let candidates: Vec<String> = ranked
        .iter()
        .map(|id| format!("{} {:.1} %", name(*id), 100.0 * probability(*id)))
        .collect();
    let title = format!(
        "{} {:.1} %, {nats:.2} nats; likeliest: {}",
        name(target as usize),
        100.0 * probability(target as usize),
        candidates.join(", ")
    );
    let text = tokenizer.decode_known(&[target]);
    let text = if text == "\n" { "↵\n".to_owned() } else { text };
    let _ = write!(
        body,
        "<span class=\"s{class}\" title=\"{}\">{}</span>",
        escape(&title),
        escape(&text)
    );
    nats
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_data::stories;
    use hearken_nn::config::{DecoderConfig, StackConfig};
    use hearken_nn::models::Decoder;

    #[test]
    fn heads_are_described_by_what_they_do_most() {
        let previous = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.1, 0.9, 0.0];
        // The token before the second is the first.
        assert_eq!(habit(&previous, 3), "the token before: 95 %");
        let own = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.2, 0.2, 0.6];
        assert_eq!(habit(&own, 3), "itself: 80 %");
        let even = [1.0, 0.0, 0.0, 0.5, 0.5, 0.0, 0.4, 0.3, 0.3];
        // 0.5 · 1 in the second row, 0.4 · 2 + 0.3 · 1 in the third.
        assert_eq!(habit(&even, 3), "0.8 tokens back on average");
    }

    #[test]
    fn a_model_is_shown_on_what_is_held_out() {
        let tokenizer = stories::tokenizer();
        let held = stories::Validation::new(4, 256, 1).unwrap();
        let config = DecoderConfig {
            vocabulary: tokenizer.vocabulary_size(),
            ..DecoderConfig::new(256, StackConfig::new(2, 16, 4))
        };
        let found = of(&Decoder::drawn(config, 1), &held, &tokenizer);
        let [heads, passage] = &found[..] else { panic!("{found:?}") };
        assert_eq!(heads.body.matches("<svg").count(), 2 * 4);
        assert_eq!(passage.body.matches("title=\"").count(), PASSAGE.min(held.characters));
        // A model that knows nothing finds everything about equally likely: ln 46 = 3.83.
        assert!(passage.about.contains(" 3.8"), "{}", passage.about);
        assert!(passage.body.matches("class=\"s4\" title").count() > PASSAGE / 2);
        assert!(!passage.body.contains("class=\"s0\" title"), "it is never sure");
    }
}
