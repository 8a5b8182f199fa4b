//! The page in a real browser: every view is driven, and numbers on it are compared with the engine's.

mod checks;
mod machine;
mod pictures;
mod sources;
mod visitor;

use machine::{Result, driver, hearken, page};
use std::path::{Path, PathBuf};
use visitor::Visitor;

/// Has an induction in it, so that heads have roles to find.
pub const PROMPT: &str = "qzkfmbqzkfm";

struct Arguments {
    hearken: PathBuf,
    pictures: Option<PathBuf>,
    model: Option<PathBuf>,
    prompt: String,
    source: Option<String>,
}

fn arguments() -> Result<Arguments> {
    let mut found = Arguments {
        hearken: PathBuf::from("target/debug/hearken"),
        pictures: None,
        model: None,
        prompt: PROMPT.to_owned(),
        source: None,
    };
    let mut rest = std::env::args().skip(1);
    while let Some(flag) = rest.next() {
        let value = rest.next().ok_or_else(|| format!("{flag} needs a value"))?;
        match flag.as_str() {
            "--hearken" => found.hearken = std::fs::canonicalize(value)?,
            "--pictures" => found.pictures = Some(value.into()),
            "--model" => found.model = Some(value.into()),
            "--source" => found.source = Some(value),
            "--prompt" => found.prompt = value.replace("\\n", "\n"),
            _ => return Err(format!("there is no {flag}").into()),
        }
    }
    Ok(found)
}

/// A model that repeats letters, trained for a moment.
fn train(binary: &Path, into: &Path) -> Result<()> {
    let into = into.display().to_string();
    let few =
        ["--set", "train.steps=120", "--set", "data.stories=8", "--set", "train.sample_every=0"];
    let first = ["train", "--config", "repeats", "--out", into.as_str()];
    hearken(binary, &[&first[..], &few[..]].concat())?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = arguments()?;
    let folder = tempfile::tempdir()?;
    let model = match &arguments.model {
        Some(model) => model.clone(),
        None => {
            let run = folder.path().join("run");
            train(&arguments.hearken, &run)?;
            run
        }
    };
    let model = model.display().to_string();
    let binary = arguments.hearken.as_path();
    let mut given = vec!["--model", &model, "--prompt", &arguments.prompt];
    given.extend(arguments.source.iter().flat_map(|source| ["--source", source.as_str()]));
    let (_page, address) = page(binary, &given)?;
    let (_driver, driver) = driver()?;
    let visitor = Visitor::open(&driver, &folder.path().join("profile")).await?;
    let found = match &arguments.pictures {
        Some(into) => pictures::take(&visitor, &address, into).await,
        None => {
            let file = folder.path().join("page.html");
            let out = file.display().to_string();
            let rest = ["--prompt", &arguments.prompt, "--out", &out];
            hearken(binary, &[&["explain", "--model", &model][..], &rest[..]].concat())?;
            let json = ["--prompt", &arguments.prompt, "--layer", "1", "--json"];
            let json = hearken(binary, &[&["explain", "--model", &model][..], &json[..]].concat())?;
            let engine = serde_json::from_str(&json)?;
            let found = checks::all(&visitor, &address, &file, &engine).await;
            match found {
                Ok(()) => sources::all(&visitor, binary, folder.path()).await,
                Err(error) => Err(error),
            }
        }
    };
    visitor.client.close().await?;
    found
}
