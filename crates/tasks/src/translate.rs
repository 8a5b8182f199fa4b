//! Texts through an encoder-decoder: translations of any number of texts, decoded together, and where
//! the model looked while it wrote.

use crate::cut::Cut;
use crate::open::OpenModel;
use crate::seq2seq::framed;
use hearken_base::{Error, Result};
use hearken_data::batches::Frame;
use hearken_data::tokenizer::Tokenizer;
use hearken_formats::SpecialTokens;
use hearken_infer::engine::with_translator;
use hearken_infer::sampler::Sampling;
use hearken_infer::translate::{Strategy, Translating};
use hearken_nn::cache::CacheKind;
use hearken_nn::models::{Tokens, Translates};
use hearken_nn::pass::Pass;
use hearken_nn::taps::Taps;
use hearken_show::grid::Grid;
use hearken_tensor::no_grad;
use std::sync::Arc;

/// Sequences that are decoded together: enough to keep all threads busy.
const TOGETHER: usize = 64;

/// The best translation of each source as tokens, without its end; none has more than the model's
/// context.
pub(crate) fn tokens_by(
    model: &dyn Translates,
    special: &SpecialTokens,
    sources: &[Vec<u32>],
    how: &Options,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<Vec<u32>>> {
    let mut all = written_by(model, special, sources, how, progress)?;
    for tokens in &mut all {
        tokens.retain(|id| !special.ends.contains(id));
    }
    Ok(all)
}

/// The same with the token that ends it, if it has ended.
pub(crate) fn written_by(
    model: &dyn Translates,
    special: &SpecialTokens,
    sources: &[Vec<u32>],
    how: &Options,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<Vec<u32>>> {
    let how = how.with(special);
    let count = sources.len().max(1) as f64;
    let found = translate(model, sources, &how, &mut |done| progress(done as f64 / count))?;
    let best = |found: Vec<Candidate>| found.into_iter().next().map(|best| best.tokens);
    Ok(found.into_iter().map(|found| best(found).unwrap_or_default()).collect())
}

/// A translation as tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// With the token that ends it, if it has ended.
    pub tokens: Vec<u32>,
    /// Σ ln p / nᵅ
    pub score: f64,
}

/// The translations of each source, best first. `progress` is called with how many sources are done.
fn translate(
    model: &dyn Translates,
    sources: &[Vec<u32>],
    how: &Translating,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Vec<Candidate>>> {
    // Sources of about the same length are read together; the longest come first, since they take
    // the longest.
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(sources[*i].len()));
    with_translator(model, TOGETHER, |client| {
        let pending: Result<Vec<_>> =
            order.iter().map(|i| client.translate(&sources[*i], how)).collect();
        let mut found = vec![Vec::new(); sources.len()];
        for (done, (i, pending)) in order.iter().zip(pending?).enumerate() {
            let candidates = pending.wait()?.into_iter();
            found[*i] =
                candidates.map(|c| Candidate { tokens: c.tokens, score: c.score }).collect();
            progress(done + 1);
        }
        Ok(found)
    })
}

/// A translation.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// As text; without a tokenizer, its tokens by number.
    pub text: String,
    /// As tokens, without the one that ends it.
    pub tokens: Vec<u32>,
    /// The token that ended it; none, if it came to its limit.
    pub end: Option<u32>,
    /// Σ ln p / nᵅ
    pub score: f64,
}

/// How texts are translated.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most tokens of a translation; the model's context, unless given.
    pub most_tokens: Option<usize>,
    /// α: a translation of n tokens scores Σ ln p / nᵅ.
    pub length_penalty: f32,
    /// How keys and values are kept.
    pub cache: CacheKind,
    /// How tokens are chosen.
    pub strategy: Strategy,
}

impl Default for Options {
    /// Greedily.
    fn default() -> Self {
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        Self {
            most_tokens: None,
            length_penalty: 1.0,
            cache: CacheKind::F32,
            strategy: Strategy::Sampled(greedy, 1),
        }
    }
}

impl Options {
    /// The same, between these tokens, which [`framed`] has completed.
    fn with(&self, special: &SpecialTokens) -> Translating {
        Translating {
            begin: special.begin.unwrap_or_default(),
            ends: special.ends.clone(),
            constraints: special.constraints.clone(),
            most_tokens: self.most_tokens.unwrap_or(usize::MAX),
            length_penalty: self.length_penalty,
            cache: self.cache,
            strategy: self.strategy,
        }
    }
}

