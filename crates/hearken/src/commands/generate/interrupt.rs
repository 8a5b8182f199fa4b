//! Ctrl-C in a conversation: ends the text that is being written, or, at the prompt, the program.

use crate::terminal::say;
use hearken::train::interrupt::EXIT_CODE;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static WRITING: AtomicBool = AtomicBool::new(false);
static STOP: AtomicBool = AtomicBool::new(false);

/// Begins to watch. Where that is not possible, Ctrl-C ends the program as ever.
pub(super) fn watch() {
    let _ = ctrlc::set_handler(|| {
        // The second one does not wait for the next token.
        if !WRITING.load(SeqCst) || STOP.swap(true, SeqCst) {
            say!("");
            std::process::exit(EXIT_CODE);
        }
    });
}

/// Runs `write`, which asks [`stopped`] after each token.
pub(super) fn while_writing<R>(write: impl FnOnce() -> R) -> R {
    STOP.store(false, SeqCst);
    WRITING.store(true, SeqCst);
    let result = write();
    WRITING.store(false, SeqCst);
    result
}

/// Has this text been ended?
pub(super) fn stopped() -> bool {
    STOP.load(SeqCst)
}
