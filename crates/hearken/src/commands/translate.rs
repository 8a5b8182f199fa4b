//! `hearken translate`: texts through an encoder-decoder.

use super::outputs::check_out;
use super::texts::{LineArguments, note_cut};
use crate::failure::Failure;
use crate::invocation::runnable;
use crate::model::{IdList, ModelArguments, TokenizerArguments, parse_id_list};
use crate::terminal::{Progress, Terminal, say, visible};
use hearken::infer::sampler::Sampling;
use hearken::infer::translate::Strategy;
use hearken::nn::cache::CacheKind;
use hearken::show::table::{Columns, GAP};
use hearken::tasks::Translator;
use hearken::tasks::cut::Cut;
use hearken::tasks::translate::{Alignment, Options, Sources, Translation};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Texts that are translated before their translations are written.
const AT_ONCE: usize = 512;
/// Beams and samples, at most.
const MOST: usize = 1024;

/// Translate texts with an encoder-decoder.
///
/// Writes a line per text, in order. Without a text it asks for one: line by line on a terminal
/// (Ctrl-D ends), or all lines of stdin.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokenizer: TokenizerArguments,

    #[command(flatten)]
    texts: LineArguments,

    /// A source as tokens, its end included: 8774,296,1 (may be given several times). The model then
    /// needs no tokenizer
    #[arg(long, value_name = "IDS", value_parser = parse_id_list, conflicts_with_all = ["inputs", "text", "field"])]
    ids: Vec<IdList>,

    #[command(flatten)]
    choice: Choice,

    /// The most tokens of a translation [default: the model's context]
    #[arg(long, short = 'n', value_name = "N")]
    tokens: Option<usize>,

    /// Write the N best translations of each text: number of the text, score, text
    #[arg(long, value_name = "N")]
    n_best: Option<usize>,

    /// Write one JSON object per text
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    looking: Looking,
}

/// How tokens are chosen.
#[derive(clap::Args)]
struct Choice {
    /// Search for the likeliest translation with this many candidates at a time; 1 is greedy
    #[arg(long, value_name = "N", conflicts_with_all = ["temperature", "top_k", "top_p", "samples", "seed"])]
    beams: Option<usize>,

    /// A translation of n tokens scores Σ ln p / nᴬ: above 0 favours longer ones [default: 1]
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    length_penalty: Option<f32>,

    /// Logits are divided by it, and tokens are drawn; 0 always takes the most likely token
    /// [default: 1 with --samples, --top-k, --top-p or --seed, or else 0]
    #[arg(long, short, value_name = "T", allow_negative_numbers = true)]
    temperature: Option<f32>,

    /// Choose among the K most likely tokens
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,

    /// Choose among the most likely tokens that together reach this probability
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    top_p: Option<f32>,

    /// The same seed gives the same translations [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Draw N translations of each text, with the seeds from --seed on; the best by score is written
    /// [default: 1]
    #[arg(long, value_name = "N")]
    samples: Option<usize>,

    /// How keys and values are kept
    #[arg(long, value_name = "KIND", default_value = "f32")]
    cache: CacheChoice,
}

/// Where the model looks.
#[derive(clap::Args)]
struct Looking {
    /// Show how much attention each token of the translation pays to each of the text, in percent
    #[arg(long)]
    show_alignment: bool,

    /// Show the attention of this layer of the decoder, from 0 [default: the last]
    #[arg(long, value_name = "N")]
    layer: Option<usize>,

    /// Show the attention of this head, from 0 [default: the mean over all]
    #[arg(long, value_name = "N")]
    head: Option<usize>,