/// Sources as the model reads them.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The tokens of each.
    pub list: Vec<Vec<u32>>,
    /// How many texts were too long and lost tokens.
    pub cut: Cut,
}

/// An encoder-decoder with its tokenizer; without one it translates tokens.
pub struct Translator<'a> {
    open: &'a OpenModel,
    model: &'a dyn Translates,
    tokenizer: Option<&'a Tokenizer>,
    frame: Frame,
    special: SpecialTokens,
}

impl<'a> Translator<'a> {
    /// What begins and ends targets is what the directory says, or else what the tokenizer does.
    pub fn new(open: &'a OpenModel, tokenizer: impl Into<Option<&'a Tokenizer>>) -> Result<Self> {
        let (model, tokenizer) = (open.translates()?, tokenizer.into());
        let (frame, special) = framed(tokenizer, open.special.clone())?;
        Ok(Self { open, model, tokenizer, frame, special })
    }

    /// The token that begins targets, and the one that ends sources and targets.
    pub fn begin_and_end(&self) -> [u32; 2] {
        [self.frame.begin, self.frame.end]
    }

    /// The most tokens of a source, its end included.
    pub fn most_tokens(&self) -> usize {
        self.model.context()
    }

    /// Texts as the model reads them; what is too long is cut.
    pub fn sources(&self, texts: &[impl AsRef<str>]) -> Result<Sources> {
        let mut sources = Sources::default();
        let most = self.most_tokens();
        let without = || Error::new("the model has no tokenizer", "give the sources as tokens");
        let tokenizer = self.tokenizer.ok_or_else(without)?;
        for (i, text) in texts.iter().enumerate() {
            let mut ids = tokenizer.encode(text.as_ref())?;
            if ids.len() >= most {
                ids.truncate(most - 1);
                sources.cut.add(i);
            }
            ids.push(self.frame.end);
            sources.list.push(ids);
        }
        Ok(sources)
    }

    /// Sources as tokens, their ends included.
    pub fn sources_of_ids(&self, list: Vec<Vec<u32>>) -> Result<Sources> {
        for ids in &list {
            self.open.check(ids)?;
            if ids.is_empty() {
                return Err(Error::new("a source without tokens", "give at least its end"));
            }
        }
        Ok(Sources { list, cut: Cut::default() })
    }

    /// Are translations texts, and not tokens alone?
    pub fn has_text(&self) -> bool {
        self.tokenizer.is_some()
    }

    /// Tokens as text; without a tokenizer, their numbers.
    fn text(&self, ids: &[u32]) -> String {
        match self.tokenizer {
            Some(tokenizer) => tokenizer.decode_known(ids),
            None => ids.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
        }
    }

