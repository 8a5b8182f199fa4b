//! The line protocol by which a script alternates our kernels with a peer's in one run.
//!
//! Every line on stdin is a JSON object that says what to run and how many `calls` of it; the
//! answer is a line on stdout, a JSON object with the seconds of each call.

use super::write_json;
use crate::failure::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, Write};

/// Answers requests until stdin ends.
pub(super) fn serve<Request: DeserializeOwned, Answer: Serialize>(
    mut answer: impl FnMut(Request) -> Result<Answer, Failure>,
) -> Result<(), Failure> {
    let mut out = io::stdout();
    for line in io::stdin().lock().lines() {
        let line =
            line.map_err(|error| Failure::input(format!("cannot read stdin: {error}"), ""))?;
        if line.trim().is_empty() {
            continue;
        }
        let request = serde_json::from_str(&line).map_err(|error| {
            Failure::input(
                format!("a request is not understood: {error}"),
                format!("'hearken bench --help' and benches/README.md show one; it was: {line}"),
            )
        })?;
        write_json(&mut out, &answer(request)?)?;
        out.flush()?;
    }
    Ok(())
}
