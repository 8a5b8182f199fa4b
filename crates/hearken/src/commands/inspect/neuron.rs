//! `hearken inspect neuron`: the texts that excite a neuron most.

use crate::commands::reading::{self, Texts};
use crate::failure::Failure;
use crate::model::{ModelArguments, TokenizerArguments};
use crate::terminal::{Progress, Terminal, visible};
use hearken::data::tokenizer::Tokenizer;
use hearken::explain::neurons::neurons_of_sources;
use hearken::explain::neurons::{Excitement, MOST_PLACES, Neuron, Neurons, neurons, stage_of};
use hearken::explain::{WithSource, stack_of};
use hearken::show::number::thousands;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;

/// Show which texts excite the neurons of a feed-forward layer most.
///
/// A neuron is one of the F values between the two matrices of a feed-forward layer. Without --neuron,
/// those are listed that are excited rarely and then strongly: their largest value is many times their
/// usual one (its root mean square). Of every text its most exciting token counts.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    model: ModelArguments,

    #[command(flatten)]
    tokenizer: TokenizerArguments,

    /// The block
    #[arg(long, value_name = "N", default_value_t = 0)]
    layer: usize,

    /// The neuron, by its number [default: a list]
    #[arg(long, value_name = "N")]
    neuron: Option<usize>,

    /// Texts: running text for decoders, a text per line for others [default: what the run has held
    /// out]
    #[arg(long, value_name = "FILE")]
    data: Vec<PathBuf>,

    /// Tokens that are read, at most
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    tokens: usize,

    /// How many places, or neurons, are shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// Write one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  hearken inspect neuron --model runs/stories --layer 1
  hearken inspect neuron --model runs/stories --layer 1 --neuron 17
  hearken inspect neuron --model gpt2 --layer 3 --neuron 250 --data book.txt --json

Of an encoder-decoder these are the neurons of the encoder, and the texts are sources.

Keys of --json:
  stage, texts, tokens   whose neurons, and what was read
  neurons           per neuron: neuron, highest, lowest, rms, selectivity (highest / rms), active (the
                    share of tokens at which it is above 0) and places: text, place, value, context
                    (the text around it: before, token, after)";

/// Tokens that are shown before an exciting one, and behind it.
const CONTEXT: [usize; 2] = [16, 6];

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if !(1..=MOST_PLACES).contains(&arguments.top) {
        let message = format!("--top {}", arguments.top);
        return Err(Failure::input(message, format!("give 1 to {MOST_PLACES}")));
    }
    let open = arguments.model.open()?;
    let tokenizer = arguments.tokenizer.require(&open, "name one with --tokenizer")?;
    let config = open.model.config();
    let layers = stack_of(&config)?.layers;
    if arguments.layer >= layers {
        let message = format!("there is no block {}", arguments.layer);
        return Err(Failure::input(message, format!("blocks are 0 to {}", layers - 1)));
    }
    let texts = reading::texts(&open, &tokenizer, &arguments.data, arguments.tokens)?;
    let mut progress = Progress::new();
    let all = texts.rows.len();
    let mut show = |done: usize| progress.show(&format!("reading: {} %", 100 * done / all.max(1)));
    let found = if open.model.translates().is_some() {
        let stage = format!("encoder.blocks.{}.feed_forward.active", arguments.layer);
        let model = WithSource::new(open.model, &texts.rows[0])?;
        let source = model.source();
        neurons_of_sources(&model, &source, &texts.rows, &stage, arguments.top, &mut show)?
    } else {
        let model = open.model.as_ref();
        let stage = stage_of(model, arguments.layer);
        neurons(model, &texts.rows, &stage, arguments.top, &mut show)?
    };
    progress.clear();
    let shown = match arguments.neuron {
        Some(neuron) if neuron >= found.neurons.len() => {
            let message = format!("there is no neuron {neuron}");
            let hint = format!("neurons are 0 to {}", found.neurons.len() - 1);
            return Err(Failure::input(message, hint));
        }
        Some(neuron) => vec![neuron],
        None => found.by_selectivity().into_iter().take(arguments.top).collect(),
    };
    let report = Report { found, texts, tokenizer };
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{:#}", report.json(&shown))?;
        return Ok(());
    }
    report.write(&shown, arguments.neuron.is_some(), &mut out)
}

struct Report {
    found: Neurons,
    texts: Texts,
    tokenizer: Tokenizer,
}

impl Report {
    /// The text before an exciting token, the token, and the text behind it.
    fn context(&self, place: &Excitement) -> [String; 3] {
        let ids = &self.texts.rows[place.text];
        let (at, [before, behind]) = (place.place, CONTEXT);
        let text = |ids: &[u32]| self.tokenizer.decode_known(ids);
        let token = match text(&ids[at..=at]) {
            // A special token has no text.
            empty if empty.is_empty() => self.tokenizer.token(ids[at]).unwrap_or_default(),
            text => text,
        };
        let after = &ids[at + 1..ids.len().min(at + 1 + behind)];
        [text(&ids[at.saturating_sub(before)..at]), token, text(after)]
    }

    fn json(&self, shown: &[usize]) -> Value {
        let place = |place: &Excitement| {
            let [before, token, after] = self.context(place);
            json!({ "text": place.text, "place": place.place, "value": place.value,
                "context": { "before": before, "token": token, "after": after } })
        };
        let one = |i: &usize| {
            let neuron: &Neuron = &self.found.neurons[*i];
            json!({ "neuron": i, "highest": neuron.places.first().map(|place| place.value),
                "lowest": neuron.lowest, "rms": neuron.rms,
                "selectivity": neuron.selectivity(), "active": neuron.active,
                "places": neuron.places.iter().map(place).collect::<Vec<_>>() })
        };
        json!({ "stage": self.found.stage, "texts": self.texts.name, "tokens": self.found.tokens,
            "neurons": shown.iter().map(one).collect::<Vec<_>>() })
    }

    fn write(&self, shown: &[usize], alone: bool, out: &mut impl Write) -> Result<(), Failure> {
        let terminal = Terminal::stdout();
        let Neurons { stage, tokens, neurons } = &self.found;
        let read = thousands(*tokens as f64);
        writeln!(out, "{}: {} neurons", terminal.bold(stage), neurons.len())?;
        writeln!(out, "{read} tokens in {}", visible(&self.texts.name))?;
        let quoted = |place: &Excitement| {
            let [before, token, after] =
                self.context(place).map(|text| visible(&text.replace('\n', "↵")).to_string());
            format!("{before}{}{after}", terminal.bold(&format!("[{token}]")))
        };
        if !alone {
            writeln!(out, "\nneuron   highest  × usual  active  the token that excites it most")?;
        }
        for i in shown {
            let neuron = &neurons[*i];
            let highest = neuron.places.first().map_or(0.0, |place| place.value);
            let (selectivity, active) = (neuron.selectivity(), 100.0 * neuron.active);
            if alone {
                let Neuron { lowest, rms, .. } = neuron;
                writeln!(
                    out,
                    "\nneuron {i}: {lowest:.3} to {highest:.3}, usually {rms:.3} (root mean square); \
                     above 0 at {active:.1} % of the tokens\n"
                )?;
                for place in &neuron.places {
                    writeln!(out, "{:>9.3}  {}", place.value, quoted(place))?;
                }
            } else {
                let best = neuron.places.first().map(quoted).unwrap_or_default();
                writeln!(out, "{i:>6} {highest:>9.3} {selectivity:>8.1} {active:>6.1}%  {best}")?;
            }
        }
        Ok(())
    }
}
