//! An encoder-decoder together with a source: a model that predicts the tokens of a target, as a decoder
//! does, so that whatever looks at decoders looks at it too.

use hearken_base::{Error, Result};
use hearken_nn::cache::CacheKind;
use hearken_nn::config::ModelConfig;
use hearken_nn::layers::Head;
use hearken_nn::models::{Generates, Model, PredictsTokens, Tokens, Translates};
use hearken_nn::pass::Pass;
use hearken_nn::slot::{Feed, Slot};
use hearken_tensor::{Param, Tensor, Var};
use std::sync::{Arc, PoisonError, RwLock};

/// The source that a [`WithSource`] reads; all copies are the same one.
#[derive(Clone, Debug)]
pub struct Source(Arc<RwLock<Vec<u32>>>);

impl Source {
    /// Its tokens.
    pub fn ids(&self) -> Vec<u32> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads another source from now on. The caller has checked it with [`crate::checked`].
    pub fn set(&self, ids: &[u32]) {
        ids.clone_into(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// An encoder-decoder that reads one source. Its prompt is the target so far, from the token that begins
/// targets on.
#[derive(Debug)]
pub struct WithSource {
    model: Box<dyn Model>,
    source: Source,
}

impl WithSource {
    /// Fails if the model reads no source, or cannot read this one.
    pub fn new(model: Box<dyn Model>, source: &[u32]) -> Result<Self> {
        if model.translates().is_none() {
            let hint = "give a prompt alone: only an encoder-decoder has a source and a target";
            return Err(Error::new("this model reads no source", hint));
        }
        crate::checked(model.as_ref(), source)?;
        Ok(Self { model, source: Source(Arc::new(RwLock::new(source.to_vec()))) })
    }

    /// What it reads; to be changed from outside.
    pub fn source(&self) -> Source {
        self.source.clone()
    }

    fn translator(&self) -> &dyn Translates {
        match self.model.translates() {
            Some(model) => model,
            None => unreachable!("checked in new"),
        }
    }
}

impl Model for WithSource {
    fn config(&self) -> ModelConfig {
        self.model.config()
    }

    fn parameters(&self) -> &[Param] {
        self.model.parameters()
    }

    fn set_checkpointing(&mut self, on: bool) {
        self.model.set_checkpointing(on);
    }

    fn predicts_tokens(&self) -> Option<&dyn PredictsTokens> {
        Some(self)
    }

    fn generates(&self) -> Option<&dyn Generates> {
        Some(self)
    }
}

impl PredictsTokens for WithSource {
    /// Panics if there is more than one row: there is one source.
    fn hidden(&self, tokens: &Tokens<'_>, pass: &Pass) -> Var {
        let ids = self.source.ids();
        let source = Tokens::new(&ids, 1);
        self.translator().hidden(&tokens.clone().about(&source), pass)
    }

    fn head(&self) -> Head {
        self.translator().head()
    }
}

impl Generates for WithSource {
    fn vocabulary(&self) -> usize {
        self.translator().vocabulary()
    }

    fn context(&self) -> usize {
        self.translator().context()
    }

    fn slot(&self, kind: CacheKind) -> Slot {
        let ids = self.source.ids();
        self.translator().begin(&Tokens::new(&ids, 1), kind).swap_remove(0)
    }

    fn step_hidden(&self, feeds: &mut [Feed<'_>]) -> Tensor {
        self.translator().step_hidden(feeds)
    }
}
