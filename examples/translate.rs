//! An encoder-decoder that learns to write dates as ISO 8601 does, and what it looks at.
//!
//! ```text
//! cargo run --release --example translate ['the third of March 2021']
//! ```

use hearken::base::Result;
use hearken::data::corpus::Stop;
use hearken::tasks::data::FILES;
use hearken::tasks::prepared::first_model;
use hearken::tasks::translate::Options;
use hearken::tasks::{OpenModel, Prepared, RunConfig, Translator};
use hearken::train::{RunDirectory, Setup, train};
use std::path::Path;

fn main() -> Result<()> {
    let run = std::env::temp_dir().join(format!("hearken-dates-{}", std::process::id()));
    let text = std::env::args().nth(1);
    let text = text.unwrap_or_else(|| "the third of March 2021".to_owned());
    let exact = learn(&run, RunConfig::preset("dates")?)?;
    println!("exact match on dates it has never seen: {exact:.3}");
    println!("{text} → {}", translate(&run, &text)?);
    Ok(())
}

/// Trains; gives the share of held-out dates that are written without a mistake.
fn learn(run: &Path, mut config: RunConfig) -> Result<f64> {
    let directory = RunDirectory::create(run, &FILES)?;
    // Pairs are made as they are needed: no files are named.
    let data = Prepared::prepare(&mut config, &directory, &Stop::default(), &mut |_| ())?;
    let (model, _) = first_model(&config, false)?;
    let mut task = data.into_task(model, &config)?;
    let setup = Setup::new(directory, config.to_toml()?);
    let summary = train(task.as_mut(), &config.train, setup)?;
    Ok(summary.metric("exact_match").unwrap_or(0.0))
}

/// Translates one text greedily, and prints which token of it each written one looked at most.
fn translate(run: &Path, text: &str) -> Result<String> {
    let model = OpenModel::open(Some(run), &mut |warning| eprintln!("{warning}"))?;
    let tokenizer = model.require_tokenizer(None, "the run has one")?;
    let translator = Translator::new(&model, &tokenizer)?;
    let sources = translator.sources(&[text])?;
    let mut found = translator.translate(&sources, &Options::default(), &mut |_| ())?;
    let best = found.swap_remove(0).swap_remove(0);
    let alignment = translator.alignment(&sources.list[0], &best, None, None)?;
    for (token, weights) in alignment.target.iter().zip(&alignment.weights) {
        let most = weights.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        if let Some((place, weight)) = most {
            println!("{token:>5} ← {} ({:.0} %)", alignment.source[place], 100.0 * weight);
        }
    }
    Ok(best.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_trains_and_translates() {
        let run = std::env::temp_dir().join(format!("hearken-dates-test-{}", std::process::id()));
        let sets = ["model.width=32", "model.layers=1", "data.stories=8", "train.batch_size=8"];
        let mut config = RunConfig::read("dates", &sets.map(str::to_owned)).unwrap();
        config.train.steps = 4;
        config.fit_warmup();
        let exact = learn(&run, config).unwrap();
        let text = translate(&run, "the third of March 2021");
        let _ = std::fs::remove_dir_all(&run);
        assert!((0.0..=1.0).contains(&exact));
        assert!(text.unwrap().len() < 500); // what it says after 4 steps is noise
    }
}
