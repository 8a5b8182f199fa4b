//! The border to the `tokenizers` library. It panics on files that contradict themselves; a panic
//! there becomes an error here, and its message does not reach the terminal.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// A message of the library is cut to this many characters: it may quote the file.
const LONGEST_REASON: usize = 200;

thread_local! {
    /// Is this thread inside [`guarded`]?
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, which must not hand work to other threads: their panics would be heard. An error
/// or a panic becomes a reason.
pub(super) fn guarded<R>(work: impl FnOnce() -> tokenizers::Result<R>) -> Result<R, String> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let loud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                loud(panic);
            }
        }));
    });
    let before = GUARDED.replace(true);
    // Nothing that `work` changes is used after a panic, but for the library's caches, which hold
    // whole entries or none.
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    match result {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(shortened(&error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            Err(format!("its settings contradict each other ({})", shortened(text)))
        }
    }
}

/// The first line, or as much of it as fits.
fn shortened(reason: &str) -> String {
    let line = reason.lines().next().unwrap_or_default();
    match line.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_and_errors_become_reasons() {
        assert_eq!(guarded(|| Ok(7)), Ok(7));
        assert_eq!(guarded::<()>(|| Err("bad".into())), Err("bad".to_owned()));
        let number = 5;
        let reason = guarded::<()>(|| panic!("no {number}\nand more")).unwrap_err();
        assert_eq!(reason, "its settings contradict each other (no 5)");
        assert!(!GUARDED.get());
        assert_eq!(shortened(&"ä".repeat(300)).chars().count(), LONGEST_REASON + 1);
    }
}