    /// Draw the alignment of a single text
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum CacheChoice {
    F32,
    F16,
    Int8,
}

const HELP: &str = "\
Examples:
  hearken train --config dates --out runs/dates
  hearken translate --model runs/dates 'the third of March 2021'
  hearken translate --model runs/es verses.txt --beams 4 --length-penalty 0.6 > spanish.txt
  hearken translate --model runs/es --beams 8 --n-best 3 'In the beginning' --json
  hearken translate --model runs/dates '3 May 1999' --show-alignment --svg alignment.svg
  hearken translate --model marian/ --ids 12,7,52,0

Keys of --json:
  text, ids         the best translation (text: null without a tokenizer) and its tokens
  score             the sum of ln p of its n tokens, divided by n to the length penalty
  candidates        the same of each that was found, or of the N of --n-best, best first
  alignment         with --show-alignment: source and target, the tokens; weights, a row per token
                    of the translation, its end included, if it has ended; layer; head, null for the
                    mean";

impl Choice {
    fn options(&self, most_tokens: Option<usize>, wanted: usize) -> Result<Options, Failure> {
        let within = |name: &str, count: usize| {
            if (1..=MOST).contains(&count) {
                return Ok(count);
            }
            let message = format!("{count} {name}, expected 1 to {MOST}");
            Err(Failure::input(message, "4 is usual"))
        };
        let length_penalty = self.length_penalty.unwrap_or(1.0);
        if !length_penalty.is_finite() {
            let message = format!("length penalty is {length_penalty}");
            return Err(Failure::input(message, "1 is the mean per token"));
        }
        if most_tokens == Some(0) {
            return Err(Failure::input("translations of 0 tokens", "leave --tokens out"));
        }
        let strategy = if let Some(beams) = self.beams {
            Strategy::Beams(within("beams", beams)?)
        } else {
            Strategy::Sampled(self.sampling()?, within("samples", self.samples.unwrap_or(1))?)
        };
        let (Strategy::Beams(found) | Strategy::Sampled(_, found)) = strategy;
        if wanted == 0 || wanted > found {
            return Err(Failure::input(
                format!("--n-best {wanted} of {found} translations"),
                format!("search with --beams {} or more", wanted.max(4)),
            ));
        }
        let cache = match self.cache {
            CacheChoice::F32 => CacheKind::F32,
            CacheChoice::F16 => CacheKind::F16,
            CacheChoice::Int8 => CacheKind::Int8,
        };
        Ok(Options { most_tokens, length_penalty, cache, strategy })
    }

    fn sampling(&self) -> Result<Sampling, Failure> {
        let drawing = [
            ("--samples", self.samples.is_some()),
            ("--top-k", self.top_k.is_some()),
            ("--top-p", self.top_p.is_some()),
            ("--seed", self.seed.is_some()),
        ];
        let drawing = drawing.iter().find(|(_, given)| *given).map(|(flag, _)| flag);
        let temperature = match (self.temperature, drawing) {
            (Some(0.0), Some(flag)) => {
                let message = format!("{flag} with a temperature of 0, at which nothing is drawn");
                return Err(Failure::input(message, "leave one of them out"));
            }
            (given, drawing) => given.unwrap_or(if drawing.is_some() { 1.0 } else { 0.0 }),
        };
        let sampling = Sampling {
            temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            seed: self.seed.unwrap_or(0),
            ..Sampling::default()
        };
        sampling.validate()?;
        Ok(sampling)
    }

    /// Has nobody said how tokens are chosen?
    fn is_usual(&self) -> bool {
        let count = self.beams.or(self.samples).or(self.top_k);
        count.is_none() && self.seed.is_none() && self.temperature.or(self.top_p).is_none()
    }

