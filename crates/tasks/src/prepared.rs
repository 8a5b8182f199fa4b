//! A run that is about to begin: the data that fits its model, and the task of both.

use crate::config::{FINE_TUNING, FINE_TUNING_PAIRS, RunConfig};
use crate::data::{TextData, Workplace};
use crate::encoder::{EncoderData, EncoderTask, HoldOut, Purpose};
use crate::next_token::NextToken;
use crate::open;
use crate::prefix::Prefixes;
use crate::seq2seq::{PairData, Seq2Seq};
use hearken_base::{Error, Result};
use hearken_data::Progress;
use hearken_data::batches::Batches;
use hearken_data::corpus::Stop;
use hearken_data::tokenizer::Tokenizer;
use hearken_formats::{self as formats, Initialised};
use hearken_nn::config::{HeadConfig, ModelConfig};
use hearken_nn::models::{self, Model};
use hearken_nn::scope::Weights;
use hearken_train::{RunDirectory, Task};
use std::path::Path;

/// The data of a run, by the kind of its model.
pub enum Prepared {
    /// Of a language model.
    Text(Box<TextData>),
    /// Of an encoder.
    Encoder(Box<EncoderData>),
    /// Of an encoder-decoder.
    Pairs(Box<PairData>),
}

impl Prepared {
    /// Prepares what `config` names, and fits the model to it. Files that are needed later are kept
    /// in `directory`. Reading ends with an error of the kind `Io(Interrupted)` once `stop` is set.
    pub fn prepare(
        config: &mut RunConfig,
        directory: &RunDirectory,
        stop: &Stop,
        report: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Self> {
        Ok(match config.model {
            ModelConfig::Decoder(_) | ModelConfig::Recurrent(_) | ModelConfig::Convolution(_) => {
                let data = TextData::prepare(config, directory, stop, report)?;
                data.fit_vocabulary(config)?;
                Self::Text(Box::new(data))
            }
            ModelConfig::Encoder(_) => {
                let place = Workplace::of(directory, stop);
                let data = EncoderData::prepare(config, &place, None, HoldOut::Share, report)?;
                data.fit(config)?;
                Self::Encoder(Box::new(data))
            }
            ModelConfig::EncoderDecoder(_) | ModelConfig::RecurrentSeq2seq(_) => {
                let place = Workplace::of(directory, stop);
                let data = PairData::prepare(config, &place, None, HoldOut::Share, report)?;
                crate::data::fit_vocabulary(&data.tokenizer, config)?;
                config.model.validate()?;
                Self::Pairs(Box::new(data))
            }
        })
    }

    /// What the data is, in a few words.
    pub fn name(&self) -> &str {
        match self {
            Self::Text(data) => &data.name,
            Self::Encoder(data) => &data.name,
            Self::Pairs(data) => &data.name,
        }
    }

    /// What to tell the user.
    pub fn notes(&self) -> &[String] {
        match self {
            Self::Text(data) => &data.notes,
            Self::Encoder(data) => &data.notes,
            Self::Pairs(data) => &data.notes,
        }
    }

    /// The loss that no model can beat, where it is known.
    pub fn floor(&self) -> Option<f64> {
        match self {
            Self::Text(data) => data.floor,
            Self::Encoder(data) => data.floor,
            Self::Pairs(_) => None,
        }
    }

    /// The best possible value of a metric, where it is known.
    pub fn ceiling(&self) -> Option<(&'static str, f64)> {
        match self {
            Self::Text(_) => None,
            Self::Encoder(data) => data.ceiling,
            Self::Pairs(data) => data.ceiling,
        }
    }

    /// For the report: why the training loss lies above the validation loss.
    pub fn why_training_is_above(&self) -> Option<&'static str> {
        match self {
            Self::Text(data) => data.why_training_is_above,
            Self::Encoder(_) | Self::Pairs(_) => None,
        }
    }

    /// From text to tokens and back.
    pub fn tokenizer(&self) -> &Tokenizer {
        match self {
            Self::Text(data) => &data.tokenizer,
            Self::Encoder(data) => &data.tokenizer,
            Self::Pairs(data) => &data.tokenizer,
        }
    }

    fn batches(&self) -> Option<&dyn Batches> {
        match self {
            Self::Text(data) => Some(data.batches.as_ref()),
            Self::Encoder(data) => data.batches.as_deref(),
            Self::Pairs(data) => data.batches.as_deref(),
        }
    }

    /// The most tokens of a row.
    pub fn length(&self) -> usize {
        self.batches().map_or(0, Batches::length)
    }

    /// The steps of so many epochs, with batches of `rows` rows.
    pub fn steps_of(&self, epochs: f64, rows: usize) -> Result<u64> {
        let count = self.batches().and_then(Batches::epoch).ok_or_else(|| {
            Error::new(
                "there are no epochs: rows are new at every step",
                "say how long to train with --steps",
            )
        })?;
        if !(epochs > 0.0 && epochs <= 1e6) {
            let message = format!("{epochs} epochs, expected more than 0 and at most 1000000");
            return Err(Error::new(message, "3 are usual"));
        }
        Ok(((epochs * count as f64 / rows.max(1) as f64).ceil() as u64).max(1))
    }

