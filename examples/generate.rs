//! Step 2: Load a model and write with it: as text comes, with the probabilities of each token, and by
//! beam search. A run of `train_text`, or a GPT-2 or Llama that `transformers` saved:
//!
//! ```text
//! cargo run --release --example generate -- runs/first "The "
//! ```

use hearken::Result;
use hearken::infer::beam::BeamSearch;
use hearken::infer::generate::{Flow, beam_search};
use hearken::infer::sampler::Sampling;
use hearken::nn::cache::CacheKind;
use hearken::nn::models::Tokens;
use hearken::tasks::{OpenModel, Writing};
use std::io::Write;
use std::path::Path;

fn open(directory: &str) -> Result<OpenModel> {
    OpenModel::open(Some(Path::new(directory)), &mut |warning| eprintln!("warning: {warning}"))
}

/// The most likely next tokens and their probabilities: one pass of the model, by hand.
fn candidates(model: &OpenModel, prompt: &str, most: usize) -> Result<Vec<(String, f32)>> {
    let writer = model.writer()?;
    let ids = model.prompt(writer.tokenizer(), prompt)?;
    model.check(&ids)?;
    let logits = model.predicts_tokens()?.logits(&Tokens::new(&ids, 1)); // (1, T, V)
    let last = logits.data().chunks(logits.shape().width()).next_back().unwrap_or_default();
    let largest = last.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f32 = last.iter().map(|z| (z - largest).exp()).sum();
    let mut found: Vec<(String, f32)> = (0..)
        .zip(last)
        .map(|(id, z)| (writer.tokenizer().decode_known(&[id]), (z - largest).exp() / total))
        .collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found.truncate(most);
    Ok(found)
}

/// The likeliest continuation that four beams find.
fn likeliest(model: &OpenModel, prompt: &str, tokens: usize) -> Result<String> {
    let writer = model.writer()?;
    let ids = model.prompt(writer.tokenizer(), prompt)?;
    let ends = model.ends(Some(writer.tokenizer()));
    let search = BeamSearch { ends, ..BeamSearch::new(4, tokens) };
    let found = beam_search(model.generates()?, &ids, &search, CacheKind::F32)?;
    Ok(found.first().map(|best| writer.tokenizer().decode_known(&best.tokens)).unwrap_or_default())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, prompt] = arguments.as_slice() else {
        println!("usage: generate DIRECTORY PROMPT");
        return Ok(());
    };
    let model = open(directory)?;
    print!("{prompt}");
    let sampling = Sampling { temperature: 0.7, top_p: Some(0.9), seed: 1, ..Sampling::default() };
    let writing = Writing { most_tokens: 300, sampling, ..Writing::default() };
    model.writer()?.stream(prompt, &writing, |piece| {
        print!("{piece}");
        let read = std::io::stdout().flush().is_ok();
        if read { Flow::Continue } else { Flow::Stop }
    })?;
    println!("\n\nafter the prompt may come:");
    for (token, probability) in candidates(&model, prompt, 5)? {
        println!("  {token:?} {probability:.3}");
    }
    println!("likeliest: {:?}", likeliest(&model, prompt, 30)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken::data::stories;
    use hearken::formats::{self, SpecialTokens};
    use hearken::nn::config::{DecoderConfig, StackConfig};
    use hearken::nn::models::Decoder;

    #[test]
    fn a_saved_model_is_opened_and_writes() {
        let dir = tempfile::tempdir().unwrap();
        let tokenizer = stories::tokenizer();
        let config = DecoderConfig {
            vocabulary: tokenizer.vocabulary_size(),
            ..DecoderConfig::new(32, StackConfig::new(1, 16, 2))
        };
        formats::save(dir.path(), &Decoder::drawn(config, 1), &SpecialTokens::default()).unwrap();
        tokenizer.save_directory(dir.path()).unwrap();
        let model = open(dir.path().to_str().unwrap()).unwrap();
        let five = candidates(&model, "Mia the ", 5).unwrap();
        assert!(five.len() == 5 && five.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{five:?}");
        assert_eq!(likeliest(&model, "Mia the ", 7).unwrap().chars().count(), 7);
        let writing = Writing { most_tokens: 9, ..Writing::default() };
        let text = model.writer().unwrap().write("Mia the ", &writing).unwrap();
        assert_eq!(text.chars().count(), 9);
        let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
        let writing = Writing { most_tokens: 1, sampling: greedy, ..writing };
        assert_eq!(model.writer().unwrap().write("Mia the ", &writing).unwrap(), five[0].0);
    }
}
