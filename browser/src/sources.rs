//! Encoder-decoders on the page: the preset `dates`, and random checkpoints that transformers wrote.

use crate::checks::{VIEWS, number, overflow, same, stage};
use crate::ensure;
use crate::machine::{Result, hearken, page};
use crate::visitor::Visitor;
use serde_json::Value;
use std::path::Path;

const SOURCE: &str = "the third of March 2021";
const TARGET: &str = "2021";

/// All of them; `folder` is for what is made on the way.
pub async fn all(visitor: &Visitor, binary: &Path, folder: &Path) -> Result<()> {
    let run = folder.join("dates").display().to_string();
    let few =
        ["train.steps=40", "train.evaluate_every=40", "data.stories=16", "train.batch_size=16"];
    let few: Vec<&str> = few.iter().flat_map(|set| ["--set", set]).collect();
    let first = ["train", "--config", "dates", "--out", run.as_str()];
    hearken(binary, &[&first[..], &few[..], &["--set", "train.sample_every=0"]].concat())?;
    dates(visitor, binary, folder, &run).await?;
    println!("ok   an encoder-decoder that was trained here");
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/formats/tests/fixtures");
    for (name, lens) in [("t5-gated", true), ("t5-first", true), ("marian-apart", false)] {
        let model = fixtures.join(name).display().to_string();
        let given = ["--model", &model, "--source-ids", "5,6,7,8", "--ids", "0,3,4"];
        let (_page, address) = page(binary, &given)?;
        open(visitor, &address).await?;
        every_view(visitor, lens).await.map_err(|error| format!("{name}: {error}"))?;
        println!("ok   {name}, a random checkpoint of transformers");
    }
    Ok(())
}

async fn open(visitor: &Visitor, address: &str) -> Result<()> {
    visitor.client.goto("about:blank").await?;
    visitor.client.goto(address).await?;
    visitor.notice().await?;
    visitor.settled("map").await
}

/// Every view draws, with gradients and without; with post-norm the stream says why it does not.
async fn every_view(visitor: &Visitor, lens: bool) -> Result<()> {
    for gradients in [false, true] {
        for view in VIEWS {
            visitor.view(view).await?;
            let problem =
                visitor.js("return document.querySelector('main .problem')?.textContent").await?;
            let told = problem.as_str().unwrap_or_default();
            let fits = if view == "stream" && !lens {
                told.contains("pre-norm")
            } else {
                problem.is_null()
            };
            ensure!(fits, "{view}, gradients {gradients}: {problem}");
            overflow(visitor, view).await?;
        }
        if !gradients {
            visitor.click(".switch").await?;
            visitor.settled("neurons").await?;
        }
    }
    let problems = visitor.problems().await?;
    ensure!(problems.is_empty(), "the browser noticed {problems:?}");
    Ok(())
}

async fn dates(visitor: &Visitor, binary: &Path, folder: &Path, run: &str) -> Result<()> {
    let given = ["--model", run, "--source", SOURCE, "--prompt", TARGET];
    let json = [&["explain", "--json", "--layer", "1"][..], &given[..]].concat();
    let engine: Value = serde_json::from_str(&hearken(binary, &json)?)?;
    let (_page, address) = page(binary, &given)?;
    open(visitor, &address).await?;
    every_view(visitor, true).await?;
    cross_attention(visitor, &engine).await?;
    another_source(visitor, &engine).await?;
    let file = folder.join("dates.html");
    let out = file.display().to_string();
    hearken(binary, &[&["explain", "--out", &out][..], &given[..]].concat())?;
    let size = std::fs::metadata(&file)?.len();
    ensure!(size < 5_000_000, "the file has {size} bytes");
    open(visitor, &format!("file://{out}")).await?;
    for view in VIEWS {
        visitor.view(view).await?;
        let problem =
            visitor.js("return document.querySelector('main .problem')?.textContent").await?;
        ensure!(problem.is_null() || view == "update", "{view} of the file: {problem}");
    }
    Ok(())
}

/// A weight of cross-attention on the page is the engine's.
async fn cross_attention(visitor: &Visitor, engine: &Value) -> Result<()> {
    let name = "decoder.blocks.1.cross_attention.weights";
    visitor.view("numbers").await?;
    let script = format!(
        "const select = document.querySelector('main select'); select.value = '{name}'; \
         select.dispatchEvent(new Event('change'))"
    );
    visitor.js(&script).await?;
    let shown = format!("return document.querySelector('main h2 code')?.textContent === '{name}'");
    visitor.until(name, &shown).await?;
    visitor.settled("numbers").await?;
    let own = stage(engine, name)?;
    let [rows, columns] = [1, 2].map(|i| own["shape"][i].as_u64().unwrap_or(0) as usize);
    visitor.click_cell(rows - 1, columns - 2).await?;
    let there = format!(
        "return new URLSearchParams(location.hash.slice(1)).get('column') === '{}'",
        columns - 2
    );
    visitor.until("the cell", &there).await?;
    visitor.settled("numbers").await?;
    let want = &own["values"][(rows - 1) * columns + columns - 2];
    same(&visitor.text("#value").await?, want, name)?;
    ensure!(visitor.text("#sum").await?.contains("e^"), "no softmax is spelt out");
    Ok(())
}

/// Another source changes the logits, and the address holds it.
async fn another_source(visitor: &Visitor, engine: &Value) -> Result<()> {
    visitor.view("sampling").await?;
    let best = &engine["candidates"]["first"][0];
    let row = format!("tr[data-id='{}'] .logit", best["id"]);
    same(&visitor.text(&row).await?, &best["logit"], "the largest logit")?;
    let before = number(&visitor.text(&row).await?)?;
    visitor.write("#source", "3 May 1999").await?;
    visitor.click("#run").await?;
    let script = "return location.hash.includes('source=')";
    visitor.until("another source in the address", script).await?;
    visitor.settled("sampling").await?;
    let after = number(&visitor.text(&row).await?)?;
    ensure!(before != after, "another source, but the same logit {after}");
    let address = visitor.client.current_url().await?;
    visitor.client.goto("about:blank").await?;
    visitor.client.goto(address.as_str()).await?;
    visitor.notice().await?;
    visitor.settled("sampling").await?;
    let again = number(&visitor.text(&row).await?)?;
    ensure!(again == after, "the address leads to {again}, not to {after}");
    Ok(())
}
