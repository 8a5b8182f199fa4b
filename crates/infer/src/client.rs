//! Clients of an engine: they hand in jobs and read what comes of them.

use crate::beam::{BeamSearch, Branch, Found, Searching};
use crate::engine::{Job, Outcome, Reader, Submission};
use crate::generate::{Finish, Request, Step};
use crate::sampler::{Chosen, Sampling};
use hearken_base::{Error, Result};
use hearken_nn::cache::CacheKind;
use hearken_nn::constraints::{Constraints, Place};
use hearken_nn::models::Generates;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Weak};

/// How many tokens the engine may be ahead of who reads them.
const AHEAD: usize = 2;

/// What a client needs to know of the model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) vocabulary: usize,
    pub(crate) context: usize,
}

impl Limits {
    /// Can this prompt be continued?
    fn check(self, prompt: &[u32]) -> Result<()> {
        let vocabulary = self.vocabulary;
        match prompt.iter().find(|id| **id as usize >= vocabulary) {
            Some(id) => Err(Error::new(
                format!("the prompt has token {id}, but the model knows only {vocabulary}"),
                "does the tokenizer belong to this model?",
            )),
            None if prompt.is_empty() => Err(Error::new(
                "the prompt is empty",
                "give at least one token, such as the one that begins a text",
            )),
            None => Ok(()),
        }
    }
}

/// Can this model continue this prompt?
pub(crate) fn check_prompt(model: &dyn Generates, prompt: &[u32]) -> Result<()> {
    Limits { vocabulary: model.vocabulary(), context: model.context() }.check(prompt)
}

/// Hands jobs to an engine. Copies may be used from any thread.
#[derive(Clone)]
pub struct Client {
    engine: Sender<Submission>,
    limits: Limits,
}

/// What comes of writing.
#[derive(Clone, Debug)]
pub enum Event {
    /// A new token.
    Token {
        /// Of which text.
        text: usize,
        /// The token.
        step: Step,
    },
    /// A text is finished.
    End {
        /// Which.
        text: usize,
        /// Why.
        finish: Finish,
    },
}

pub(crate) fn stopped() -> Error {
    Error::new("the engine has stopped", "this is a mistake of the program: please report it")
}

impl Client {
    pub(crate) fn new(engine: Sender<Submission>, limits: Limits) -> Self {
        Self { engine, limits }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn submit(&self, submission: Submission) -> Result<()> {
        self.engine.send(submission).map_err(|_| stopped())
    }

    /// Continues the prompt with `count` texts at a time, which read it once. The first draws with
    /// the seed of the request, the next with the one after it, and so on.
    pub fn write(&self, request: &Request, count: usize) -> Result<Texts<'_>> {
        self.limits.check(&request.prompt)?;
        let (sender, events) = sync_channel(AHEAD * count.max(1));
        let unwanted: Arc<[AtomicBool]> = (0..count).map(|_| AtomicBool::new(false)).collect();
        let job = Writing {
            texts: (0..count).map(|number| Text { number, written: 0 }).collect(),
            sampling: request.sampling,
            most_tokens: request.most_tokens,
            ends: request.ends.clone(),
            constraints: request.constraints.clone(),
            unread: VecDeque::new(),
            events: sender,
            unwanted: Arc::downgrade(&unwanted),
        };
        if count > 0 {
            self.submit(Submission {
                job: Box::new(job),
                prompt: request.prompt.clone(),
                source: None,
                cache: request.cache,
                most_sequences: count,
                most_tokens: request.most_tokens,
            })?;
        }
        Ok(Texts { events, open: count, unwanted, client: PhantomData })
    }

    /// The likeliest texts by beam search; no longer than the model's context.
    pub fn search(
        &self,
        prompt: &[u32],
        search: &BeamSearch,
        kind: CacheKind,
    ) -> Result<Vec<Found>> {
        self.limits.check(prompt)?;
        let context = self.limits.context;
        let prompt = &prompt[prompt.len().saturating_sub(context)..];
        let room = context + 1 - prompt.len(); // the last token is chosen but not read
        let search = BeamSearch { most_tokens: search.most_tokens.min(room), ..search.clone() };
        let (result, found) = channel();
        let alive = Arc::new(());
        let reader = Arc::downgrade(&alive);
        let (beams, most_tokens) = (search.beams, search.most_tokens);
        let searching = Searching::new(search, prompt.to_vec());
        self.submit(Submission {
            prompt: prompt.to_vec(),
            source: None,
            cache: Some(kind),
            most_sequences: beams,
            most_tokens,
            job: Box::new(Search { searching, result, reader }),
        })?;
        found.recv().map_err(|_| stopped())?
    }
}

/// Texts that are being written: an iterator over what comes, in order, until all are finished.
/// Dropping it ends them.
pub struct Texts<'a> {
    events: Receiver<Result<Event>>,
    /// Texts that are not finished.
    open: usize,
    /// Which texts are to end.
    unwanted: Arc<[AtomicBool]>,
    /// The engine runs at least as long as there is a client.
    client: PhantomData<&'a Client>,
}

