//! The encoder: a whole text in, a hidden state per token out, and a head for what it is used for.
//!
//! ```text
//! x = E[ids] + S[types]            (B, T, C)
//! h = stack(x)                     each token sees all others
//! pooled = f(P·h₀ + p)             (B, C), of the first token, where there is a pooler
//! ```
//!
//! | head | what it gives | from |
//! |---|---|---|
//! | tokens | logits (B, T, V) | h, perhaps transformed |
//! | classes, numbers | (B, N) | pooled, or h₀ without a pooler |
//! | tags | (B, T, N) | h |
//! | spans | start and end, (B, T) each | h |
//! | embedding | (B, C) | h: the first token, the last, or the mean |

use super::{
    Classifies, Embedded, Encodes, FindsSpans, Model, PredictsNumbers, PredictsTokens, Tags, Tokens,
};
use crate::config::{EncoderConfig, HeadConfig, ModelConfig, Pooling};
use crate::layers::{
    Direction, Dropout, Embedding, Head, Linear, Loss, Pooler, TokenHead, first_tokens, select_rows,
};
use crate::pass::Pass;
use crate::scope::{Scope, Weights};
use crate::stack::Stack;
use crate::taps::Place;
use hearken_tensor::ops::cross_entropy::{IGNORED, Options};
use hearken_tensor::ops::reshape::reshape;
use hearken_tensor::ops::slice::slice;
use hearken_tensor::{Param, Role, Tensor, Var, no_grad};

/// A Transformer that reads in both directions.
#[derive(Clone, Debug)]
pub struct Encoder {
    config: EncoderConfig,
    embedding: Embedding,
    /// A vector for each type of token.
    types: Option<Embedding>,
    stack: Stack,
    pooler: Option<Pooler>,
    top: Top,
    parameters: Vec<Param>,
}

/// The layers of a head.
#[derive(Clone, Debug)]
enum Top {
    Bare,
    Tokens(TokenHead),
    /// So many numbers for a text, or for a token.
    Outputs(Linear, Dropout),
}

impl Encoder {
    /// Panics if the configuration is not valid.
    pub fn new(config: EncoderConfig, weights: Weights) -> Self {
        if let Err(error) = config.validate() {
            panic!("{error}");
        }
        let root = Scope::root(weights);
        let scope = root.starting(config.stack.init, 1);
        let (width, token_width) = (config.stack.width, config.stack.token_width());
        let embedding = Embedding::new(&(&scope / "embedding"), config.vocabulary, token_width);
        let types = (config.types > 0)
            .then(|| Embedding::new(&(&scope / "types"), config.types, token_width));
        let direction = Direction::Bidirectional;
        let mut stack = Stack::new(&scope, &config.stack, config.context, direction, None);
        if config.embedding_norm {
            stack = stack.with_embedding_norm(&scope, &config.stack);
        }
        let pooler = Pooler::new(&(&scope / "pooler"), config.pooler, width);
        let head = &(&scope / "head");
        let top = match &config.head {
            HeadConfig::None {} | HeadConfig::Embedding { .. } => Top::Bare,
            HeadConfig::Tokens { transform } => {
                Top::Tokens(TokenHead::new(head, &config, *transform))
            }
            other => Top::Outputs(
                Linear::new(head, other.outputs(), width, true, Role::Head),
                head.dropout("dropout", config.stack.dropout.residual),
            ),
        };
        Self { config, embedding, types, stack, pooler, top, parameters: root.parameters() }
    }

    /// With weights drawn from a seed, as configured.
    pub fn drawn(config: EncoderConfig, seed: u64) -> Self {
        Self::new(config, Weights::Drawn { seed })
    }

    /// Its sizes and choices.
    pub fn sizes(&self) -> &EncoderConfig {
        &self.config
    }

    fn token_head(&self) -> &TokenHead {
        match &self.top {
            Top::Tokens(head) => head,
            _ => panic!("an encoder with the head {:?} predicts no tokens", self.config.head),
        }
    }

    /// The head's numbers, of vectors (…, C).
    fn outputs(&self, x: Var, pass: &Pass) -> Var {
        let Top::Outputs(head, dropout) = &self.top else {
            panic!("the head {:?} gives no numbers", self.config.head)
        };
        let logits = head.forward(&dropout.forward(x, pass));
        pass.tap(&Place::ROOT, "logits", logits)
    }

    /// The head's numbers for each text: (B, T, C) → (B, N).
    fn outputs_of_texts(&self, hidden: &Var, pass: &Pass) -> Var {
        let pooled = self.pooled(hidden, pass).unwrap_or_else(|| first_tokens(hidden)); // (B, C)
        self.outputs(pooled, pass)
    }
}

impl Model for Encoder {
    fn config(&self) -> ModelConfig {
        ModelConfig::Encoder(self.config.clone())
    }

    fn parameters(&self) -> &[Param] {
        &self.parameters
    }

    fn set_checkpointing(&mut self, on: bool) {
        self.stack.set_checkpointing(on);
    }

    fn predicts_tokens(&self) -> Option<&dyn PredictsTokens> {
        matches!(self.config.head, HeadConfig::Tokens { .. }).then_some(self)
    }

