//! The engine: one thread that owns all sequences that are being decoded.
//!
//! [Clients](Client) hand in jobs: a text to continue, several samples of one, a beam search, a
//! translation, whose source is read when the job is let in, with those of others that are. Every
//! step takes the new tokens of all running sequences through the model at once; between steps new
//! jobs join and finished ones leave. A job chooses its next tokens on the engine's thread, so that
//! no sequence waits for another thread; what it has to say goes to its client by a channel. A job
//! whose client reads too slowly is left out of steps until there is room; one whose client is gone
//! is dropped.

use crate::beam::Branch;
use crate::client::{Client, Limits};
use hearken_base::Error;
use hearken_kernels::isa::{self, Isa};
use hearken_kernels::threads;
use hearken_nn::cache::CacheKind;
use hearken_nn::models::{Generates, Tokens, Translates};
use hearken_nn::pass::Layout;
use hearken_nn::slot::{Feed, Slot};
use hearken_tensor::Tensor;
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long the engine sleeps when every client is behind.
const NAP: Duration = Duration::from_millis(1);

/// What a sequence has come to: the logits of its next token, and all its tokens.
pub(crate) struct Outcome<'a> {
    pub(crate) logits: &'a [f32],
    pub(crate) tokens: &'a [u32],
}

/// Can a job go on?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Its client has read what there was.
    Ready,
    /// Its client is behind.
    Behind,
    /// Its client is gone.
    Gone,
}

/// What decides how sequences go on.
pub(crate) trait Job: Send {
    /// Takes the outcome of each of its sequences, at first one; gives the sequences of the next
    /// step, none at the end. It may be given nothing, if no token at all is wanted.
    fn advance(&mut self, outcomes: &[Outcome<'_>]) -> Vec<Branch>;
    /// Ends in an error.
    fn fail(&mut self, error: Error);
    /// Hands over what waits for the client.
    fn reader(&mut self) -> Reader;
}

/// A job that was handed in.
pub(crate) struct Submission {
    pub(crate) job: Box<dyn Job>,
    pub(crate) prompt: Vec<u32>,
    /// What is to be translated. Only for engines of models that translate, and with a cache.
    pub(crate) source: Option<Vec<u32>>,
    pub(crate) cache: Option<CacheKind>,
    /// The most sequences that it has at a time.
    pub(crate) most_sequences: usize,
    pub(crate) most_tokens: usize,
}

/// The engine; [`Engine::run`] is the body of its thread.
pub struct Engine {
    submissions: Receiver<Submission>,
    most_sequences: usize,
}

/// An engine for `model` that runs at most so many sequences at a time (a job that alone needs more
/// runs alone), and its first client.
pub fn engine(model: &dyn Generates, most_sequences: usize) -> (Client, Engine) {
    let (sender, submissions) = channel();
    let limits = Limits { vocabulary: model.vocabulary(), context: model.context() };
    (Client::new(sender, limits), Engine { submissions, most_sequences })
}

/// Runs `clients` beside an engine for `model`, on a thread that ends when they are done. Kernels
/// run as they would on the calling thread, but never on AMX by [`isa::for_batches`], where a
/// token's bits would depend on the other sequences.
pub fn with_engine<R>(
    model: &dyn Generates,
    most_sequences: usize,
    clients: impl FnOnce(&Client) -> R,
) -> R {
    beside(model, None, most_sequences, clients)
}

/// As [`with_engine`], for translations.
pub fn with_translator<R>(
    model: &dyn Translates,
    most_sequences: usize,
    clients: impl FnOnce(&Client) -> R,
) -> R {
    beside(model, Some(model), most_sequences, clients)
}

fn beside<R>(
    model: &dyn Generates,
    sources: Option<&dyn Translates>,
    most_sequences: usize,
    clients: impl FnOnce(&Client) -> R,
) -> R {
    let (client, engine) = engine(model, most_sequences);
    let (set, count) = (isa::current(), threads::count());
    std::thread::scope(|scope| {
        let engine = scope.spawn(move || {
            threads::with_threads(count, || match set {
                Isa::Amx => engine.work(model, sources),
                set => isa::with_isa(set, || engine.work(model, sources)),
            });
        });
        let result = clients(&client);
        drop(client);
        if let Err(panic) = engine.join() {
            resume_unwind(panic);
        }
        result
    })
}

/// A job with its sequences.
struct Active {
    job: Box<dyn Job>,
    sequences: Vec<Sequence>,
    most_sequences: usize,
    reader: Reader,
}

/// The tokens of a sequence and what the model remembers of them.
#[derive(Clone)]
struct Sequence {
    tokens: Vec<u32>,
    /// Where what the model sees begins; without a slot, it reads that anew for each token.
    start: usize,
    /// How many of the tokens are a prefix, which the model reads in both directions.
    prefix: usize,
    slot: Option<Slot>,
}

impl Sequence {
    fn new(model: &dyn Generates, tokens: Vec<u32>, slot: Option<Slot>) -> Self {
        let start = tokens.len().saturating_sub(model.context());
        let prefix = if model.reads_prefix() { tokens.len() } else { 0 };
        Self { tokens, start, prefix, slot }
    }

    /// How many of the tokens that the model sees are a prefix.
    fn seen_prefix(&self) -> usize {
        self.prefix.saturating_sub(self.start)
    }

    /// What the model sees, to be read anew.
    fn seen(&self) -> Tokens<'_> {
        let tokens = Tokens::new(&self.tokens[self.start..], 1);
        match self.seen_prefix() {
            0 => tokens,
            prefix => tokens.laid_out(Layout::prefixed(&[prefix])),
        }
    }

    /// Forgets the older half if there are more tokens than the model can see.
    fn make_room(&mut self, context: usize) {
        let start = window(self.start, self.tokens.len(), context);
        if start != self.start {
            self.start = start;
            if let Some(slot) = &mut self.slot {
                slot.clear();
            }
        }
    }

    /// What is still to be read, if there is a slot to read it into.
    fn feed(&mut self) -> Option<Feed<'_>> {
        let prefix = self.seen_prefix();
        let slot = self.slot.as_mut()?;
        if slot.is_empty() {
            slot.set_prefix(prefix);
        }
        Some(Feed { ids: &self.tokens[self.start + slot.len()..], slot })
    }
}

