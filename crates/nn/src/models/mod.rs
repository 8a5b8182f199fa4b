//! Models, one file per kind, and what models can do.
//!
//! Commands and tasks ask for an ability ([`Generates`], [`Classifies`], …) and not for a kind, so
//! that a new kind works wherever it has what is needed. [`build`] makes the model that a
//! configuration describes.

mod convolution;
mod decoder;
mod encoder;
mod encoder_decoder;
mod encoding;
mod recurrent;
mod recurrent_seq2seq;
mod targets;

pub use convolution::ConvolutionModel;
pub use decoder::Decoder;
pub use encoder::Encoder;
pub use encoder_decoder::EncoderDecoder;
pub use encoding::{Classifies, Embedded, Encodes, FindsSpans, PredictsNumbers, Tags};
pub use recurrent::Recurrent;
pub use recurrent_seq2seq::RecurrentSeq2seq;
pub use targets::{TargetKind, Targets, loss, outputs};

use crate::block::Memory;
use crate::cache::CacheKind;
use crate::config::ModelConfig;
use crate::layers::{Head, Loss};
use crate::pass::{Layout, Pass};
use crate::scope::Weights;
use crate::slot::{Feed, Slot};
use hearken_tensor::ops::cross_entropy::Options;
use hearken_tensor::{Param, Tensor, Var, no_grad, parallel_parts};
use std::fmt::Debug;

/// What every model is.
pub trait Model: Debug + Send + Sync {
    /// What it is made of.
    fn config(&self) -> ModelConfig;

    /// All parameters, in a fixed order.
    fn parameters(&self) -> &[Param];

    /// Computes blocks again in backward instead of keeping what is inside them.
    fn set_checkpointing(&mut self, on: bool);

    /// The model as one that predicts tokens, if it does.
    fn predicts_tokens(&self) -> Option<&dyn PredictsTokens> {
        None
    }

    /// The model as one that writes, if it can.
    fn generates(&self) -> Option<&dyn Generates> {
        None
    }

    /// The model as one that carries a state from window to window, if it does.
    fn carries_state(&self) -> Option<&dyn CarriesState> {
        None
    }

    /// The model as one that reads a source and writes a target, if it does. It then predicts tokens
    /// and writes, too, but only with a source.
    fn translates(&self) -> Option<&dyn Translates> {
        None
    }

    /// The model as one that reads a whole text, if it does.
    fn encodes(&self) -> Option<&dyn Encodes> {
        None
    }

    /// The model as one that labels texts, if it does.
    fn classifies(&self) -> Option<&dyn Classifies> {
        None
    }

    /// The model as one that labels tokens, if it does.
    fn tags(&self) -> Option<&dyn Tags> {
        None
    }

    /// The model as one that finds answers in texts, if it does.
    fn finds_spans(&self) -> Option<&dyn FindsSpans> {
        None
    }

    /// The model as one that predicts numbers of texts, if it does.
    fn predicts_numbers(&self) -> Option<&dyn PredictsNumbers> {
        None
    }
}

/// Token ids of B rows of equal length, one after the other.
#[derive(Clone, Debug)]
pub struct Tokens<'a> {
    /// (B, T)
    pub ids: &'a [u32],
    /// B
    pub rows: usize,
    /// The type of each token (B, T), for models that know types; all are of type 0, if `None`.
    pub types: Option<&'a [u32]>,
    /// What is special about the rows.
    pub layout: Layout,
    /// What the rows are written about: as many rows, for models that [translate](Translates).
    pub source: Option<&'a Tokens<'a>>,
}

impl<'a> Tokens<'a> {
    /// Rows without padding.
    pub fn new(ids: &'a [u32], rows: usize) -> Self {
        assert!(
            rows > 0 && ids.len().is_multiple_of(rows),
            "{} tokens are not {rows} sequences of equal length",
            ids.len()
        );
        Self { ids, rows, types: None, layout: Layout::default(), source: None }
    }

    /// The same, where tokens are of these types (B, T).
    pub fn of_types(self, types: Option<&'a [u32]>) -> Self {
        let given = types.map_or(self.ids.len(), <[u32]>::len);
        assert_eq!(given, self.ids.len(), "{given} types of {} tokens", self.ids.len());
        Self { types, ..self }
    }

