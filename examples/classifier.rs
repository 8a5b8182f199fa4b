//! A classifier of your own texts, trained from a table in a few lines.
//!
//! ```text
//! cargo run --release --example classifier [reviews.csv]
//! ```
//! The table has the columns `text` and `label`. Without one, a small one is made.

use hearken::base::Result;
use hearken::data::corpus::Stop;
use hearken::tasks::data::FILES;
use hearken::tasks::prepared::first_model;
use hearken::tasks::{Prepared, RunConfig};
use hearken::train::{RunDirectory, Setup, train};
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("hearken-classifier-{}", std::process::id()));
    let table = std::env::args().nth(1).map_or_else(|| made_up(&folder), PathBuf::from);
    let accuracy = learn(&table, &folder.join("run"), 200)?;
    println!("accuracy on what was held out: {accuracy:.3}");
    println!("the model: {}", folder.join("run/checkpoints/best").display());
    Ok(())
}

/// Trains so many steps on a table; gives the accuracy on the tenth that is held out.
fn learn(table: &Path, run: &Path, steps: u64) -> Result<f64> {
    // The preset for texts of one's own, smaller: every key can be set, as with --set.
    let sets = ["model.width=64", "model.context=64", "train.evaluate_every=100"];
    let sets = sets.map(str::to_owned);
    let mut config = RunConfig::read("classifier", &sets)?;
    config.data.paths = vec![table.to_owned()];
    config.train.steps = steps;
    config.fit_warmup();

    // Rows are read, labels found, a tenth is held out, words become tokens.
    let directory = RunDirectory::create(run, &FILES)?;
    let data = Prepared::prepare(&mut config, &directory, &Stop::default(), &mut |_| ())?;
    let (model, _) = first_model(&config, false)?;
    let mut task = data.into_task(model, &config)?;

    let setup = Setup::new(directory, config.to_toml()?);
    let summary = train(task.as_mut(), &config.train, setup)?;
    Ok(summary.metric("accuracy").unwrap_or(0.0))
}

/// A table in which no single word tells the label: "not bad" is good.
fn made_up(folder: &Path) -> PathBuf {
    let mut table = String::from("text,label\n");
    for i in 0..600 {
        let (word, good) = [("good", true), ("bad", false), ("fine", true), ("dull", false)][i % 4];
        let thing = ["film", "book", "song", "meal", "game"][i % 5];
        let negated = i % 3 == 0;
        let not = if negated { "not " } else { "" };
        let label = if good == negated { "dislike" } else { "like" };
        let _ = writeln!(table, "\"the {thing} was {not}{word}, number {i}\",{label}");
    }
    let path = folder.join("made-up.csv");
    std::fs::create_dir_all(folder).expect("a temporary folder");
    std::fs::write(&path, table).expect("a temporary file");
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_learns_the_table() {
        let folder =
            std::env::temp_dir().join(format!("hearken-classifier-test-{}", std::process::id()));
        let accuracy = learn(&made_up(&folder), &folder.join("run"), 120).unwrap();
        let _ = std::fs::remove_dir_all(&folder);
        assert!(accuracy > 0.9, "{accuracy}"); // 0.5 by chance
    }
}