impl Engine {
    /// Works until all clients are gone and their jobs done. `model` is the one that the engine was
    /// made for.
    pub fn run(self, model: &dyn Generates) {
        self.work(model, None);
    }

    /// The same; `sources` is the model, if it translates.
    fn work(self, model: &dyn Generates, sources: Option<&dyn Translates>) {
        let mut waiting = VecDeque::new();
        let mut active: Vec<Active> = Vec::new();
        loop {
            if active.is_empty() && waiting.is_empty() {
                match self.submissions.recv() {
                    Ok(submission) => waiting.push_back(submission),
                    Err(_) => return,
                }
            }
            waiting.extend(self.submissions.try_iter());
            self.admit(model, sources, &mut waiting, &mut active);
            active.retain_mut(|active| {
                active.reader = active.job.reader();
                match active.reader {
                    Reader::Ready => !active.sequences.is_empty(),
                    Reader::Behind => true,
                    Reader::Gone => false,
                }
            });
            if active.is_empty() {
                continue;
            }
            let ready = |active: &&mut Active| active.reader == Reader::Ready;
            let ready: Vec<&mut Active> = active.iter_mut().filter(ready).collect();
            if ready.is_empty() {
                match self.submissions.recv_timeout(NAP) {
                    Ok(submission) => waiting.push_back(submission),
                    // Without clients there are still those who read.
                    Err(RecvTimeoutError::Disconnected) => std::thread::sleep(NAP),
                    Err(RecvTimeoutError::Timeout) => {}
                }
                continue;
            }
            step(model, ready);
        }
    }

    /// Lets jobs in, in their order, as long as there is room.
    fn admit(
        &self,
        model: &dyn Generates,
        sources: Option<&dyn Translates>,
        waiting: &mut VecDeque<Submission>,
        active: &mut Vec<Active>,
    ) {
        let mut used: usize = active.iter().map(|active| active.most_sequences).sum();
        let mut admitted = Vec::new();
        while let Some(next) = waiting.front() {
            if used > 0 && used + next.most_sequences > self.most_sequences {
                break;
            }
            used += next.most_sequences;
            admitted.extend(waiting.pop_front());
        }
        let slots = slots_of(model, sources, &admitted);
        for (mut next, slot) in admitted.into_iter().zip(slots) {
            let mut sequences = vec![Sequence::new(model, next.prompt, slot)];
            if next.most_tokens == 0 {
                next.job.advance(&[]);
                sequences.clear();
            }
            let most_sequences = next.most_sequences;
            active.push(Active { job: next.job, sequences, most_sequences, reader: Reader::Ready });
        }
    }
}

