//! Learning from examples in the prompt: accuracy by how many of them there are.
//!
//! A prompt is the examples and a question, each written by a template such as
//! `Text: {text}\nLabel: {label}\n\n`; the question ends where its answer would stand. Any decoder
//! can be asked, without training:
//!
//! - **labels**: of all labels the one whose tokens are the most probable, Σ ln p(token), is the answer;
//! - **texts** (a translation): the answer is written greedily up to the end of its line, and compared
//!   with the right one.
//!
//! Examples are drawn at random for every question, never the question itself; those with labels in
//! turns, so that n ≥ N examples show all N labels.

use crate::open::OpenModel;
use hearken_base::{Error, Result};
use hearken_data::labelled::{Answer, Dataset};
use hearken_data::shots;
use hearken_data::tokenizer::Tokenizer;
use hearken_infer::calibration::judge;
use hearken_infer::generate::{Flow, Request, generate};
use hearken_infer::sampler::Sampling;
use hearken_infer::stream::TextStream;
use hearken_nn::layers::select_rows;
use hearken_nn::models::{Generates, Tokens};
use hearken_nn::pass::{Layout, Pass};
use hearken_show::svg::{BLUE, GREEN, GREY};
use hearken_show::{Chart, Mark, Series};
use hearken_tensor::no_grad;
use hearken_tensor::rng::Rng;

/// Where the text of an example stands in a template.
const TEXT: &str = "{text}";
/// Where its answer stands.
const LABEL: &str = "{label}";
/// How labelled texts are written, unless told otherwise.
pub const LABEL_TEMPLATE: &str = "Text: {text}\nLabel: {label}\n\n";
/// How texts and their translations are written, unless told otherwise.
pub const TEXT_TEMPLATE: &str = "{text} => {label}\n";
/// How the words of [`shots`] are written.
const SHOTS_TEMPLATE: &str = "{text} {label} ";
/// Tokens of a written answer, at most.
const MOST_WRITTEN: usize = 96;
/// Shots, at most.
const MOST_SHOTS: usize = 1024;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Asking {
    /// How many examples a prompt has: a point of the curve each.
    pub shots: Vec<usize>,
    /// How many questions for each point.
    pub questions: usize,
    /// How examples are written; the usual one, if there is none.
    pub template: Option<String>,
    /// Of what is drawn.
    pub seed: u64,
}

impl Asking {
    fn validate(&self) -> Result<()> {
        if self.shots.is_empty() || self.shots.iter().any(|shots| *shots > MOST_SHOTS) {
            let message = format!("numbers of examples are from 0 to {MOST_SHOTS}, at least one");
            return Err(Error::new(message, "0,1,2,4,8 is usual"));
        }
        if self.questions == 0 || self.questions > 1_000_000 {
            let message = format!("{} questions, expected 1 to 1000000", self.questions);
            return Err(Error::new(message, "200 are usual"));
        }
        Ok(())
    }
}

/// A point of the curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Examples in the prompt.
    pub shots: usize,
    /// The share of right answers: the right label, or exactly the right text.
    pub accuracy: f64,
    /// Half the width of the interval that holds the true accuracy with 95 % (normal approximation).
    pub margin: f64,
    /// The mean F1 of the words of a written answer.
    pub f1: Option<f64>,
    /// The best possible accuracy, where it is known.
    pub best: Option<f64>,
}

/// Accuracy by number of examples.
#[derive(Clone, Debug)]
pub struct Curve {
    /// In the order that was asked for.
    pub points: Vec<Point>,
    /// Questions of each point.
    pub questions: usize,
    /// The accuracy of always saying the most frequent label; none of texts.
    pub majority: Option<f64>,
    /// Texts that were too long for their share of the context and were cut.
    pub cut: usize,
}

/// The question and its examples: texts, and answers of all but the question.
struct Asked {
    examples: Vec<(String, String)>,
    text: String,
    /// The place of the right label, or the right text.
    right: Right,
}

enum Right {
    Label(usize),
    Text(String),
}

/// A decoder with its tokenizer, and how it is asked.
struct Prompter<'a> {
    open: &'a OpenModel,
    model: &'a dyn Generates,
    tokenizer: &'a Tokenizer,
    /// What stands before the text, between text and answer, and behind the answer.
    template: [String; 3],
    labels: Vec<String>,
    cut: usize,
}

