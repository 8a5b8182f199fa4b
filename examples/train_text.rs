//! Step 1: Train a language model on a text file, and write with it.
//!
//! ```text
//! cargo run --release --example train_text -- book.txt runs/first
//! ```

use hearken::Result;
use hearken::tasks::{RunConfig, TextRun, Writing};

/// Trains on a file in so many steps; gives the validation loss and some text.
fn train_text(file: &str, out: &str, steps: u64) -> Result<(Option<f64>, String)> {
    let config = RunConfig::preset("shakespeare-fast")?.on([file]).steps(steps);
    let trained = TextRun::new(config).out(out).run()?; // shows its progress
    let text = trained.model.writer()?.write("The ", &Writing::default())?;
    Ok((trained.summary.metric("loss"), text))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, out] = arguments.as_slice() else {
        println!("usage: train_text FILE DIRECTORY");
        return Ok(());
    };
    let (loss, text) = train_text(file, out, 500)?;
    println!("validation loss {:.3} nats per character", loss.unwrap_or(f64::NAN));
    println!("The {text}\n\nthe model, its curves and its report are in {out}");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_model_is_trained_saved_and_writes() {
        let dir = tempfile::tempdir().unwrap();
        let [file, out] = ["book.txt", "run"].map(|name| dir.path().join(name));
        std::fs::write(&file, "The cat sat on the mat. The dog sat on the log.\n".repeat(40))
            .unwrap();
        let [file, out] = [&file, &out].map(|path| path.to_str().unwrap());
        let (loss, text) = super::train_text(file, out, 30).unwrap();
        assert!(loss.unwrap() < 2.0, "{loss:?}"); // ln 15 = 2.7 is chance
        assert!(!text.is_empty());
        assert!(dir.path().join("run/checkpoints/last/model.safetensors").exists());
        let again = super::train_text(file, out, 30).unwrap_err().to_string();
        assert!(again.contains("hint: ") && again.contains("`resume`"), "{again}");
    }
}
