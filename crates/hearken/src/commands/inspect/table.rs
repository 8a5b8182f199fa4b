//! The results of a model as a table: the most probable tokens at each place, or labels, numbers and
//! answers with their probabilities.

use super::input::Given;
use super::output::{Named, room, summary, write_columns};
use crate::terminal::Terminal;
use hearken::data::tokenizer::Tokenizer;
use hearken::nn::models::TargetKind;
use hearken::show::number::{percent, plural, significant};
use hearken::show::terminal::visible;
use hearken::tasks::OpenModel;
use hearken::tensor::Tensor;
use std::io::{self, Write};

/// Places of a sequence that are listed.
const PLACES: usize = 100;
/// Candidates of a place.
const CANDIDATES: usize = 5;

/// Writes what the model says of every sequence.
pub(super) fn write(
    out: &mut impl Write,
    model: &OpenModel,
    tokenizer: Option<&Tokenizer>,
    given: &Given,
    found: &Named<'_>,
) -> io::Result<()> {
    let logits = found.iter().find(|(name, _)| *name == "logits").map(|(_, logits)| *logits);
    let (Some(kind), Some(logits)) = (TargetKind::of(model.model.as_ref()), logits) else {
        return summary(out, found);
    };
    let labels = model.model.config().labels().unwrap_or_default().to_vec();
    let label = |i: usize| labels.get(i).cloned().unwrap_or_else(|| format!("label {i}"));
    let names = |id: u32| name(tokenizer, id);
    for row in 0..given.rows {
        if given.rows > 1 {
            writeln!(out, "sequence {row}")?;
        }
        let ids = given.row(row);
        match kind {
            TargetKind::Tokens => {
                let what = if model.model.generates().is_some() { "next" } else { "here" };
                per_token(out, what, ids, logits, (row, given.length()), &names, &names)?;
            }
            TargetKind::Tags(_) => {
                let tag = |i: u32| label(i as usize);
                per_token(out, "label", ids, logits, (row, given.length()), &names, &tag)?;
            }
            TargetKind::Classes(n) => {
                let shares = softmax(&logits.data()[row * n..(row + 1) * n]);
                labelled(out, &logits.data()[row * n..(row + 1) * n], &shares, &label)?;
            }
            TargetKind::Several(n) => {
                let own = &logits.data()[row * n..(row + 1) * n];
                let shares: Vec<f64> =
                    own.iter().map(|z| 1.0 / (1.0 + (-f64::from(*z)).exp())).collect();
                labelled(out, own, &shares, &label)?;
            }
            TargetKind::Numbers(n) => {
                let own = &logits.data()[row * n..(row + 1) * n];
                let text: Vec<String> = own.iter().map(|x| significant(f64::from(*x))).collect();
                writeln!(out, "{}", text.join("  "))?;
            }
            TargetKind::Spans => spans(out, ids, logits, (row, given.length()), &names)?,
        }
    }
    Ok(())
}

/// A token as text in quotes, or as its number.
fn name(tokenizer: Option<&Tokenizer>, id: u32) -> String {
    let text = tokenizer.and_then(|tokenizer| {
        tokenizer.decode(&[id]).ok().filter(|text| !text.is_empty()).or_else(|| tokenizer.token(id))
    });
    match text {
        Some(text) => format!("'{}'", visible(&text.replace('\n', "\\n").replace('\t', "\\t"))),
        None => id.to_string(),
    }
}

fn softmax(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<f64> = logits.iter().map(|z| f64::from(z - largest).exp()).collect();
    let total: f64 = powers.iter().sum();
    powers.into_iter().map(|power| power / total).collect()
}

/// A line per token: what it is, and the most probable answers there, as many as fit.
fn per_token(
    out: &mut impl Write,
    what: &str,
    ids: &[u32],
    logits: &Tensor,
    (row, length): (usize, usize),
    token: &dyn Fn(u32) -> String,
    answer: &dyn Fn(u32) -> String,
) -> io::Result<()> {
    let terminal = Terminal::stdout();
    let width = logits.shape().width();
    let shown = &ids[..ids.len().min(PLACES)];
    let tokens: Vec<String> = shown.iter().map(|id| token(*id)).collect();
    let widest = tokens.iter().map(|text| text.chars().count()).max().unwrap_or(0).clamp(5, 16);
    let place = (ids.len() - 1).to_string().len().max("place".len());
    let head = format!("{:>place$}  {:widest$}  {what}", "place", "token");
    writeln!(out, "{}", terminal.bold(&head))?;
    let room = room().min(200).saturating_sub(place + widest + 4);
    for (t, text) in tokens.iter().enumerate() {
        let start = (row * length + t) * width;
        let shares = softmax(&logits.data()[start..start + width]);
        let mut order: Vec<usize> = (0..width).collect();
        let most = CANDIDATES.min(width);
        if most < width {
            order.select_nth_unstable_by(most, |a, b| shares[*b].total_cmp(&shares[*a]));
        }
        order.truncate(most);
        order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]).then(a.cmp(b)));
        let mut line = String::new();
        for (i, candidate) in order.iter().enumerate() {
            let next = format!("{} {}", answer(*candidate as u32), percent(shares[*candidate], 1));
            let gap = if i > 0 { "  " } else { "" };
            if i > 0 && shares[*candidate] < 0.0005 {
                break; // 0.0 %
            }
            if i > 0 && line.chars().count() + gap.len() + next.chars().count() > room {
                break;
            }
            line += gap;
            line += &next;
        }
        let text = hearken::show::terminal::fit(text, widest);
        writeln!(out, "{t:>place$}  {text}  {line}")?;
    }
    rest(out, ids.len())
}

fn rest(out: &mut impl Write, length: usize) -> io::Result<()> {
    if length > PLACES {
        let more = plural(length - PLACES, "more token");
        writeln!(out, "… and {more}: --out FILE has them all")?;
    }
    Ok(())
}

/// A line per label, the most probable first.
fn labelled(
    out: &mut impl Write,
    logits: &[f32],
    shares: &[f64],
    label: &dyn Fn(usize) -> String,
) -> io::Result<()> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| shares[*b].total_cmp(&shares[*a]));
    let rows: Vec<[String; 3]> = order
        .into_iter()
        .map(|i| [label(i), significant(f64::from(logits[i])), percent(shares[i], 1)])
        .collect();
    write_columns(out, ["label", "logit", "probability"], &["logit"], &rows)
}

/// A line per token: the logits of an answer that begins there and of one that ends there.
fn spans(
    out: &mut impl Write,
    ids: &[u32],
    logits: &Tensor,
    (row, length): (usize, usize),
    token: &dyn Fn(u32) -> String,
) -> io::Result<()> {
    let of =
        |t: usize, end: usize| significant(f64::from(logits.data()[(row * length + t) * 2 + end]));
    let rows: Vec<[String; 4]> = (0..ids.len().min(PLACES))
        .map(|t| [token(ids[t]), t.to_string(), of(t, 0), of(t, 1)])
        .collect();
    write_columns(out, ["token", "place", "start", "end"], &["place"], &rows)?;
    rest(out, ids.len())
}
