//! Step 7: Find induction heads by patching.
//!
//! ```text
//! hearken train --config repeats --out runs/repeats     # a minute or two
//! cargo run --release --example induction -- runs/repeats
//! ```
//!
//! The model has read `… q z … q` and should say `z`: it must find the earlier `q` and look at what
//! followed it. The other prompt has `x` in the place of that `z`. If what a head computes at the last
//! token is taken from the other prompt and the answer becomes `x`, then this head is the one that
//! carries what followed: an induction head. Where its weights go says it in another way, which the page
//! uses, too. Both are needed: heads stand in for each other, so that one alone may change little.

use hearken::Result;
use hearken::data::repeats;
use hearken::explain::roles::{THRESHOLD, roles};
use hearken::explain::{Flow, intervene, stack_of};
use hearken::nn::models::{PredictsTokens, Tokens};
use hearken::nn::pass::Pass;
use hearken::nn::taps::{self, Taps};
use hearken::tasks::OpenModel;
use hearken::tensor::no_grad;
use hearken::tensor::ops::cross_entropy::{IGNORED, Options};
use hearken::tensor::rng::Rng;
use std::path::Path;
use std::sync::Arc;

/// Pairs of prompts that are looked at.
const PAIRS: u64 = 20;
/// The rise of the loss from which on a head counts as one that carries the answer alone.
const RISE: f64 = 0.3;

/// A head, by how much patching it raises the loss, and its mean weight on what followed.
#[derive(Clone, Debug, PartialEq)]
struct Head {
    name: String,
    rise: f64,
    induction: f64,
}

/// A period of letters, all different so that there is one earlier place only, and half of it again;
/// the place of the letter that should follow.
fn prompt(rng: &mut Rng, period: usize) -> (Vec<u32>, usize) {
    let mut letters: Vec<u32> = (1..=repeats::LETTERS as u32).collect();
    for i in (1..letters.len()).rev() {
        letters.swap(i, rng.below(i + 1));
    }
    letters.truncate(period);
    let again = period / 2;
    let ids =
        std::iter::once(0).chain(letters.iter().copied()).chain(letters[..again].iter().copied());
    (ids.collect(), 1 + again)
}

/// Every head, patched at the last token from a prompt with another letter in the place of the answer.
fn patched(model: &dyn PredictsTokens) -> Result<Vec<Head>> {
    let config = model.config();
    let stack = stack_of(&config)?;
    let period = (config.context() / 3).clamp(4, repeats::LETTERS - 1);
    let mut rng = Rng::new(7);
    let mut found: Vec<Head> = Vec::new();
    for pair in 0..PAIRS {
        let (ids, answer) = prompt(&mut rng, period);
        let mut other = ids.clone();
        let unused = (1..=repeats::LETTERS as u32).find(|letter| !ids.contains(letter));
        other[answer] = unused.unwrap_or(1);
        let last = ids.len() - 1;
        let flow = Flow::of(model, &ids, None, None)?;
        let roles = roles(&flow);
        for (i, role) in roles.iter().enumerate() {
            let name = format!("blocks.{}.attention.mixed[{}]", role.layer, role.head);
            let target = (last, ids[answer]);
            let effect = intervene::patch(model, &ids, &other, target, &name, &[last])?;
            let score = role.scores.iter().find(|(name, _)| *name == "induction");
            let score = score.and_then(|(_, score)| *score).unwrap_or(0.0);
            if pair == 0 {
                found.push(Head { name, rise: 0.0, induction: 0.0 });
            }
            found[i].rise += (effect.after - effect.before) / PAIRS as f64;
            found[i].induction += score / PAIRS as f64;
        }
    }
    assert_eq!(found.len(), stack.layers * stack.heads);
    Ok(found)
}