    /// The same, laid out like this.
    pub fn laid_out(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// The same, as targets of the rows of `source`.
    pub fn about(self, source: &'a Tokens<'a>) -> Self {
        assert_eq!(source.rows, self.rows, "rows of the source and of the target");
        Self { source: Some(source), ..self }
    }

    /// (B, T)
    pub fn shape(&self) -> [usize; 2] {
        [self.rows, self.ids.len() / self.rows]
    }
}

/// A model that predicts a token at every place: the next one, or one that is hidden.
pub trait PredictsTokens: Model {
    /// What the head is multiplied with, (B, T, C): the last hidden state, or what the layers of the
    /// head itself make of it.
    fn hidden(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var;

    /// All logits (B, T, V), of the last hidden state (B, T, C).
    fn logits_of(&self, hidden: &Var, pass: &Pass) -> Var {
        self.head().logits(hidden, pass)
    }

    /// What turns hidden states into logits.
    fn head(&self) -> Head;

    /// The loss of predicting `targets`, one for each token.
    fn loss(&self, tokens: &Tokens<'_>, targets: &[u32], pass: &Pass, options: Options) -> Loss {
        Loss::with_auxiliary(pass, |pass| {
            self.head().loss(&self.hidden(tokens, pass), targets, options, pass)
        })
    }

    /// The loss of every target by itself (N), without gradients; 0 where it is ignored.
    fn token_losses(&self, tokens: &Tokens<'_>, targets: &[u32]) -> Tensor {
        self.token_losses_with(tokens, targets, &Pass::evaluate())
    }

    /// As [`token_losses`](Self::token_losses), in this pass: with taps, for example.
    fn token_losses_with(&self, tokens: &Tokens<'_>, targets: &[u32], pass: &Pass) -> Tensor {
        no_grad(|| {
            let hidden = self.hidden(tokens, pass);
            self.head().token_losses(hidden.value(), targets)
        })
    }

    /// All logits, (B, T, V).
    fn logits_with(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        self.head().logits(&self.hidden(tokens, pass), pass)
    }

    /// All logits, (B, T, V), without gradients.
    fn logits(&self, tokens: &Tokens<'_>) -> Tensor {
        no_grad(|| self.logits_with(tokens, &Pass::evaluate()).into_value())
    }
}

/// A model that writes, token by token.
pub trait Generates: PredictsTokens {
    /// V
    fn vocabulary(&self) -> usize;

    /// The longest sequence it is made for.
    fn context(&self) -> usize;

    /// The state of a sequence that has not begun.
    fn slot(&self, kind: CacheKind) -> Slot;

    /// Does it read the whole sequence again for every new token, because a new one changes what
    /// came of the others?
    fn recomputes(&self) -> bool {
        false
    }

