//! Every number of a Transformer on a web page: served on 127.0.0.1, or written to one file.
//!
//! - [`Subject`]: what is looked at: a model, its tokenizer, a first prompt.
//! - [`serve`]: the page and its questions, until the process ends.
//! - [`export`]: one file that holds the page and recorded answers for one prompt.
//!
//! The page is written by hand in `assets/`: HTML, CSS and modules of JavaScript, without a build step.
//! It asks questions, each a POST of a JSON object to `/api/NAME`; a [`Session`] answers them, from the
//! values that [`hearken_explain`] gives. One thread owns the model and the session. Requests wait for
//! it in a queue of limited length; what does not fit is refused with 503.

mod answers;
mod ask;
mod assets;
mod encode;
mod engine;
mod export;
mod server;
mod session;

pub use export::export;
pub use server::{MOST_BODY, serve};
pub use session::Session;

use hearken_base::Result;
use hearken_data::tokenizer::Tokenizer;
use hearken_explain::Source;
use hearken_nn::models::Model;

/// What is looked at.
pub struct Subject {
    /// The model.
    pub model: Box<dyn Model>,
    /// From text to tokens, if there is one.
    pub tokenizer: Option<Tokenizer>,
    /// What to call the model.
    pub name: String,
    /// The first prompt.
    pub ids: Vec<u32>,
    /// The token that stands before every prompt, if there is one.
    pub begin: Option<u32>,
    /// What should follow it, as (place, token), if that is known.
    pub target: Option<(usize, u32)>,
    /// Bytes that may be used beside the model; any number, if `None`.
    pub most_bytes: Option<u64>,
    /// How the model reads sources, if it is a [`WithSource`](hearken_explain::WithSource).
    pub sources: Option<Sources>,
    /// What neurons are shown to; the prompt itself, if there are none.
    pub texts: Texts,
}

/// How an encoder-decoder reads sources.
#[derive(Clone, Debug)]
pub struct Sources {
    /// What it reads now.
    pub source: Source,
    /// The token that begins targets.
    pub begin: u32,
    /// The token that ends sources; none, where there is no tokenizer to know it.
    pub end: Option<u32>,
}

/// Texts that show what excites neurons; for an encoder-decoder they are sources.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    /// What they are: "20 stories that were held out".
    pub name: String,
    /// Their tokens.
    pub rows: Vec<Vec<u32>>,
}

impl Subject {
    /// Answers one question, for programs that do without a server.
    ///
    /// ```
    /// use hearken_nn::{models::Decoder, variants};
    /// use hearken_page::{Session, Subject};
    ///
    /// let model = Box::new(Decoder::drawn(variants::base(), 1));
    /// let (ids, name) = (vec![1, 2, 3], "a small model".to_owned());
    /// let (begin, sources, texts) = (None, None, hearken_page::Texts::default());
    /// let subject = Subject {
    ///     model, tokenizer: None, name, ids, begin, target: None, most_bytes: None, sources, texts,
    /// };
    /// let mut session = subject.session().unwrap();
    /// let answer = session.answer("run", &serde_json::json!({ "ids": [1, 2, 3] })).unwrap();
    /// assert_eq!(answer["stages"][0]["name"], "embedding");
    /// ```
    pub fn session(&self) -> Result<Session<'_>> {
        Session::new(self)
    }
}
