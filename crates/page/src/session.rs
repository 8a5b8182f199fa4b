//! A model that is being looked at: questions in, answers out.

use crate::Subject;
use crate::answers;
use crate::ask::Ask;
use hearken_base::{Error, Result};
use hearken_data::tokenizer::Pieces;
use hearken_explain::geometry::Plane;
use hearken_explain::neurons::Neurons;
use hearken_explain::update::Updates;
use hearken_explain::{Flow, checked};
use hearken_nn::models::Model;
use hearken_nn::taps::Pattern;
use hearken_tensor::Tensor;
use serde_json::Value;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;

/// Flows up to this size are kept whole; of longer prompts single values are computed when asked for.
const WHOLE: u64 = 384 << 20;
/// So many flows are kept: a page alternates between two prompts at most.
const KEPT: usize = 2;
/// So many single values of long prompts are kept.
const KEPT_VALUES: usize = 6;
/// The longest text.
const MOST_TEXT: usize = 1 << 16;

/// Answers questions about one model.
pub struct Session<'a> {
    pub(crate) subject: &'a Subject,
    pub(crate) pieces: Option<Pieces<'a>>,
    /// The stages of one token, with their shapes: what there is.
    pub(crate) outline: Vec<(String, Vec<usize>)>,
    pub(crate) updates: Option<Updates<'a>>,
    pub(crate) plane: Option<Plane>,
    /// Of each layer that was asked for, over the texts.
    pub(crate) neurons: Vec<Neurons>,
    flows: VecDeque<Kept>,
    values: VecDeque<(Vec<u32>, String, Tensor)>,
}

struct Kept {
    target: Option<(usize, u32)>,
    flow: Rc<Flow>,
    milliseconds: f64,
}

impl<'a> Session<'a> {
    /// The questions that are answered.
    pub const QUESTIONS: [&'static str; 18] = [
        "model",
        "tokens",
        "run",
        "tensor",
        "number",
        "heads",
        "stream",
        "lens",
        "sample",
        "logits",
        "cache",
        "check",
        "update",
        "intervene",
        "effects",
        "nearest",
        "plane",
        "neurons",
    ];

    /// Begins with a look at what values the model has.
    pub fn new(subject: &'a Subject) -> Result<Self> {
        let pieces = subject.tokenizer.as_ref().map(Pieces::of).transpose()?;
        let first = subject.ids.first().copied().unwrap_or(0);
        let source =
            subject.sources.as_ref().map(|sources| (&sources.source, sources.source.ids()));
        if let Some((source, ids)) = &source {
            source.set(&ids[..ids.len().min(1)]);
        }
        let flow = Flow::of(subject.model.as_ref(), &[first], None, None);
        if let Some((source, ids)) = &source {
            source.set(ids);
        }
        let flow = flow?;
        let outline = flow.stages.into_iter().map(|stage| (stage.name, stage.shape)).collect();
        Ok(Self {
            subject,
            pieces,
            outline,
            updates: None,
            plane: None,
            neurons: Vec::new(),
            flows: VecDeque::new(),
            values: VecDeque::new(),
        })
    }

    /// The answer to a question by its name: one of [`Session::QUESTIONS`].
    pub fn answer(&mut self, name: &str, body: &Value) -> Result<Value> {
        let ask = Ask(body);
        self.read_source(ask)?;
        match name {
            "model" => answers::model::model(self),
            "tokens" => answers::model::tokens(self, ask),
            "run" => answers::values::run(self, ask),
            "tensor" => answers::values::tensor(self, ask),
            "number" => answers::values::number(self, ask),
            "heads" => answers::attention::heads(self, ask),
            "stream" => answers::prediction::stream(self, ask),
            "lens" => answers::prediction::lens(self, ask),
            "sample" => answers::prediction::sample(self, ask),
            "logits" => answers::prediction::logits(self, ask),
            "cache" => answers::cache::cache(self, ask),
            "check" => answers::learning::check(self, ask),
            "update" => answers::learning::update(self, ask),
            "intervene" => answers::changes::intervene(self, ask),
            "effects" => answers::changes::effects(self, ask),
            "nearest" => answers::geometry::nearest(self, ask),
            "plane" => answers::geometry::plane(self, ask),
            "neurons" => answers::neurons::neurons(self, ask),
            _ => {
                Err(Error::new(format!("there is no question '{name}'"), "see Session::QUESTIONS"))
            }
        }
    }