/// The curve of the embedded task ([`shots`]).
pub fn of_shots(
    open: &OpenModel,
    tokenizer: &Tokenizer,
    asking: &Asking,
    progress: &mut dyn FnMut(f64),
) -> Result<Curve> {
    asking.validate()?;
    let labels = shots::LABELS.map(str::to_owned).to_vec();
    let mut prompter = Prompter::new(open, tokenizer, SHOTS_TEMPLATE, labels)?;
    let mut curve = prompter.curve(asking, progress, |shots, number| {
        let (prompt, right) = shots::question(shots, asking.seed, number);
        let words: Vec<&str> = prompt.split(' ').collect();
        let pair = |pair: &[&str]| match pair {
            [word, label] => Some(((*word).to_owned(), (*label).to_owned())),
            _ => None,
        };
        Asked {
            examples: words.chunks(2).filter_map(pair).collect(),
            text: words.last().map_or(String::new(), |word| (*word).to_owned()),
            right: Right::Label(right),
        }
    })?;
    for point in &mut curve.points {
        point.best = Some(shots::best_accuracy(point.shots));
    }
    curve.majority = Some(1.0 / shots::LABELS.len() as f64);
    Ok(curve)
}

/// The curve of the user's rows: classes, or pairs of a text and its translation.
pub fn of_rows(
    open: &OpenModel,
    tokenizer: &Tokenizer,
    data: &Dataset,
    asking: &Asking,
    progress: &mut dyn FnMut(f64),
) -> Result<Curve> {
    asking.validate()?;
    let most = asking.shots.iter().copied().max().unwrap_or(0);
    let mut order: Vec<usize> = (0..data.rows.len()).collect();
    shuffle(&mut order, &mut Rng::new(asking.seed));
    let questions = asking.questions.min(order.len().saturating_sub(most));
    if questions == 0 {
        let rows = data.rows.len();
        return Err(Error::new(
            format!("{rows} rows are too few: {most} examples and a question are wanted"),
            "give more rows, or fewer --shots",
        ));
    }
    if data.labels.is_empty()
        && let Some(row) = data.rows.iter().find(|row| row.second.is_none())
    {
        let message = format!("{}: there is no second text", data.place(row));
        return Err(Error::new(message, "--second names its column"));
    }
    let (asked, pool) = order.split_at(questions);
    let answer = |row: usize| -> (String, Right) {
        let row = &data.rows[row];
        match (&row.answer, &row.second) {
            (Answer::Class(class), _) => (row.text.clone(), Right::Label(*class as usize)),
            (_, second) => (row.text.clone(), Right::Text(second.clone().unwrap_or_default())),
        }
    };
    let template = if data.labels.is_empty() { TEXT_TEMPLATE } else { LABEL_TEMPLATE };
    let template = asking.template.as_deref().unwrap_or(template);
    let mut prompter = Prompter::new(open, tokenizer, template, data.labels.clone())?;
    let by_label = by_label(data, pool);
    let asking = Asking { questions, ..asking.clone() };
    let mut curve = prompter.curve(&asking, progress, |shots, number| {
        let mut rng = Rng::new(asking.seed ^ (number << 20) ^ shots as u64);
        let chosen = draw(&by_label, shots, &mut rng);
        let example = |row: usize| {
            let (text, right) = answer(row);
            match right {
                Right::Label(label) => (text, data.labels[label].clone()),
                Right::Text(right) => (text, right),
            }
        };
        let (text, right) = answer(asked[number as usize]);
        Asked { examples: chosen.into_iter().map(example).collect(), text, right }
    })?;
    if !data.labels.is_empty() {
        let mut counts = vec![0_usize; data.labels.len()];
        for row in asked {
            if let Answer::Class(class) = &data.rows[*row].answer {
                counts[*class as usize] += 1;
            }
        }
        let most = counts.into_iter().max().unwrap_or(0);
        curve.majority = Some(most as f64 / questions as f64);
    }
    Ok(curve)
}

/// The rows of each label; all of them in one list, if there are no labels.
fn by_label(data: &Dataset, rows: &[usize]) -> Vec<Vec<usize>> {
    let mut lists = vec![Vec::new(); data.labels.len().max(1)];
    for row in rows {
        let list = match data.rows[*row].answer {
            Answer::Class(class) => class as usize,
            _ => 0,
        };
        lists[list].push(*row);
    }
    lists.retain(|list| !list.is_empty());
    lists
}

/// So many different rows, the lists in turns, in random order.
fn draw(lists: &[Vec<usize>], count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut turns: Vec<usize> = (0..lists.len()).collect();
    let mut left: Vec<Vec<usize>> = lists.to_vec();
    let mut chosen = Vec::new();
    while chosen.len() < count && left.iter().any(|list| !list.is_empty()) {
        shuffle(&mut turns, rng);
        for list in &turns {
            let list = &mut left[*list];
            if chosen.len() < count && !list.is_empty() {
                chosen.push(list.swap_remove(rng.below(list.len())));
            }
        }
    }
    shuffle(&mut chosen, rng);
    chosen
}

fn shuffle(list: &mut [usize], rng: &mut Rng) {
    for i in (1..list.len()).rev() {
        list.swap(i, rng.below(i + 1));
    }
}

