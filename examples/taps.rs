//! Step 5: Look inside a model and change what happens there: which heads matter?
//!
//! ```text
//! cargo run --release --example taps -- runs/first book.txt
//! ```
//!
//! Every head is ablated in turn (what it mixes is replaced by zeros), and the loss on the text says
//! what it was good for. The names of all values: `hearken::nn::taps`.

use hearken::Result;
use hearken::nn::models::{PredictsTokens, Tokens};
use hearken::nn::pass::Pass;
use hearken::nn::taps::{self, Taps};
use hearken::tasks::OpenModel;
use hearken::tensor::ops::cross_entropy::Options;
use hearken::tensor::{Tensor, no_grad};
use std::path::Path;
use std::sync::Arc;

/// The mean loss of predicting each token of `ids` from those before it, in a pass with taps.
fn loss(model: &dyn PredictsTokens, ids: &[u32], taps: &Arc<Taps>) -> f32 {
    let (inputs, targets) = (Tokens::new(&ids[..ids.len() - 1], 1), &ids[1..]);
    let pass = Pass::evaluate().watched(taps);
    no_grad(|| model.loss(&inputs, targets, &pass, Options::default()).mean()).value().item()
}

/// The names of what every head mixes, `blocks.0.attention.mixed[0]` and so on, with the place that
/// it looks at on average: how many tokens back.
fn heads(model: &dyn PredictsTokens, ids: &[u32]) -> Vec<(String, f32)> {
    // `measure` keeps a number about a value, `record` the value.
    let taps = Arc::new(Taps::new().measure("*.attention.weights[*]", |weights| {
        let [_, queries, keys] = weights.dims(); // (1, T, S)
        let back = |i: usize| i32::abs_diff((i / keys) as i32, (i % keys) as i32) as f32;
        let sum: f32 = (0..).zip(weights.data()).map(|(i, weight)| weight * back(i)).sum();
        Tensor::scalar(sum / queries as f32)
    }));
    loss(model, ids, &taps);
    let seen = taps.take().into_iter();
    seen.map(|(name, back)| (name.replace(".weights[", ".mixed["), back.item())).collect()
}

/// The loss without each of these heads.
fn losses_without(model: &dyn PredictsTokens, ids: &[u32], names: &[String]) -> Vec<f32> {
    let without =
        |name: &String| loss(model, ids, &Arc::new(Taps::new().replace(name.as_str(), taps::zero)));
    names.iter().map(without).collect()
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, file] = arguments.as_slice() else {
        println!("usage: taps DIRECTORY FILE");
        return Ok(());
    };
    let open = OpenModel::open(Some(Path::new(directory)), &mut |_| {})?;
    let text =
        std::fs::read_to_string(file).map_err(hearken::Error::io("read", Path::new(file)))?;
    let mut ids = open.writer()?.tokenizer().encode(&text)?;
    ids.truncate(open.model.config().context());
    if ids.len() < 2 {
        return Err(hearken::Error::new(
            format!("{file} is too short"),
            "two tokens are the least",
        ));
    }
    let model = open.predicts_tokens()?;
    let whole = loss(model, &ids, &Arc::new(Taps::new()));
    println!("loss {whole:.4} on {} tokens; without a head:\n", ids.len());
    let (names, back): (Vec<String>, Vec<f32>) = heads(model, &ids).into_iter().unzip();
    for ((name, back), without) in names.iter().zip(back).zip(losses_without(model, &ids, &names)) {
        println!("{name:30} {without:.4} ({:+.4}), looks {back:.1} tokens back", without - whole);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken::nn::config::{DecoderConfig, StackConfig};
    use hearken::nn::models::{Decoder, Model};

    #[test]
    fn without_a_head_the_loss_is_that_of_zeroed_weights() {
        let config =
            DecoderConfig { vocabulary: 11, ..DecoderConfig::new(16, StackConfig::new(2, 16, 4)) };
        let model = Decoder::drawn(config, 3);
        for parameter in model.parameters() {
            let mut value = parameter.value(); // as drawn, heads add next to nothing
            value.data_mut().iter_mut().for_each(|x| *x *= 4.0);
            parameter.set_value(value);
        }
        let ids: Vec<u32> = (0..16).map(|i| i * 7 % 11).collect();
        let heads = heads(&model, &ids);
        assert_eq!(heads.len(), 2 * 4);
        assert!(heads.iter().all(|(_, back)| (0.0..15.0).contains(back)), "{heads:?}");
        let names: Vec<String> = heads.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names[6], "blocks.1.attention.mixed[2]");
        let found = losses_without(&model, &ids, &names);

        let whole = loss(&model, &ids, &Arc::new(Taps::new()));
        let out = model.parameters().iter().find(|p| p.name() == "blocks.1.attention.out.weight");
        let mut zeroed = out.unwrap().value(); // (C, H·D)
        zeroed.data_mut().chunks_mut(16).for_each(|row| row[2 * 4..3 * 4].fill(0.0));
        out.unwrap().set_value(zeroed);
        let want = loss(&model, &ids, &Arc::new(Taps::new()));
        assert!((found[6] - want).abs() < 1e-5, "{} and {want}", found[6]);
        assert!((whole - want).abs() > 1e-4, "the head does nothing: {whole} and {want}");
    }
}
