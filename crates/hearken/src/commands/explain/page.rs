//! `hearken explain --page` and `--out`.

use super::{Arguments, Sources, prompt_ids, target_id};
use crate::commands::outputs::check_out;
use crate::commands::reading::{self, Texts};
use crate::failure::Failure;
use crate::machine;
use crate::terminal::say;
use hearken::data::tokenizer::Tokenizer;
use hearken::tasks::OpenModel;
use hearken_page::Subject;
use std::io::Write;
use std::path::Path;

/// What the page begins with, if nothing else is asked for and the tokenizer can read it.
const FIRST: [&str; 2] = ["The cat sat on", "abcabcab"];

/// Tokens of texts that neurons are shown, at most; the page reads as many as it can in a few seconds.
const MOST_TOKENS: usize = 20_000;

/// What neurons are shown: files, or what the run has held out. A page without texts shows what the
/// prompt does to them.
pub(super) fn texts(
    arguments: &Arguments,
    open: &OpenModel,
    tokenizer: Option<&Tokenizer>,
) -> Result<Texts, Failure> {
    let Some(tokenizer) = tokenizer else { return Ok(Texts::default()) };
    let found = reading::texts(open, tokenizer, &arguments.data, MOST_TOKENS);
    if arguments.data.is_empty() { Ok(found.unwrap_or_default()) } else { found }
}

pub(super) fn run(
    arguments: &Arguments,
    open: OpenModel,
    tokenizer: Option<Tokenizer>,
    sources: Option<Sources>,
    texts: Texts,
    begin: Option<u32>,
) -> Result<(), Failure> {
    if let Some(out) = &arguments.out {
        check_out("--out", out, Some(&open.directory), &arguments.data)?;
    }
    let given = arguments.prompt.is_some() || arguments.ids.is_some() || sources.is_some();
    let ids = if given {
        prompt_ids(arguments, tokenizer.as_ref(), sources.as_ref(), begin)?
    } else {
        begin.into_iter().chain(first(tokenizer.as_ref())).collect()
    };
    open.check(&ids)?;
    let target = match &arguments.target {
        Some(text) => {
            let id = target_id(text, open.model.as_ref(), tokenizer.as_ref())?;
            hearken::explain::target_at(open.model.as_ref(), ids.len(), ids.len() - 1, id)?;
            Some((ids.len() - 1, id))
        }
        None => None,
    };
    let name = name_of(&open.directory);
    let most_bytes = machine::available_bytes().map(|free| free as u64 / 2);
    let texts = hearken_page::Texts { name: texts.name, rows: texts.rows };
    let sources =
        sources.map(|Sources { source, begin, end }| hearken_page::Sources { source, begin, end });
    let model = open.model;
    let subject =
        Subject { model, tokenizer, name, ids, begin, target, most_bytes, sources, texts };
    if let Some(path) = &arguments.out {
        let page = hearken_page::export(&subject)?;
        std::fs::write(path, &page).map_err(hearken::Error::io("write", path))?;
        say!("{} ({:.1} MB)", path.display(), page.len() as f64 / 1e6);
        return Ok(());
    }
    hearken_page::serve(subject, arguments.port, |address| {
        let mut out = std::io::stdout().lock();
        // Whoever reads the address may be gone; the page is served all the same.
        let _ = writeln!(out, "http://{address}/").and_then(|()| out.flush());
        say!("open this address in a browser on this machine; Ctrl-C ends it");
    })?;
    Ok(())
}

fn first(tokenizer: Option<&Tokenizer>) -> Vec<u32> {
    let readable = |text: &&str| {
        let tokenizer = tokenizer?;
        let ids = tokenizer.encode(text).ok().filter(|ids| !ids.is_empty())?;
        let whole = tokenizer.decode(&ids).is_ok_and(|back| back.trim() == *text);
        whole.then_some(ids)
    };
    FIRST.iter().find_map(readable).unwrap_or_else(|| vec![0])
}

/// The run, or the directory.
fn name_of(directory: &Path) -> String {
    let run = directory.parent().filter(|parent| parent.ends_with("checkpoints"));
    let named = run.and_then(Path::parent).unwrap_or(directory);
    named.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
