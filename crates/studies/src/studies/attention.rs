//! What cheaper kinds of attention cost and what they can do.
//!
//! Time and memory of each on sequences of growing length, with the power of the length that they grow
//! by; and how well small models that use them look up what stands far back.

mod cost;
mod quality;

use crate::outcome::Outcome;
use crate::request::Request;
use crate::study::{Contender, Study};
use hearken_base::Result;
use serde_json::json;

/// See the [module](self).
pub(crate) const STUDY: Study = Study {
    name: "attention",
    line: "what cheaper kinds of attention cost, and what they lose: time, memory, lookup at a distance",
    question: "Exact attention compares every token with every other: its time grows as the square of \
               the length. Windows, patterns, feature maps, mixtures and hashes are cheaper. What do \
               they cost on sequences of growing length, forward and backward, and can small models \
               that use them still look up what stands far back?",
    contenders: &[
        Contender { name: "softmax", about: "exact: softmax over all tokens before" },
        Contender { name: "window", about: "softmax over the last tokens alone" },
        Contender { name: "strided", about: "a window, and every s-th token before it" },
        Contender { name: "global", about: "a window, and the first tokens" },
        Contender { name: "linear", about: "sums over keys, with the features elu(x) + 1" },
        Contender { name: "performer", about: "sums over keys, with random features of softmax" },
        Contender {
            name: "linformer",
            about: "softmax over a fixed number of mixtures of all keys; in both directions",
        },
        Contender { name: "lsh", about: "softmax among tokens in the same buckets of a hash" },
    ],
    reads_text: false,
    minutes: [4.0, 16.0],
    run,
};

fn run(request: &Request) -> Result<Outcome> {
    let seeds = request.seeds(1, 3);
    let seconds = cost::estimate(request) + quality::estimate(request, seeds.len())?;
    request.announce(seconds)?;
    let mut outcome = Outcome::default();
    let cost = cost::run(request, &mut outcome)?;
    let quality = quality::run(request, &seeds, &mut outcome)?;
    outcome.numbers = json!({"cost": cost, "quality": quality});
    Ok(outcome)
}

/// Its place in the list of contenders, for its colour.
fn color(name: &str) -> usize {
    STUDY.contenders.iter().position(|c| c.name == name).unwrap_or(0)
}

/// `linformer (both directions)`: it cannot read from left to right, as all others do.
fn label(name: &str) -> String {
    let both = if name == "linformer" { " (both directions)" } else { "" };
    format!("{name}{both}")
}