    /// The translations of each source, best first. `progress` is called with how many are done.
    pub fn translate(
        &self,
        sources: &Sources,
        options: &Options,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Vec<Vec<Translation>>> {
        if let Strategy::Sampled(sampling, _) = &options.strategy {
            sampling.validate()?;
        }
        let how = options.with(&self.special);
        let found = translate(self.model, &sources.list, &how, progress)?;
        let translation = |Candidate { mut tokens, score }: Candidate| {
            let ends = &self.special.ends;
            let end = tokens.last().copied().filter(|id| ends.contains(id));
            tokens.retain(|id| !ends.contains(id));
            Translation { text: self.text(&tokens), tokens, end, score }
        };
        Ok(found.into_iter().map(|all| all.into_iter().map(translation).collect()).collect())
    }

    /// Where the model looks in a source while it writes each token of a translation. The last layer
    /// and the mean over its heads, unless given.
    pub fn alignment(
        &self,
        source: &[u32],
        translation: &Translation,
        layer: Option<usize>,
        head: Option<usize>,
    ) -> Result<Alignment> {
        let written: Vec<u32> = translation.tokens.iter().copied().chain(translation.end).collect();
        let sides = [source, &written];
        Alignment::of(self.model, self.tokenizer, self.frame.begin, sides, layer, head)
    }
}

/// How much attention each token of a translation pays to each of the source.
#[derive(Clone, Debug, PartialEq)]
pub struct Alignment {
    /// The tokens of the source, for the eye.
    pub source: Vec<String>,
    /// Those of the translation, its end included, if it has ended.
    pub target: Vec<String>,
    /// A row per token of the translation, a column per token of the source; a row adds up to 1.
    pub weights: Vec<Vec<f32>>,
    /// The layer, from 0.
    pub layer: usize,
    /// The head, from 0; the mean over all, if `None`.
    pub head: Option<usize>,
}

impl Alignment {
    /// The weights with which token t of the translation was chosen: those at the place of the token
    /// before it, where the decoder predicts it.
    pub(crate) fn of(
        model: &dyn Translates,
        tokenizer: Option<&Tokenizer>,
        begin: u32,
        [source, written]: [&[u32]; 2],
        layer: Option<usize>,
        head: Option<usize>,
    ) -> Result<Self> {
        let written = &written[..written.len().min(model.context())];
        let inputs: Vec<u32> = [begin].iter().chain(written).take(written.len()).copied().collect();
        let taps = Arc::new(Taps::new().record("decoder.blocks.*.cross_attention.weights"));
        no_grad(|| {
            let sources = Tokens::new(source, 1);
            model.hidden(&Tokens::new(&inputs, 1).about(&sources), &Pass::evaluate().watched(&taps))
        });
        let seen = taps.take();
        let name = |layer: usize| format!("decoder.blocks.{layer}.cross_attention.weights");
        let layers =
            (0..=seen.len()).take_while(|i| seen.iter().any(|(seen, _)| *seen == name(*i))).count();
        if layers == 0 {
            return Err(Error::new(
                "no layer of the model attends to the source: there is no alignment",
                "a fixed vector has none: leave --show-alignment and --svg out",
            ));
        }
        let layer = layer.unwrap_or(layers - 1);
        let Some((_, weights)) = seen.iter().find(|(seen, _)| *seen == name(layer)) else {
            let message = format!("the decoder has no layer {layer} that attends to the source");
            return Err(Error::new(message, format!("it has {layers}, counted from 0")));
        };
        // (1, H, T, S)
        let each = inputs.len() * source.len();
        let heads: Vec<&[f32]> = weights.data().chunks(each.max(1)).collect();
        if let Some(head) = head.filter(|head| *head >= heads.len()) {
            let message = format!("there is no head {head}: a layer has {}", heads.len());
            return Err(Error::new(message, "heads count from 0"));
        }
        let chosen = match head {
            Some(head) => &heads[head..=head],
            None => &heads[..],
        };
        let mean = |i: usize| chosen.iter().map(|head| head[i]).sum::<f32>() / chosen.len() as f32;
        let weights = (0..inputs.len())
            .map(|t| (0..source.len()).map(|s| mean(t * source.len() + s)).collect())
            .collect();
        let shown = |ids: &[u32]| ids.iter().map(|id| shown(tokenizer, *id)).collect();
        Ok(Self { source: shown(source), target: shown(written), weights, layer, head })
    }

    /// What it is of.
    pub fn title(&self) -> String {
        match self.head {
            Some(head) => format!("layer {}, head {head}", self.layer),
            None => format!("layer {}, mean over heads", self.layer),
        }
    }

    /// A picture for a page of its own.
    pub fn svg(&self) -> String {
        let (title, cells) = (self.title(), self.weights.concat());
        self.grid(&title, &cells).large_svg()
    }

    /// A picture among others.
    pub fn small_svg(&self) -> String {
        let (title, cells) = (self.title(), self.weights.concat());
        self.grid(&title, &cells).svg()
    }

    fn grid<'a>(&'a self, title: &'a str, cells: &'a [f32]) -> Grid<'a> {
        Grid { title, rows: &self.target, columns: &self.source, cells }
    }
}

/// A token for the eye.
fn shown(tokenizer: Option<&Tokenizer>, id: u32) -> String {
    let Some(tokenizer) = tokenizer else { return id.to_string() };
    let text = tokenizer.decode_known(&[id]);
    match text.trim() {
        "" if text.is_empty() => tokenizer.token(id).unwrap_or_default(),
        "" => "␣".to_owned(),
        word => word.to_owned(),
    }
}