impl<'a> Prompter<'a> {
    fn new(
        open: &'a OpenModel,
        tokenizer: &'a Tokenizer,
        template: &str,
        labels: Vec<String>,
    ) -> Result<Self> {
        let template = template.replace("\\n", "\n").replace("\\t", "\t");
        let parts = template.split_once(TEXT).and_then(|(before, rest)| {
            rest.split_once(LABEL).map(|(between, after)| [before, between, after])
        });
        let once = template.matches(TEXT).count() == 1 && template.matches(LABEL).count() == 1;
        let Some(parts) = parts.filter(|_| once) else {
            return Err(Error::new(
                format!("the template {template:?} must have {TEXT} once and then {LABEL} once"),
                "such as 'Text: {text}\\nLabel: {label}\\n\\n'",
            ));
        };
        let template = parts.map(str::to_owned);
        Ok(Self { open, model: open.generates()?, tokenizer, template, labels, cut: 0 })
    }

    fn curve(
        &mut self,
        asking: &Asking,
        progress: &mut dyn FnMut(f64),
        ask: impl Fn(usize, u64) -> Asked,
    ) -> Result<Curve> {
        let mut points = Vec::new();
        let all = (asking.shots.len() * asking.questions) as f64;
        for (at, shots) in asking.shots.iter().enumerate() {
            let (mut right, mut f1) = (0, None);
            for number in 0..asking.questions {
                let asked = ask(*shots, number as u64);
                match &asked.right {
                    Right::Label(label) => {
                        right += usize::from(self.choose(&asked)? == *label);
                    }
                    Right::Text(text) => {
                        let said = self.write(&asked)?;
                        let right_ones = [text.clone()];
                        let (_, words) = crate::metrics::answer_scores(&said, &right_ones);
                        right += usize::from(said.trim() == text.trim());
                        *f1.get_or_insert(0.0) += words / asking.questions as f64;
                    }
                }
                progress((at * asking.questions + number + 1) as f64 / all);
            }
            let n = asking.questions as f64;
            let accuracy = right as f64 / n;
            let margin = 1.96 * (accuracy * (1.0 - accuracy) / n).sqrt();
            points.push(Point { shots: *shots, accuracy, margin, f1, best: None });
        }
        Ok(Curve { points, questions: asking.questions, majority: None, cut: self.cut })
    }

    /// The text, cut if it has more than `most` tokens.
    fn shortened(&mut self, text: &str, most: usize) -> Result<String> {
        let ids = self.tokenizer.encode(text)?;
        if ids.len() <= most {
            return Ok(text.to_owned());
        }
        self.cut += 1;
        self.tokenizer.decode(&ids[..most])
    }

    /// The tokens of the prompt, up to where the answer would stand, and the white space that
    /// belongs to the answer: " yes" is one token, where " " and "yes" are two.
    fn prompt(&mut self, asked: &Asked, answer: usize) -> Result<(Vec<u32>, String)> {
        let [before, between, after] = self.template.clone();
        // What is around a text may be cut into tokens in another way together with it: one more on
        // each side.
        let frame = match self.tokenizer.encode(&format!("{before}{between}{after}"))?.len() {
            0 => 0,
            tokens => tokens + 2,
        };
        let parts = asked.examples.len() + 1;
        let labels = asked.examples.iter().map(|(_, label)| self.tokenizer.encode(label));
        let labels: usize = labels.map(|ids| ids.map(|ids| ids.len())).sum::<Result<usize>>()?;
        // Texts share equally what the rest leaves of the context.
        let fixed = parts * frame + labels + answer;
        let most = self.model.context().saturating_sub(1 + fixed) / parts;
        if most < 1 {
            let (context, shots) = (self.model.context(), parts - 1);
            return Err(Error::new(
                format!("{shots} examples do not fit into the model's context of {context} tokens"),
                "ask for fewer with --shots, or use a shorter --template",
            ));
        }
        let mut text = String::new();
        for (example, label) in &asked.examples {
            let example = self.shortened(example, most)?;
            text.push_str(
                &[&before, &example, &between, label, &after].map(String::as_str).concat(),
            );
        }
        let question = self.shortened(&asked.text, most)?;
        text.push_str(&[&before, &question, &between].map(String::as_str).concat());
        let end = text.trim_end().len();
        let gap = text.split_off(end);
        let ids = self.open.prompt(self.tokenizer, &text)?;
        let room = self.model.context().saturating_sub(answer);
        if ids.len() > room {
            let message = format!("a prompt of {} tokens does not fit", ids.len());
            return Err(Error::new(message, "ask for fewer examples with --shots"));
        }
        Ok((ids, gap))
    }

