//! One thread owns the model and answers questions, one after the other.

use crate::{Session, Subject};
use hearken_base::{Error, Result};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use tokio::sync::oneshot;

/// So many questions may wait. A browser asks at most six at once.
const QUEUE: usize = 64;

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The question is wrong: 400.
    Bad(Error),
    /// There is no such question: 404.
    Unknown,
    /// Too many wait: 503.
    Busy,
    /// An error of ours: 500.
    Broken,
}

struct Question {
    name: String,
    body: Value,
    reply: oneshot::Sender<Result<String, Refusal>>,
}

/// Where questions are put.
#[derive(Clone)]
pub(crate) struct Engine {
    queue: SyncSender<Question>,
}

impl Engine {
    /// Starts the thread. Fails if the model cannot be looked at.
    pub(crate) fn start(subject: Subject) -> Result<Self> {
        let (queue, questions) = sync_channel(QUEUE);
        let (begun, ready) = std::sync::mpsc::channel();
        let failed = |error: std::io::Error| {
            Error::new(format!("cannot start a thread: {error}"), "close other programs")
        };
        std::thread::Builder::new()
            .name("explain".to_owned())
            .spawn(move || match Session::new(&subject) {
                Ok(session) => {
                    let _ = begun.send(Ok(())); // whoever asked is waiting
                    answer_all(session, &questions);
                }
                Err(error) => drop(begun.send(Err(error))),
            })
            .map_err(failed)?;
        let gone = || Error::new("the model cannot be looked at", "try 'hearken inspect trace'");
        ready.recv().map_err(|_| gone())??;
        Ok(Self { queue })
    }

    /// The answer, as JSON text.
    pub(crate) async fn ask(&self, name: String, body: Value) -> Result<String, Refusal> {
        let (reply, answer) = oneshot::channel();
        match self.queue.try_send(Question { name, body, reply }) {
            Ok(()) => answer.await.unwrap_or(Err(Refusal::Broken)),
            Err(TrySendError::Full(_)) => Err(Refusal::Busy),
            Err(TrySendError::Disconnected(_)) => Err(Refusal::Broken),
        }
    }
}

fn answer_all(mut session: Session<'_>, questions: &Receiver<Question>) {
    while let Ok(Question { name, body, reply }) = questions.recv() {
        if reply.is_closed() {
            continue; // nobody waits for it any more
        }
        if !Session::QUESTIONS.contains(&name.as_str()) {
            let _ = reply.send(Err(Refusal::Unknown));
            continue;
        }
        // Every field of a question is checked. Should a mistake of ours panic all the same, this one
        // question fails and the page lives on.
        let answer = catch_unwind(AssertUnwindSafe(|| session.answer(&name, &body)));
        let answer = match answer {
            Ok(Ok(answer)) => Ok(answer.to_string()),
            Ok(Err(error)) => Err(Refusal::Bad(error)),
            Err(_) => {
                session.forget();
                Err(Refusal::Broken)
            }
        };
        let _ = reply.send(answer); // the client may be gone
    }
}