    /// Forgets what was computed: the weights have changed.
    pub(crate) fn forget(&mut self) {
        self.flows.clear();
        self.values.clear();
        self.plane = None;
        self.neurons.clear();
    }

    /// The source of the question, of a model that reads one.
    fn read_source(&mut self, ask: Ask<'_>) -> Result<()> {
        let Some(sources) = &self.subject.sources else { return Ok(()) };
        let ids = ask.ids("source")?;
        if ids.is_empty() || ids == sources.source.ids() {
            return Ok(());
        }
        checked(self.model(), &ids)?;
        sources.source.set(&ids);
        self.flows.clear();
        self.values.clear();
        Ok(())
    }

    /// The tokens of the source, of a model that reads one.
    pub(crate) fn source(&self) -> Vec<u32> {
        self.subject.sources.as_ref().map(|sources| sources.source.ids()).unwrap_or_default()
    }

    pub(crate) fn model(&self) -> &'a dyn Model {
        self.subject.model.as_ref()
    }

    /// The text of a token.
    pub(crate) fn text(&self, id: u32) -> String {
        self.pieces.as_ref().map_or_else(|| id.to_string(), |pieces| pieces.text(id))
    }

    /// The tokens of the question, which the model can read.
    pub(crate) fn ids(&self, ask: Ask<'_>) -> Result<Vec<u32>> {
        let ids = ask.ids("ids")?;
        checked(self.model(), &ids)?;
        Ok(ids)
    }

    /// The tokens of a prompt, after the token that begins texts, if there is one; of an encoder-decoder, a
    /// target after the token that begins targets.
    pub(crate) fn encode_prompt(&self, text: &str) -> Result<Vec<u32>> {
        let Some(sources) = &self.subject.sources else {
            let mut ids = self.encode(text)?;
            ids.splice(0..0, self.subject.begin.filter(|begin| ids.first() != Some(begin)));
            return Ok(ids);
        };
        let mut ids = if text.is_empty() { Vec::new() } else { self.encode(text)? };
        if ids.first() != Some(&sources.begin) {
            ids.insert(0, sources.begin);
        }
        Ok(ids)
    }

    /// The tokens of a source, its end included.
    pub(crate) fn encode_source(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = self.encode(text)?;
        if let Some(end) = self.subject.sources.as_ref().and_then(|sources| sources.end) {
            ids.extend((ids.last() != Some(&end)).then_some(end));
        }
        Ok(ids)
    }

    /// The tokens of a text.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        if text.len() > MOST_TEXT {
            return Err(Error::new(
                format!("a text of {} bytes, expected at most {MOST_TEXT}", text.len()),
                "give a shorter one",
            ));
        }
        let Some(tokenizer) = &self.subject.tokenizer else {
            let hint = "write tokens as numbers: 1,2,3";
            return Err(Error::new("the model has no tokenizer", hint));
        };
        let ids = tokenizer.encode_allowing_special(text)?;
        checked(self.model(), &ids)?;
        Ok(ids)
    }

    /// The text that has these tokens, if there is one: tokens of whole words have blanks between them.
    pub(crate) fn text_of(&self, ids: &[u32]) -> Option<String> {
        let tokenizer = self.subject.tokenizer.as_ref()?;
        let text = tokenizer.decode(ids).ok()?;
        let again = tokenizer.encode_allowing_special(&text).ok()?;
        (again == ids).then_some(text)
    }

    /// Bytes that all values of so many tokens take.
    fn bytes_of(&self, tokens: usize) -> u64 {
        let one = |(name, shape): &(String, Vec<usize>)| {
            let numbers = shape.iter().product::<usize>() as u64 * tokens as u64;
            4 * if is_square(name) { numbers * tokens as u64 } else { numbers }
        };
        self.outline.iter().map(one).sum()
    }

    /// Are so many tokens too many to keep all of their values?
    pub(crate) fn is_long(&self, tokens: usize) -> bool {
        self.bytes_of(tokens.max(self.source().len())) > WHOLE
    }

    /// The stages of a prompt; of a long one only those of the residual stream and the logits. One
    /// that has a target serves questions without one.
    pub(crate) fn flow(&mut self, ids: &[u32], target: Option<(usize, u32)>) -> Result<Rc<Flow>> {
        let fits =
            |kept: &Kept| kept.flow.ids == ids && (kept.target == target || target.is_none());
        if let Some(at) = self.flows.iter().position(fits)
            && let Some(kept) = self.flows.remove(at)
        {
            let flow = kept.flow.clone();
            self.flows.push_front(kept);
            return Ok(flow);
        }
        let only = if self.is_long(ids.len()) {
            let kept =
                |name: &str| name.contains("residual_") || ["norm", "logits"].contains(&name);
            let names = self.outline.iter().map(|(name, _)| name).filter(|name| kept(name));
            names.map(|name| Pattern::parse(name)).collect::<Result<Vec<_>>>()?
        } else {
            Vec::new()
        };
        let most = self.subject.most_bytes.map(|most| most as usize);
        let start = Instant::now();
        let flow = Flow::only(self.model(), ids, target, only, most)?;
        let flow = Rc::new(flow.about(self.source()));
        let milliseconds = start.elapsed().as_secs_f64() * 1e3;
        // A flow with a target replaces the same one without.
        self.flows.retain(|kept| kept.flow.ids != ids);
        self.flows.push_front(Kept { target, flow: flow.clone(), milliseconds });
        self.flows.truncate(KEPT);
        Ok(flow)
    }

    /// How long the pass took that gave this flow.
    pub(crate) fn took(&self, flow: &Rc<Flow>) -> Option<f64> {
        let kept = self.flows.iter().find(|kept| Rc::ptr_eq(&kept.flow, flow));
        kept.map(|kept| kept.milliseconds)
    }

    /// One value of a long prompt, by a name of [`hearken_nn::taps`], perhaps with a head.
    pub(crate) fn value(&mut self, ids: &[u32], name: &str) -> Result<Tensor> {
        let fits = |(kept, of, _): &&(Vec<u32>, String, Tensor)| kept == ids && of == name;
        if let Some((_, _, tensor)) = self.values.iter().find(fits) {
            return Ok(tensor.clone());
        }
        // Who looks at weights looks at scores next: one pass for both.
        let (weights, scores) = (".attention.weights[", ".attention.scores[");
        let pair = [name.replace(weights, scores), name.replace(scores, weights)];
        let names: &[String] = if pair[0] == pair[1] { &pair[..1] } else { &pair };
        let only = names.iter().map(|name| Pattern::parse(name)).collect::<Result<Vec<_>>>()?;
        let most = self.subject.most_bytes.map(|most| most as usize);
        let flow = Flow::only(self.model(), ids, None, only, most)?;
        for stage in flow.stages {
            self.values.push_front((ids.to_vec(), stage.name, stage.value));
        }
        self.values.truncate(KEPT_VALUES);
        let found = self.values.iter().find(fits).map(|(_, _, tensor)| tensor.clone());
        found.ok_or_else(|| Error::new(format!("no value is called '{name}'"), "see the map"))
    }

    /// The weights of all heads of an attention layer of a long prompt, in one pass; not kept.
    pub(crate) fn all_heads(&self, ids: &[u32], name: &str) -> Result<Vec<Tensor>> {
        let only = vec![Pattern::parse(&format!("{name}[*]"))?];
        let most = self.subject.most_bytes.map(|most| most as usize);
        let flow = Flow::only(self.model(), ids, None, only, most)?;
        Ok(flow.stages.into_iter().map(|stage| stage.value).collect())
    }
}

/// Does this value have a number for every pair of tokens?
pub(crate) fn is_square(name: &str) -> bool {
    name.ends_with("attention.scores") || name.ends_with("attention.weights")
}