    /// The place of the most probable label.
    fn choose(&mut self, asked: &Asked) -> Result<usize> {
        let encode = |label: &String| self.tokenizer.encode(label);
        let longest = self.labels.iter().map(encode).map(|ids| ids.map(|ids| ids.len()));
        let longest = longest.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or(1) + 1;
        let (prompt, gap) = self.prompt(asked, longest)?;
        let labels =
            self.labels.iter().map(|label| self.tokenizer.encode(&format!("{gap}{label}")));
        let labels: Vec<Vec<u32>> = labels.collect::<Result<_>>()?;
        if let Some(empty) = labels.iter().position(Vec::is_empty) {
            let message = format!("the label {:?} has no tokens", self.labels[empty]);
            return Err(Error::new(message, "give every label a name that the tokenizer knows"));
        }
        let scores = self.scores(&prompt, &labels);
        let best = (0..scores.len()).rev().max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
        Ok(best.unwrap_or(0))
    }

    /// Σ ln p(token) of each continuation of a prompt.
    fn scores(&self, prompt: &[u32], continuations: &[Vec<u32>]) -> Vec<f64> {
        no_grad(|| {
            let single = continuations.iter().all(|ids| ids.len() == 1);
            // A single token needs no row of its own: what follows the prompt says it all.
            let rows = if single { 1 } else { continuations.len() };
            let longest = continuations.iter().map(Vec::len).max().unwrap_or(1).max(1);
            let length = prompt.len() + longest - 1;
            let mut ids = vec![0; rows * length];
            let mut lengths = Vec::new();
            for (row, continuation) in ids.chunks_exact_mut(length).zip(continuations) {
                let known = &continuation[..continuation.len().saturating_sub(1)];
                row[..prompt.len()].copy_from_slice(prompt);
                row[prompt.len()..prompt.len() + known.len()].copy_from_slice(known);
                lengths.push(prompt.len() + known.len());
            }
            let tokens = Tokens::new(&ids, rows).laid_out(Layout::padded(&lengths));
            let hidden = self.model.hidden(&tokens, &Pass::evaluate()); // (rows, T, C)
            let mut scores = Vec::new();
            for (row, continuation) in continuations.iter().enumerate() {
                let first = row % rows * length + prompt.len() - 1;
                let places: Vec<u32> =
                    (first..first + continuation.len()).map(|p| p as u32).collect();
                let states = select_rows(&hidden, &places);
                let logits = self.model.logits_of(&states, &Pass::evaluate()).into_value();
                let width = logits.shape().width().max(1);
                let rows = logits.data().chunks_exact(width).zip(continuation);
                scores.push(-rows.map(|(z, id)| judge(z, *id as usize, 1.0).1).sum::<f64>());
            }
            scores
        })
    }

    /// What the model writes as the answer.
    fn write(&mut self, asked: &Asked) -> Result<String> {
        let most_tokens = MOST_WRITTEN.min(self.model.context() / 3);
        let (prompt, _) = self.prompt(asked, most_tokens)?;
        let request = Request {
            sampling: Sampling::greedy(),
            ends: self.open.ends(Some(self.tokenizer)),
            constraints: self.open.special.constraints.clone(),
            ..Request::new(prompt, most_tokens)
        };
        let decode = |ids: &[u32]| self.tokenizer.decode_known(ids);
        let mut stream = TextStream::new(decode, vec!["\n".to_owned()]);
        let mut text = String::new();
        generate(self.model, &request, |step| {
            text.push_str(&stream.push(step.id));
            if stream.stopped() { Flow::Stop } else { Flow::Continue }
        })?;
        text.push_str(&stream.finish());
        Ok(text.trim().to_owned())
    }
}

impl Curve {
    /// Accuracy against the number of examples.
    pub fn chart(&self) -> Chart {
        let mut chart = Chart::new("Learning from examples", "examples in the prompt", "accuracy");
        let mut points: Vec<&Point> = self.points.iter().collect();
        points.sort_by_key(|point| point.shots);
        let curve = |y: &dyn Fn(&Point) -> Option<f64>| -> Vec<(f64, f64)> {
            points.iter().filter_map(|p| Some((p.shots as f64, y(p)?))).collect()
        };
        let most = points.last().map_or(0.0, |point| point.shots as f64);
        let mut add = |name: &str, color, points: Vec<(f64, f64)>, mark| {
            if !points.is_empty() {
                chart.series.push(Series { name: name.to_owned(), color, points, mark });
            }
        };
        if let Some(share) = self.majority {
            add("always the same label", GREY, vec![(0.0, share), (most, share)], Mark::Dashes);
        }
        add("best possible", GREEN, curve(&|p| p.best), Mark::Dashes);
        add("F1 of words", GREEN, curve(&|p| p.f1), Mark::Dots);
        add("accuracy", BLUE, curve(&|p| Some(p.accuracy)), Mark::Dots);
        chart
    }
}

#[cfg(test)]
mod tests;