    /// Are several translations found?
    fn several(&self) -> bool {
        self.beams.or(self.samples).is_some_and(|count| count > 1)
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let options = arguments.choice.options(arguments.tokens, arguments.n_best.unwrap_or(1))?;
    arguments.looking.check()?;
    let scored = arguments.json || arguments.n_best.is_some() || arguments.choice.several();
    if arguments.choice.length_penalty.is_some() && !scored {
        let message =
            "--length-penalty chooses between translations, and there is one of each text";
        return Err(Failure::input(message, "search with --beams 4, or leave it out"));
    }
    let model = arguments.model.open()?;
    model.translates()?;
    let tokenizer = if arguments.ids.is_empty() {
        let hint = "name one with --tokenizer, or give the source as tokens with --ids 8774,296,1";
        Some(arguments.tokenizer.require(&model, hint)?)
    } else {
        arguments.tokenizer.of(&model)?
    };
    if let Some(svg) = &arguments.looking.svg {
        check_out("--svg", svg, Some(&model.directory), &arguments.texts.files())?;
    }
    if let Some(beams) = model.special.beams.filter(|_| arguments.choice.is_usual()) {
        say!("note: generation_config.json asks for {beams} beams; --beams {beams} takes them");
    }
    let translator = Translator::new(&model, tokenizer.as_ref())?;
    let mut writer = Writer { arguments, translator, options, number: 0 };
    if !arguments.ids.is_empty() {
        arguments.looking.check_count(arguments.ids.len())?;
        return writer.translate_ids();
    }
    if arguments.texts.is_empty() && io::stdin().is_terminal() && !arguments.json {
        return writer.converse();
    }
    let given = if arguments.texts.is_empty() {
        arguments.texts.read_stdin()?
    } else {
        arguments.texts.read()?
    };
    let texts: Vec<&str> = given.texts.iter().map(|text| text.first.as_str()).collect();
    arguments.looking.check_count(texts.len())?;
    if arguments.looking.svg.is_some() && texts.iter().all(|text| text.trim().is_empty()) {
        let message = "the text is empty: it has no alignment that --svg could draw";
        return Err(Failure::input(message, "give a text"));
    }
    let mut cut = Cut::default();
    for (part, some) in texts.chunks(AT_ONCE).enumerate() {
        let before = part * AT_ONCE;
        cut.extend(writer.translate(some, before, texts.len())?, before);
    }
    note_cut(cut, &given, writer.translator.most_tokens());
    Ok(())
}

struct Writer<'a> {
    arguments: &'a Arguments,
    translator: Translator<'a>,
    options: Options,
    /// Of texts that were written.
    number: usize,
}

impl Writer<'_> {
    /// Translates line after line until the input ends.
    fn converse(&mut self) -> Result<(), Failure> {
        let cannot = |error: ReadlineError| {
            Failure::input(format!("cannot read from the terminal: {error}"), "give a text")
        };
        let mut editor = DefaultEditor::new().map_err(cannot)?;
        say!("type a text and press Enter; Ctrl-D ends the program");
        loop {
            let line = match editor.readline("> ") {
                Ok(line) => line,
                Err(ReadlineError::Eof) => return Ok(()),
                Err(ReadlineError::Interrupted) => return Err(Failure::Interrupted),
                Err(error) => return Err(cannot(error)),
            };
            let _ = editor.add_history_entry(&line); // a line that is not remembered is no loss
            match self.translate(&[&line], 0, 1) {
                // A text that cannot be translated ends the line, not the conversation.
                Err(Failure::Error(error)) => say!("error: {}", runnable(&error.to_string())),
                other => {
                    if other?.count > 0 {
                        let most = self.translator.most_tokens();
                        say!("note: the text is longer than {most} tokens, and was cut");
                    }
                }
            }
        }
    }

    /// Translates and writes; gives which texts were cut.
    fn translate(&mut self, texts: &[&str], before: usize, all: usize) -> Result<Cut, Failure> {
        // The translation of nothing is nothing.
        let is_text = |text: &&str| !text.trim().is_empty();
        let numbered = texts.iter().copied().enumerate().filter(|(_, text)| is_text(text));
        let (places, some): (Vec<usize>, Vec<&str>) = numbered.unzip();
        let sources = self.translator.sources(&some)?;
        let mut found = sources.list.iter().zip(self.find(&sources, before, all)?);
        for text in texts {
            self.number += 1;
            match is_text(text).then(|| found.next()).flatten() {
                Some((source, found)) => self.write(Some(source), &found)?,
                None => self.write(None, &[])?,
            }
        }
        let Cut { count, first } = sources.cut;
        Ok(Cut { count, first: first.map(|first| places[first]) })
    }

    /// Translates and writes the sources that are given as tokens.
    fn translate_ids(&mut self) -> Result<(), Failure> {
        let given = &self.arguments.ids;
        let sources = given.iter().map(|ids| ids.0.clone()).collect();
        let sources = self.translator.sources_of_ids(sources)?;
        let found = self.find(&sources, 0, sources.list.len())?;
        for (source, found) in sources.list.iter().zip(&found) {
            self.number += 1;
            self.write(Some(source), found)?;
        }
        Ok(())
    }

    /// The translations of a part of all sources; `before` it others have been translated.
    fn find(
        &self,
        sources: &Sources,
        before: usize,
        all: usize,
    ) -> Result<Vec<Vec<Translation>>, Failure> {
        let mut status = Progress::new();
        let mut progress = |done: usize| {
            if all > 1 {
                status.show(&format!("{} of {all} texts", before + done));
            }
        };
        let found = self.translator.translate(sources, &self.options, &mut progress)?;
        status.clear();
        Ok(found)
    }