    /// What the head is multiplied with, of all new tokens of all sequences, which continue their
    /// slots: (rows, C). The sequences may have any lengths and any numbers of new tokens; on vector
    /// instruction sets what one gets is to the bit what it gets alone. Panics if one has no new
    /// token, or more than the model's positions reach.
    fn step_hidden(&self, feeds: &mut [Feed<'_>]) -> Tensor;

    /// The logits after rows (rows, C) of [`Generates::step_hidden`]: (rows, V).
    fn logits_after(&self, hidden: &Tensor) -> Tensor {
        let [rows, width] = hidden.dims();
        no_grad(|| self.head().last_logits(&hidden.clone().reshape([rows, 1, width])))
    }

    /// The logits after the last token of each sequence (N, V), which continue their slots as those
    /// of [`Generates::step_hidden`] do.
    fn step(&self, feeds: &mut [Feed<'_>]) -> Tensor {
        let lengths: Vec<usize> = feeds.iter().map(|feed| feed.ids.len()).collect();
        let hidden = self.step_hidden(feeds);
        let (data, width) = (hidden.data(), hidden.shape().width());
        let mut end = 0;
        let mut last = Vec::with_capacity(lengths.len() * width);
        for length in &lengths {
            end += length;
            last.extend_from_slice(&data[(end - 1) * width..end * width]);
        }
        self.logits_after(&Tensor::new([lengths.len(), width], &last))
    }

    /// Is a prompt a prefix, whose tokens see each other in both directions?
    fn reads_prefix(&self) -> bool {
        false
    }

    /// The logits after the last token of each sequence, (B, V), computed from scratch.
    fn next_logits(&self, ids: &[u32], batch: usize) -> Tensor {
        self.next_logits_of(&Tokens::new(ids, batch))
    }

    /// As [`Generates::next_logits`], of rows that are laid out somehow, without padding.
    fn next_logits_of(&self, tokens: &Tokens<'_>) -> Tensor {
        no_grad(|| {
            let hidden = self.hidden(tokens, &Pass::evaluate());
            self.head().last_logits(hidden.value())
        })
    }
}

/// A model with a state that it carries from token to token: it can go on where it stopped, and be
/// trained on windows that follow each other (truncated backpropagation through time).
pub trait CarriesState: PredictsTokens {
    /// The states before the first token of so many rows.
    fn first_states(&self, rows: usize) -> Vec<Tensor>;

    /// As [`PredictsTokens::hidden`], of tokens that follow those after which the states were
    /// `states`; and the states after them, without gradients.
    fn hidden_after(
        &self,
        states: &[Tensor],
        tokens: &Tokens<'_>,
        pass: &Pass,
    ) -> (Var, Vec<Tensor>);
}

/// A model that reads a source and writes a target. As a [`PredictsTokens`] it takes target tokens with
/// their [source](Tokens::about): row by row the token before each target (teacher forcing). Padding of
/// the source is hidden by the lengths of its layout; targets that are padding are
/// [`IGNORED`](hearken_tensor::ops::cross_entropy::IGNORED).
pub trait Translates: Generates {
    /// What the decoder attends to, of sources (B, S): hidden states (B, S, C) of the last layer of the
    /// encoder, or of every layer.
    fn read(&self, sources: &Tokens<'_>, pass: &Pass) -> Vec<Memory>;

    /// The last hidden state (B, T, C) of target tokens whose sources were read.
    fn continued(&self, tokens: &Tokens<'_>, sources: &[Memory], pass: &Pass) -> Var;

    /// The state of a sequence for each of the sources (B, S), which are read at once: each may have a
    /// length of its own. The first token that a sequence is fed is the one that begins targets.
    fn begin(&self, sources: &Tokens<'_>, kind: CacheKind) -> Vec<Slot>;
}

/// Makes a model. Panics if the configuration is not valid.
pub fn build(config: &ModelConfig, weights: Weights) -> Box<dyn Model> {
    match config {
        ModelConfig::Decoder(config) => Box::new(Decoder::new(config.clone(), weights)),
        ModelConfig::Encoder(config) => Box::new(Encoder::new(config.clone(), weights)),
        ModelConfig::Recurrent(config) => Box::new(Recurrent::new(config.clone(), weights)),
        ModelConfig::Convolution(config) => {
            Box::new(ConvolutionModel::new(config.clone(), weights))
        }
        ModelConfig::EncoderDecoder(config) => {
            Box::new(EncoderDecoder::new(config.clone(), weights))
        }
        ModelConfig::RecurrentSeq2seq(config) => {
            Box::new(RecurrentSeq2seq::new(config.clone(), weights))
        }
    }
}

/// The sum of the losses of a batch and how many targets it is of, computed in `parts`
/// [in parallel](parallel_parts); the gradients of the sum are added to those of the parameters.
/// Dropout hits the same places of each part. Panics if the parts do not share the batch evenly.
pub fn loss_and_gradients(
    model: &dyn PredictsTokens,
    ids: &[u32],
    targets: &[u32],
    batch: usize,
    parts: usize,
    pass: &Pass,
    options: Options,
) -> (f64, f64) {
    assert!(parts > 0 && batch.is_multiple_of(parts), "{batch} sequences in {parts} equal parts");
    assert!(parts == 1 || !pass.is_watched(), "taps watch a pass in one part, not in {parts}");
    let each = ids.len() / parts;
    let losses = parallel_parts(parts, model.parameters(), |part| {
        let at = part * each..(part + 1) * each;
        let tokens = Tokens::new(&ids[at.clone()], batch / parts);
        let loss = model.loss(&tokens, &targets[at], pass, options);
        loss.sum.backward();
        (f64::from(loss.sum.value().item()), loss.weight)
    });
    losses.into_iter().fold((0.0, 0.0), |(sum, weight), (s, w)| (sum + s, weight + w))
}
