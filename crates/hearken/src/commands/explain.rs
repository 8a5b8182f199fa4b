//! `hearken explain`: a prompt's way through a model, and the way back, number by number.

mod page;
mod terminal;

use crate::failure::Failure;
use crate::machine;
use crate::model::{ModelArguments, TokenizerArguments, parse_ids};
use hearken::data::tokenizer::{Pieces, Tokenizer};
use hearken::explain::arithmetic::line;
use hearken::explain::attribution::{contributions, lens};
use hearken::explain::update::Updates;
use hearken::explain::{Flow, Focus, Stage, intervene, roles};
use hearken::infer::sampler::Sampling;
use hearken::nn::models::Model;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;

/// Show every number on a prompt's way through a model, with the arithmetic behind it.
///
/// Each stage has a sentence, its formula, its shape, some of its numbers, and one number with the sum
/// that it comes from. With --target, the loss of that token, the gradient at every stage, what each
/// head does to the loss, and one step of the optimiser, which is not saved.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokenizer: TokenizerArguments,

    /// The text
    #[arg(long, value_name = "TEXT", required_unless_present_any = ["ids", "page"])]
    prompt: Option<String>,

    /// Tokens instead of a text, such as 1,2,3
    #[arg(long, value_name = "IDS", conflicts_with = "prompt")]
    ids: Option<String>,

    /// The token that should follow (its text or its number); of a classifier, a label's number
    #[arg(long, value_name = "TOKEN")]
    target: Option<String>,

    /// The block whose stages are shown
    #[arg(long, value_name = "N", default_value_t = 0)]
    layer: usize,

    /// The head that is looked at
    #[arg(long, value_name = "N", default_value_t = 0)]
    head: usize,

    /// The token that is looked at [default: the last]
    #[arg(long, value_name = "N")]
    token: Option<usize>,

    /// The column that is looked at: a dimension, or a key
    #[arg(long, value_name = "N", default_value_t = 0)]
    column: usize,

    /// Logits are divided by it
    #[arg(long, value_name = "T", default_value_t = 1.0)]
    temperature: f32,

    /// Choose among the K most likely tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,

    /// Choose among the most likely tokens that together reach this probability
    #[arg(long, value_name = "P")]
    top_p: Option<f32>,

    /// Choose among tokens at least P times as likely as the most likely one
    #[arg(long, value_name = "P")]
    min_p: Option<f32>,

    /// The same seed draws the same token
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// The learning rate of the optimiser's step
    #[arg(long, value_name = "LR", default_value_t = 1e-3)]
    lr: f64,

    /// Write one JSON object, with all numbers of the chosen block
    #[arg(long)]
    json: bool,

    /// Serve a page on this machine that shows all of this and more, for any prompt
    #[arg(long, conflicts_with_all = ["json", "out"])]
    page: bool,

    /// The port of the page [default: a free one]
    #[arg(long, value_name = "N", requires = "page")]
    port: Option<u16>,

    /// Write the page with the numbers of this prompt to one file
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    out: Option<PathBuf>,
}

const HELP: &str = "\
Examples:
  hearken explain --model DIR --prompt 'The cat sat on' --target ' the'
  hearken explain --model DIR --prompt 'The cat sat on' --layer 1 --head 2 --token 3 --column 1
  hearken explain --model DIR --ids 1,2,3 --target 4 --json
  hearken explain --model DIR --page
  hearken explain --model DIR --prompt 'The cat sat on' --out page.html

