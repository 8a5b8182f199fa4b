//! Text from standard input that is needed as a whole.

use crate::failure::Failure;
use hearken::show::number::thousands;
use std::io::{self, Read};

/// Bytes of a text that is taken as a whole: more than any context holds.
pub(crate) const MOST_TEXT: u64 = 64 << 20;

/// All of standard input, which must end.
pub(crate) fn read(what: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let failed = |error| Failure::input(format!("cannot read {what} from stdin: {error}"), "");
    io::stdin().lock().take(MOST_TEXT + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST_TEXT {
        let message = format!("{what} on stdin: more than {} bytes", thousands(MOST_TEXT as f64));
        return Err(Failure::input(message, "give less at a time"));
    }
    Ok(text)
}