    fn encodes(&self) -> Option<&dyn Encodes> {
        Some(self)
    }

    fn classifies(&self) -> Option<&dyn Classifies> {
        matches!(self.config.head, HeadConfig::Classes { .. }).then_some(self)
    }

    fn tags(&self) -> Option<&dyn Tags> {
        matches!(self.config.head, HeadConfig::Tags { .. }).then_some(self)
    }

    fn finds_spans(&self) -> Option<&dyn FindsSpans> {
        matches!(self.config.head, HeadConfig::Spans {}).then_some(self)
    }

    fn predicts_numbers(&self) -> Option<&dyn PredictsNumbers> {
        matches!(self.config.head, HeadConfig::Numbers { .. }).then_some(self)
    }
}

impl Encodes for Encoder {
    fn encode(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        let shape = tokens.shape();
        let x = self.embedding.forward(tokens.ids, shape); // (B, T, C)
        let mut x = pass.tap(&Place::ROOT, "embedding", x);
        if let Some(table) = &self.types {
            let first = vec![0; tokens.ids.len()];
            let types = table.forward(tokens.types.unwrap_or(&first), shape); // (B, T, C)
            x = x + pass.tap(&Place::ROOT, "types", types);
        } else {
            assert!(tokens.types.is_none(), "this model knows no types of tokens");
        }
        self.stack.forward_embedded(x, &[], &pass.clone().over(tokens.layout.clone()), None)
    }

    fn pooled(&self, hidden: &Var, pass: &Pass) -> Option<Var> {
        self.pooler.as_ref().map(|pooler| pooler.forward(hidden, pass))
    }

    fn embedded(&self) -> Embedded {
        match self.config.head {
            HeadConfig::Embedding { pooling, normalised, most_tokens } => {
                let most_tokens = most_tokens.unwrap_or(self.config.context);
                Embedded { pooling, normalised, most_tokens }
            }
            _ => Embedded {
                pooling: Pooling::Mean,
                normalised: false,
                most_tokens: self.config.context,
            },
        }
    }
}

impl PredictsTokens for Encoder {
    fn hidden(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        self.token_head().forward(&self.encode(tokens, pass), pass)
    }

    fn logits_of(&self, hidden: &Var, pass: &Pass) -> Var {
        self.head().logits(&self.token_head().forward(hidden, pass), pass)
    }

    fn head(&self) -> Head {
        self.token_head().as_head(&self.embedding)
    }

    /// Only tokens with a target go through the head: of masked language models, about one in seven.
    fn loss(&self, tokens: &Tokens<'_>, targets: &[u32], pass: &Pass, options: Options) -> Loss {
        let (rows, counted) = counted(targets);
        Loss::with_auxiliary(pass, |pass| {
            if pass.is_watched() || rows.is_empty() {
                return self.head().loss(&self.hidden(tokens, pass), targets, options, pass);
            }
            let chosen = select_rows(&self.encode(tokens, pass), &rows); // (N, C)
            self.head().loss(&self.token_head().forward(&chosen, pass), &counted, options, pass)
        })
    }

    fn token_losses_with(&self, tokens: &Tokens<'_>, targets: &[u32], pass: &Pass) -> Tensor {
        let (rows, counted) = counted(targets);
        let mut losses = Tensor::zeros([targets.len()]);
        if rows.is_empty() {
            return losses;
        }
        let found = no_grad(|| {
            let chosen = select_rows(&self.encode(tokens, pass), &rows); // (N, C)
            let hidden = self.token_head().forward(&chosen, pass);
            self.head().token_losses(hidden.value(), &counted)
        });
        let all = losses.data_mut();
        for (row, loss) in rows.iter().zip(found.data()) {
            all[*row as usize] = *loss;
        }
        losses
    }
}

/// The places of the targets that count, and these targets.
fn counted(targets: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let counted = targets.iter().enumerate().filter(|(_, target)| **target != IGNORED);
    counted.map(|(row, target)| (row as u32, *target)).unzip()
}

impl Classifies for Encoder {
    fn classify(&self, hidden: &Var, pass: &Pass) -> Var {
        self.outputs_of_texts(hidden, pass)
    }

    fn labels(&self) -> &[String] {
        self.config.head.labels().unwrap_or_default()
    }

    fn several(&self) -> bool {
        matches!(self.config.head, HeadConfig::Classes { several: true, .. })
    }
}

impl Tags for Encoder {
    fn tag(&self, hidden: &Var, pass: &Pass) -> Var {
        self.outputs(hidden.clone(), pass)
    }

    fn labels(&self) -> &[String] {
        self.config.head.labels().unwrap_or_default()
    }
}

impl FindsSpans for Encoder {
    fn spans(&self, hidden: &Var, pass: &Pass) -> [Var; 2] {
        let both = self.outputs(hidden.clone(), pass); // (B, T, 2)
        let [batch, tokens, _] = both.value().dims();
        [0, 1].map(|i| reshape(slice(&both, 2, i..i + 1), [batch, tokens]))
    }
}

impl PredictsNumbers for Encoder {
    fn numbers(&self, hidden: &Var, pass: &Pass) -> Var {
        self.outputs_of_texts(hidden, pass)
    }
}