Keys of --json:
  tokens            per token: id, text, bytes, its characters (start) and the merges after that
  stages            per stage of the chosen block and of what surrounds the blocks: name, sentence,
                    formula, shape, values, place, arithmetic; with --target gradient, gradient_norm
  heads             per head: layer, head, entropy, role, score
  candidates, chosen   what may follow, and what is drawn; of decoders
  lens, contributions  of decoders with pre-norm
  loss, effects, update   with --target";

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let sampling = Sampling {
        temperature: arguments.temperature,
        top_k: arguments.top_k,
        top_p: arguments.top_p,
        min_p: arguments.min_p,
        seed: arguments.seed,
        ..Sampling::default()
    };
    sampling.validate()?;
    if !(arguments.lr.is_finite() && arguments.lr > 0.0) {
        let message = format!("--lr {} is no learning rate", arguments.lr);
        return Err(Failure::input(message, "write --lr 0.001"));
    }
    let open = arguments.model.open()?;
    if open.model.translates().is_some() {
        return Err(Failure::input(
            "explain follows one text through a decoder or an encoder, not a source and a target",
            "'hearken inspect trace --ids SOURCE --decoder-ids TARGET' writes every value",
        ));
    }
    let tokenizer = arguments.tokenizer.of(&open)?;
    if arguments.page || arguments.out.is_some() {
        return page::run(arguments, open, tokenizer);
    }
    let ids = prompt_ids(arguments, tokenizer.as_ref())?;
    let model = open.model.as_ref();
    let place = ids.len().saturating_sub(1);
    let target = match &arguments.target {
        Some(text) => Some((place, target_id(text, model, tokenizer.as_ref())?)),
        None => None,
    };
    let stack = hearken::explain::stack_of(&model.config())?.clone();
    numbered("block", arguments.layer, stack.layers)?;
    numbered("head", arguments.head, stack.heads)?;
    numbered("token", arguments.token.unwrap_or(place), ids.len())?;
    let most_bytes = machine::available_bytes().map(|free| free / 2);
    let flow = Flow::of(model, &ids, target, most_bytes)?;
    let focus = Focus {
        head: arguments.head,
        token: arguments.token.unwrap_or(place),
        column: arguments.column,
    };
    let widths = flow.stages.iter().filter_map(|stage| stage.shape.last().copied());
    numbered("column", arguments.column, widths.max().unwrap_or(1))?;
    let report =
        Report { arguments, model, tokenizer: tokenizer.as_ref(), flow, focus, target, sampling };
    let found = report.json()?;
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{found:#}")?;
        return Ok(());
    }
    report.write(&found, &mut out)
}

/// There are `count` of these, from 0.
fn numbered(what: &str, asked: usize, count: usize) -> Result<(), Failure> {
    if asked < count {
        return Ok(());
    }
    let hint = format!("{what}s are 0 to {}", count.saturating_sub(1));
    Err(Failure::input(format!("there is no {what} {asked}"), hint))
}

fn prompt_ids(arguments: &Arguments, tokenizer: Option<&Tokenizer>) -> Result<Vec<u32>, Failure> {
    if let Some(ids) = &arguments.ids {
        return parse_ids(ids).map_err(|message| Failure::input(message, "write --ids 1,2,3"));
    }
    let text = arguments.prompt.as_deref().unwrap_or_default();
    let Some(tokenizer) = tokenizer else {
        let message = "the model has no tokenizer.json";
        return Err(Failure::input(message, "name one with --tokenizer, or give --ids 1,2,3"));
    };
    let ids = tokenizer.encode_allowing_special(text)?;
    if ids.is_empty() {
        return Err(Failure::input("an empty prompt", "give at least one token"));
    }
    Ok(ids)
}

/// A token's number, or its text.
fn target_id(text: &str, model: &dyn Model, tokenizer: Option<&Tokenizer>) -> Result<u32, Failure> {
    if let (Some(tokenizer), true) = (tokenizer, model.predicts_tokens().is_some()) {
        let ids = tokenizer.encode_allowing_special(text)?;
        if let [id] = ids[..] {
            return Ok(id);
        }
        if text.parse::<u32>().is_err() {
            let message = format!("'{text}' is {} tokens, expected one", ids.len());
            return Err(Failure::input(
                message,
                "a word often begins with a blank: --target ' the'",
            ));
        }
    }
    text.parse().map_err(|_| {
        Failure::input(format!("'{text}' is no target"), "give the number of a token or a label")
    })
}

struct Report<'a> {
    arguments: &'a Arguments,
    model: &'a dyn Model,
    tokenizer: Option<&'a Tokenizer>,
    flow: Flow,
    focus: Focus,
    target: Option<(usize, u32)>,
    sampling: Sampling,
}