impl Texts<'_> {
    /// Ends one of them: a few more tokens may come, and then its end.
    pub fn stop(&self, text: usize) {
        self.unwanted[text].store(true, Relaxed);
    }
}

impl Iterator for Texts<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        if self.open == 0 {
            return None;
        }
        let event = self.events.recv().unwrap_or_else(|_| Err(stopped()));
        match &event {
            Ok(Event::Token { .. }) => {}
            Ok(Event::End { .. }) => self.open -= 1,
            Err(_) => self.open = 0,
        }
        Some(event)
    }
}

/// Logits with −∞ for what is not allowed at this place.
pub(crate) fn constrained<'a>(
    constraints: &Constraints,
    place: Place<'_>,
    logits: &'a [f32],
) -> Cow<'a, [f32]> {
    let mut logits = Cow::Borrowed(logits);
    if !constraints.is_empty() {
        constraints.apply(place, logits.to_mut());
    }
    logits
}

/// One or several texts of one prompt.
struct Writing {
    /// Those that go on, in the order of their sequences.
    texts: Vec<Text>,
    sampling: Sampling,
    most_tokens: usize,
    ends: Vec<u32>,
    constraints: Constraints,
    /// What the client has no room for yet.
    unread: VecDeque<Result<Event>>,
    events: SyncSender<Result<Event>>,
    /// Which texts the client does not want any more; gone with the client.
    unwanted: Weak<[AtomicBool]>,
}

struct Text {
    number: usize,
    written: usize,
}

impl Job for Writing {
    fn advance(&mut self, outcomes: &[Outcome<'_>]) -> Vec<Branch> {
        let Self { texts, sampling, most_tokens, ends, constraints, unread, .. } = self;
        let unwanted = self.unwanted.upgrade();
        let mut branches = Vec::new();
        let mut sequence = 0..outcomes.len();
        texts.retain_mut(|text| {
            let number = text.number;
            // All texts begin as the one sequence of the prompt.
            let parent = sequence.next().unwrap_or(0);
            let Some(Outcome { logits, tokens }) = outcomes.get(parent) else {
                unread.push_back(Ok(Event::End { text: number, finish: Finish::Length }));
                return false;
            };
            if unwanted.as_ref().is_none_or(|unwanted| unwanted[number].load(Relaxed)) {
                unread.push_back(Ok(Event::End { text: number, finish: Finish::Stopped }));
                return false;
            }
            let seed = sampling.seed.wrapping_add(number as u64);
            let sampling = Sampling { seed, ..*sampling };
            let place = Place { tokens, written: text.written, most: *most_tokens };
            let logits = constrained(constraints, place, logits);
            let Chosen { id, probability, likeliest } =
                sampling.choose(&logits, tokens, tokens.len() as u64);
            let step = Step { id, probability, likeliest };
            unread.push_back(Ok(Event::Token { text: number, step }));
            text.written += 1;
            let finish = if ends.contains(&id) {
                Finish::End
            } else if text.written == *most_tokens {
                Finish::Length
            } else {
                branches.push(Branch { parent, token: id });
                return true;
            };
            unread.push_back(Ok(Event::End { text: number, finish }));
            false
        });
        self.reader();
        branches
    }

    fn fail(&mut self, error: Error) {
        self.unread.push_back(Err(error));
        self.reader();
    }

    fn reader(&mut self) -> Reader {
        if self.unwanted.strong_count() == 0 {
            return Reader::Gone;
        }
        while let Some(event) = self.unread.pop_front() {
            match self.events.try_send(event) {
                Ok(()) => {}
                Err(TrySendError::Full(event)) => {
                    self.unread.push_front(event);
                    return Reader::Behind;
                }
                Err(TrySendError::Disconnected(_)) => return Reader::Gone,
            }
        }
        Reader::Ready
    }
}

/// A beam search.
pub(crate) struct Search {
    pub(crate) searching: Searching,
    pub(crate) result: Sender<Result<Vec<Found>>>,
    /// Does the client still wait?
    pub(crate) reader: Weak<()>,
}

impl Job for Search {
    fn advance(&mut self, outcomes: &[Outcome<'_>]) -> Vec<Branch> {
        let logits: Vec<&[f32]> = outcomes.iter().map(|outcome| outcome.logits).collect();
        let branches = if logits.is_empty() { Vec::new() } else { self.searching.advance(&logits) };
        if branches.is_empty() {
            // Who has left does not want to know.
            let _ = self.result.send(Ok(self.searching.found()));
        }
        branches
    }

    fn fail(&mut self, error: Error) {
        let _ = self.result.send(Err(error));
    }

    fn reader(&mut self) -> Reader {
        if self.reader.strong_count() == 0 { Reader::Gone } else { Reader::Ready }
    }
}