/// The mean loss per letter of the first period and of all that follows it, without these heads.
fn losses(model: &dyn PredictsTokens, without: &[&str]) -> [f32; 2] {
    let length = model.config().context();
    let taps = without.iter().fold(Taps::new(), |taps, name| taps.replace(*name, taps::zero));
    let taps = Arc::new(taps);
    let mut rng = Rng::new(11);
    let mut sums = [0.0; 2];
    for _ in 0..PAIRS {
        let (ids, period) = repeats::sample(length, &mut rng);
        // The first letter of the second copy is the last that nobody can know.
        let halves = [0..period + 1, period + 1..length];
        for (sum, half) in sums.iter_mut().zip(halves) {
            let mut targets = vec![IGNORED; length];
            targets[half.clone()].copy_from_slice(&ids[half.start + 1..=half.end]);
            let tokens = Tokens::new(&ids[..length], 1);
            let pass = Pass::evaluate().watched(&taps);
            let loss = no_grad(|| model.loss(&tokens, &targets, &pass, Options::default()));
            *sum += loss.mean().value().item() / PAIRS as f32;
        }
    }
    sums
}

fn main() -> Result<()> {
    let Some(directory) = std::env::args().nth(1) else {
        println!("usage: induction DIRECTORY   (of hearken train --config repeats)");
        return Ok(());
    };
    let open = OpenModel::open(Some(Path::new(&directory)), &mut |_| {})?;
    let model = open.predicts_tokens()?;
    if model.config().vocabulary() != 1 + repeats::LETTERS {
        let hint = "train one with 'hearken train --config repeats'";
        return Err(hearken::Error::new("this model does not repeat letters", hint));
    }
    let heads = patched(model)?;
    println!("a head patched from a prompt with another answer: how the loss rises\n");
    for Head { name, rise, induction } in &heads {
        let looks = if *induction >= THRESHOLD { "  <- induction" } else { "" };
        let carries = if *rise >= RISE { ", carries the answer alone" } else { "" };
        println!("{name:30} {rise:+.4}   weight on what followed {induction:.3}{looks}{carries}");
    }
    let named = |fits: &dyn Fn(&Head) -> bool| -> Vec<&str> {
        heads.iter().filter(|head| fits(head)).map(|head| head.name.as_str()).collect()
    };
    let carriers = named(&|head| head.rise >= RISE);
    let all = named(&|head| head.induction >= THRESHOLD || head.rise >= RISE);
    println!("\nloss per letter                     first period   what repeats it");
    for (what, without) in [
        ("all heads".to_owned(), &[][..]),
        (format!("without {} that carry it alone", carriers.len()), &carriers),
        (format!("without all {} induction heads", all.len()), &all),
    ] {
        let [first, second] = losses(model, without);
        println!("{what:35} {first:12.4}   {second:15.4}");
    }
    println!("(knowing nothing: ln 26 = {:.4})", (repeats::LETTERS as f64).ln());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken::nn::config::{DecoderConfig, StackConfig};
    use hearken::nn::models::Decoder;

    #[test]
    fn heads_are_patched_one_by_one_and_halves_are_told_apart() {
        let stack = StackConfig::new(2, 16, 2);
        let config = DecoderConfig { vocabulary: 27, ..DecoderConfig::new(32, stack) };
        let model = Decoder::drawn(config, 3);
        let heads = patched(&model).unwrap();
        assert_eq!(heads.len(), 4);
        assert_eq!(heads[3].name, "blocks.1.attention.mixed[1]");
        assert!(heads.iter().all(|head| head.rise.is_finite() && head.rise.abs() < 1.0));
        // Nothing was learned yet: both halves cost about as much as guessing.
        let [first, second] = losses(&model, &[]);
        assert!((first - 3.3).abs() < 0.5 && (second - 3.3).abs() < 0.5, "{first} and {second}");
        let names: Vec<&str> = heads.iter().map(|head| head.name.as_str()).collect();
        assert_ne!(losses(&model, &names), [first, second]);
    }
}