impl Report<'_> {
    fn text(&self, id: u32) -> String {
        self.tokenizer.and_then(|t| t.decode(&[id]).ok()).unwrap_or_else(|| id.to_string())
    }

    /// The stages around the blocks, and those of the chosen block.
    fn stages(&self) -> impl Iterator<Item = &Stage> {
        let shown = |block| block == self.arguments.layer;
        self.flow.stages.iter().filter(move |stage| stage.block().is_none_or(shown))
    }

    fn json(&self) -> Result<Value, Failure> {
        let pieces = self.tokenizer.map(Pieces::of).transpose()?;
        let token = |id: &u32| {
            let mut token = json!({ "id": id, "text": self.text(*id) });
            if let Some(pieces) = &pieces {
                let (start, merges) = pieces.merges(*id);
                let merges = merges.iter().map(|m| json!({ "rank": m.rank, "pieces": m.pieces }));
                token["bytes"] = json!(pieces.bytes(*id));
                token["start"] = json!(start);
                token["merges"] = merges.collect::<Vec<_>>().into();
            }
            token
        };
        let mut report = json!({
            "tokens": self.flow.ids.iter().map(token).collect::<Vec<_>>(),
            "stages": self.stages().map(|stage| self.stage(stage)).collect::<Vec<_>>(),
        });
        let heads = roles::roles(&self.flow).into_iter().map(|head| {
            json!({ "layer": head.layer, "head": head.head, "entropy": head.entropy,
                "role": head.role.map(|(name, _)| name), "score": head.role.map(|(_, s)| s) })
        });
        report["heads"] = heads.collect::<Vec<_>>().into();
        let last = self.flow.ids.len() - 1;
        if self.model.generates().is_some()
            && let Some(logits) = self.flow.value("logits")
        {
            let width = logits.shape().width();
            let logits = &logits.data()[last * width..];
            let candidates = self.sampling.candidates(logits, &self.flow.ids);
            let one = |c: &hearken::infer::sampler::Candidate| {
                let (id, temperature) = (c.id as usize, self.sampling.temperature);
                let scaled = logits[id] / if temperature == 0.0 { 1.0 } else { temperature };
                json!({ "id": c.id, "text": self.text(c.id), "logit": logits[id],
                    "scaled": scaled, "probability": c.probability })
            };
            let first: Vec<Value> = candidates.iter().take(20).map(one).collect();
            report["candidates"] = json!({ "left": candidates.len(), "of": width, "first": first });
            let chosen = self.sampling.choose(logits, &self.flow.ids, last as u64);
            report["chosen"] = json!({ "id": chosen.id, "text": self.text(chosen.id) });
            // Only pre-norm decoders are sums of parts.
            if let Ok(glimpses) = lens(self.model, &self.flow, last, 3) {
                let glimpses = glimpses.into_iter().map(|g| {
                    let likeliest = g.likeliest.into_iter().map(
                        |(id, p)| json!({ "id": id, "text": self.text(id), "probability": p }));
                    json!({ "stage": g.stage, "norm": g.norm, "likeliest": likeliest.collect::<Vec<_>>() })
                });
                report["lens"] = glimpses.collect::<Vec<_>>().into();
                let id = self.target.map_or(chosen.id, |(_, id)| id);
                let parts = contributions(self.model, &self.flow, last, id)?;
                let parts = parts.into_iter().map(|c| json!({ "part": c.part, "logit": c.logit }));
                report["contributions"] = parts.collect::<Vec<_>>().into();
            }
        }
        if let Some(target) = self.target {
            report["loss"] = json!(self.flow.loss);
            let effects = intervene::heads(self.model, &self.flow, target)?.into_iter().map(|e| {
                json!({ "layer": e.layer, "head": e.head, "attention": e.attention, "rise": e.rise })
            });
            report["effects"] = effects.collect::<Vec<_>>().into();
            report["update"] = self.update(target)?;
        }
        Ok(report)
    }

    fn stage(&self, stage: &Stage) -> Value {
        let (index, place) = stage.at(self.focus);
        // JSON has no infinities: hidden scores are null.
        let mut value = json!({ "name": stage.name, "sentence": stage.sentence,
            "formula": stage.formula, "shape": stage.shape, "values": stage.value.data(),
            "place": place, "value": stage.value.data().get(index),
            "arithmetic": line(self.model, &self.flow, stage, self.focus).map(|line| line.text) });
        if let Some(gradient) = &stage.gradient {
            value["gradient"] = json!(gradient.data());
            value["gradient_norm"] = json!(stage.gradient_norm());
        }
        value
    }

    /// A step of AdamW, taken and taken back, and what it did to one weight.
    fn update(&self, target: (usize, u32)) -> Result<Value, Failure> {
        let name = format!("blocks.{}.attention.qkv.weight", self.arguments.layer);
        let Some(weight) = hearken::explain::parameter(self.model, &name) else {
            return Ok(Value::Null);
        };
        let most = machine::available_bytes().map(|free| free as u64 / 2);
        let bytes = Updates::bytes(self.model, 1);
        let mut updates = match Updates::new(self.model, self.arguments.lr, 1.0, 1, most) {
            Ok(updates) => updates,
            Err(error) => return Ok(json!({ "refused": error.message(), "bytes": bytes })),
        };
        let index = self.focus.column.min(weight.shape().len().saturating_sub(1));
        let before = weight.value().data()[index];
        let step = updates.step(&self.flow.ids, target)?;
        let after = weight.value().data()[index];
        let (m, v) =
            (updates.moment("first", &name, index), updates.moment("second", &name, index));
        updates.undo();
        Ok(json!({ "bytes": bytes, "weight": name, "index": index, "before": before,
            "after": after, "m": m, "v": v, "lr": self.arguments.lr,
            "gradient_norm": step.gradient_norm, "clip_factor": step.clip_factor,
            "loss_before": step.before, "loss_after": step.after }))
    }
}