/// The state in which each job begins. Sources are read together.
fn slots_of(
    model: &dyn Generates,
    sources: Option<&dyn Translates>,
    jobs: &[Submission],
) -> Vec<Option<Slot>> {
    let mut slots: Vec<Option<Slot>> = jobs
        .iter()
        .map(|job| job.cache.filter(|_| job.source.is_none()).map(|kind| model.slot(kind)))
        .collect();
    let Some(reader) = sources else { return slots };
    for kind in [CacheKind::F32, CacheKind::F16, CacheKind::Int8] {
        let of_kind = |job: &Submission| job.source.is_some() && job.cache == Some(kind);
        let chosen: Vec<usize> = (0..jobs.len()).filter(|i| of_kind(&jobs[*i])).collect();
        let texts: Vec<&[u32]> = chosen.iter().filter_map(|i| jobs[*i].source.as_deref()).collect();
        if texts.is_empty() {
            continue;
        }
        let lengths: Vec<usize> = texts.iter().map(|ids| ids.len()).collect();
        let length = lengths.iter().copied().max().unwrap_or(0);
        let mut ids = vec![0; texts.len() * length]; // (B, S)
        for (row, text) in ids.chunks_exact_mut(length).zip(&texts) {
            row[..text.len()].copy_from_slice(text);
        }
        let tokens = Tokens::new(&ids, texts.len()).laid_out(Layout::padded(&lengths));
        for (i, slot) in chosen.into_iter().zip(reader.begin(&tokens, kind)) {
            slots[i] = Some(slot);
        }
    }
    slots
}

/// One token for every sequence of these jobs.
fn step(model: &dyn Generates, mut jobs: Vec<&mut Active>) {
    let context = model.context();
    let sequences = jobs.iter_mut().flat_map(|active| &mut active.sequences);
    let mut feeds: Vec<Feed<'_>> = sequences
        .filter_map(|sequence| {
            sequence.make_room(context);
            sequence.feed()
        })
        .collect();
    let together = (!feeds.is_empty()).then(|| model.step(&mut feeds));
    drop(feeds);
    let width = model.vocabulary();
    let mut rows = together.iter().flat_map(|logits| logits.data().chunks_exact(width));
    for active in jobs {
        let alone: Vec<Option<Tensor>> = active
            .sequences
            .iter()
            .map(|s| s.slot.is_none().then(|| model.next_logits_of(&s.seen())))
            .collect();
        let outcomes = active.sequences.iter().zip(&alone).filter_map(|(sequence, alone)| {
            let logits = match alone {
                Some(alone) => alone.data(),
                None => rows.next()?,
            };
            Some(Outcome { logits, tokens: &sequence.tokens })
        });
        let outcomes: Vec<Outcome<'_>> = outcomes.collect();
        let branches = if outcomes.iter().any(|o| o.logits.iter().any(|x| x.is_nan())) {
            active.job.fail(not_a_number());
            Vec::new()
        } else {
            active.job.advance(&outcomes)
        };
        active.sequences = grow(std::mem::take(&mut active.sequences), &branches);
    }
}

/// Where what a model sees of so many tokens begins, if it began at `start` so far: the older half is
/// forgotten when there are more than it can see.
pub(crate) fn window(start: usize, tokens: usize, context: usize) -> usize {
    if tokens - start > context { tokens - (context / 2).max(1) } else { start }
}

pub(crate) fn not_a_number() -> Error {
    Error::new(
        "the model's weights give NaN instead of probabilities",
        "training has diverged or the file is damaged: take an earlier checkpoint; \
         `hearken inspect weights` lists what is in one",
    )
}

/// The sequences of the next step: copies of their parents; the last that has a parent takes it.
fn grow(parents: Vec<Sequence>, branches: &[Branch]) -> Vec<Sequence> {
    let mut parents: Vec<Option<Sequence>> = parents.into_iter().map(Some).collect();
    let mut grown = Vec::new();
    for (i, branch) in branches.iter().enumerate() {
        let needed = branches[i + 1..].iter().any(|later| later.parent == branch.parent);
        let place = &mut parents[branch.parent];
        let sequence = if needed { place.clone() } else { place.take() };
        grown.extend(sequence.map(|mut sequence| {
            sequence.tokens.push(branch.token);
            sequence
        }));
    }
    grown
}