    fn write(&self, source: Option<&Vec<u32>>, found: &[Translation]) -> Result<(), Failure> {
        let looking = &self.arguments.looking;
        let alignment = match (source, found.first()) {
            (Some(source), Some(best)) if looking.show_alignment || looking.svg.is_some() => {
                let alignment =
                    self.translator.alignment(source, best, looking.layer, looking.head)?;
                Some(alignment)
            }
            _ => None,
        };
        if let (Some(alignment), Some(path)) = (&alignment, &looking.svg) {
            draw(alignment, path)?;
        }
        let shown = alignment.as_ref().filter(|_| looking.show_alignment);
        let mut out = io::stdout().lock();
        if self.arguments.json {
            writeln!(out, "{}", self.as_json(found, shown))?;
            return Ok(());
        }
        match self.arguments.n_best {
            None => writeln!(out, "{}", found.first().map_or(String::new(), line))?,
            // The one translation of an empty text is empty, and certain.
            Some(_) if found.is_empty() => writeln!(out, "{}\t{:.4}\t", self.number, 0.0)?,
            Some(most) => {
                for translation in found.iter().take(most) {
                    let Translation { score, .. } = translation;
                    writeln!(out, "{}\t{score:.4}\t{}", self.number, line(translation))?;
                }
            }
        }
        if let Some(alignment) = shown {
            show(&mut out, alignment)?;
        }
        Ok(())
    }

    fn as_json(&self, found: &[Translation], alignment: Option<&Alignment>) -> Value {
        let has_text = self.translator.has_text();
        let one = |t: &Translation| {
            let text = has_text.then_some(&t.text);
            json!({ "text": text, "ids": t.tokens, "score": t.score })
        };
        let nothing = || json!({ "text": "", "ids": [], "score": 0.0 });
        let mut value = found.first().map_or_else(nothing, one);
        let wanted = match self.arguments.n_best {
            Some(most) => most,
            None if self.arguments.choice.several() => usize::MAX,
            None => 1,
        };
        value["candidates"] = found.iter().take(wanted).map(one).collect();
        if let Some(Alignment { source, target, weights, layer, head }) = alignment {
            value["alignment"] = json!({
                "source": source, "target": target, "weights": weights, "layer": layer,
                "head": head,
            });
        }
        value
    }
}

/// A translation as one line.
fn line(translation: &Translation) -> String {
    let line = translation.text.replace(['\n', '\r'], " ");
    if io::stdout().is_terminal() { visible(&line).into_owned() } else { line }
}

impl Looking {
    fn check(&self) -> Result<(), Failure> {
        let choice = [("--layer", self.layer), ("--head", self.head)];
        let chosen = choice.into_iter().find(|(_, chosen)| chosen.is_some());
        match chosen {
            Some((flag, _)) if !self.show_alignment && self.svg.is_none() => Err(Failure::input(
                format!("{flag} chooses an alignment, and none is shown"),
                "give --show-alignment or --svg with it",
            )),
            _ => Ok(()),
        }
    }

    fn check_count(&self, texts: usize) -> Result<(), Failure> {
        if self.svg.is_none() || texts == 1 {
            return Ok(());
        }
        let message = format!("--svg draws one alignment, and there are {texts} texts");
        Err(Failure::input(message, "give a single text"))
    }
}

fn draw(alignment: &Alignment, path: &Path) -> Result<(), Failure> {
    std::fs::write(path, alignment.svg()).map_err(|error| {
        let message = format!("cannot write {}: {error}", path.display());
        Failure::input(message, "name a file in a directory that is there")
    })
}

/// A row per token of the translation, a column per token of the text; as many adjacent columns
/// as the terminal is wide.
fn show(out: &mut impl Write, alignment: &Alignment) -> Result<(), Failure> {
    /// Characters of a column.
    const WIDTH: usize = 7;
    let terminal = Terminal::stdout();
    let short = |text: &String| text.chars().take(WIDTH).collect::<String>();
    let first = alignment.target.iter().map(|token| token.chars().count()).max().unwrap_or(0);
    let room = terminal.width.saturating_sub(first.min(16)) / (WIDTH + GAP);
    let tokens: Vec<usize> = (0..alignment.source.len()).collect();
    writeln!(out, "{}", terminal.bold(&alignment.title()))?;
    for some in tokens.chunks(room.max(1)) {
        let columns = some.iter().fold(Columns::new().left("", first.min(16)), |columns, i| {
            columns.right(&short(&alignment.source[*i]), WIDTH.min(4))
        });
        writeln!(out, "{}", columns.head())?;
        for (token, weights) in alignment.target.iter().zip(&alignment.weights) {
            let mut cells = vec![token.clone()];
            cells.extend(some.iter().map(|i| match (100.0 * weights[*i]).round() {
                percent if percent < 1.0 => "·".to_owned(),
                percent => format!("{percent}"),
            }));
            writeln!(out, "{}", columns.row(&cells))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