    /// The task of a model and this data.
    pub fn into_task(self, model: Box<dyn Model>, config: &RunConfig) -> Result<Box<dyn Task>> {
        Ok(match self {
            Self::Text(data) => {
                let prefixes = Prefixes::of(config, &data.tokenizer)?;
                Box::new(NextToken::new(model, *data, &config.train).with_prefixes(prefixes))
            }
            Self::Encoder(data) => Box::new(EncoderTask::new(model, *data, config)?),
            Self::Pairs(data) => Box::new(Seq2Seq::new(model, *data, config)?),
        })
    }

    /// What is learned from if no files are named.
    pub fn made(config: &RunConfig) -> &'static str {
        config.data.generates(&config.model).name()
    }

    /// The command that uses such a model.
    pub fn used_by(config: &RunConfig) -> &'static str {
        if config.model.has_source() {
            return "translate";
        }
        match Purpose::of(&config.model) {
            Err(_) => "generate",
            Ok(Purpose::Masks) => "fill",
            Ok(Purpose::Pairs) => "embed",
            Ok(Purpose::Spans | Purpose::Numbers) => "eval",
            Ok(Purpose::Classes | Purpose::Several | Purpose::Tags) => "classify",
        }
    }
}

/// The model of a run: drawn from its seed, and with the body of the model that it starts from, if
/// there is one. A run that goes on from a checkpoint needs no such start.
pub fn first_model(
    config: &RunConfig,
    goes_on: bool,
) -> Result<(Box<dyn Model>, Option<Initialised>)> {
    let model = models::build(&config.model, Weights::Drawn { seed: config.train.seed });
    let found = match &config.task.init {
        Some(path) if !goes_on => {
            Some(formats::load_body_into(&open::locate(Some(path))?, model.as_ref())?)
        }
        _ => None,
    };
    Ok((model, found))
}

/// The configuration by which a given model goes on learning, unless one is named.
pub fn fine_tuning(path: &Path) -> Result<&'static str> {
    let theirs = formats::config_of(&open::locate(Some(path))?)?;
    Ok(if theirs.has_source() { FINE_TUNING_PAIRS } else { FINE_TUNING })
}

impl RunConfig {
    /// Takes the body of a model directory or run in place of its own, and starts from its weights.
    /// The head of an encoder stays; an encoder-decoder is taken whole. Of the `sets` by which this
    /// configuration was read, those of dropout hold for the taken model, too; what would change its
    /// shape or its tokens is refused.
    pub fn start_from(&mut self, path: &Path, sets: &[String]) -> Result<()> {
        let key = |set: &String| set.split('=').next().unwrap_or_default().trim().to_owned();
        let under = |set: &String, of: &str| {
            let key = key(set);
            key.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let refused = sets.iter().find(|set| {
            let own = under(set, "model.dropout") || under(set, "model.head");
            under(set, "model") && !own
                || under(set, "data.tokenizer")
                || under(set, "data.vocabulary")
        });
        if let Some(set) = refused {
            return Err(Error::new(
                format!("{} is set, and {} is taken as it is", key(set), path.display()),
                "leave it out: --init takes a model with its shape and its tokens; model.dropout and \
                 model.head may be set",
            ));
        }
        self.take_body(path)?;
        let dropout: Vec<String> =
            sets.iter().filter(|set| under(set, "model.dropout")).cloned().collect();
        if !dropout.is_empty() {
            *self = self.with(&dropout)?;
        }
        Ok(())
    }

    fn take_body(&mut self, path: &Path) -> Result<()> {
        let directory = open::locate(Some(path))?;
        let theirs = formats::config_of(&directory)?;
        if theirs.has_source() && self.model.has_source() {
            self.model = theirs;
            self.task.init = Some(path.to_owned());
            return Ok(());
        }
        let (ModelConfig::Encoder(mut encoder), Some(head)) = (theirs, self.model.head()) else {
            return Err(Error::new(
                format!("{} is not an encoder, or not of the configured kind", path.display()),
                "--init puts a new head on an encoder, such as BERT's, or goes on with an \
                 encoder-decoder",
            ));
        };
        let labels = encoder.head.labels().map(<[String]>::to_vec);
        let sizes = matches!(
            (head, &encoder.head),
            (HeadConfig::Embedding { .. }, HeadConfig::Embedding { .. })
        );
        // An embedding is used as the directory says, unless it says nothing.
        if !sizes {
            let same = head.labels().is_some_and(<[String]>::is_empty)
                && std::mem::discriminant(head) == std::mem::discriminant(&encoder.head);
            encoder.head = head.clone();
            // A head of the same kind goes on with its labels.
            if let Some(labels) = labels.filter(|_| same) {
                encoder.head.set_labels(labels);
            }
        }
        self.model = ModelConfig::Encoder(encoder);
        self.task.init = Some(path.to_owned());
        Ok(())
    }
}
