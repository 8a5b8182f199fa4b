//! Arguments of `hearken train` that stand for settings of a configuration.

use crate::failure::Failure;
use hearken::nn::config::ModelConfig;
use std::path::PathBuf;

/// What a model learns.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum TaskName {
    /// Guess hidden words of running text
    Masks,
    /// Label texts, one label each
    Classes,
    /// Label texts, any number of labels each
    Several,
    /// Label every word
    Tags,
    /// Find the answers to questions in texts
    Spans,
    /// Predict numbers of texts
    Numbers,
    /// Embed texts of the same meaning alike
    Pairs,
    /// Write what was taken out of running text (an encoder-decoder; T5)
    Denoise,
}

impl TaskName {
    /// The preset that fits it.
    pub(super) fn preset(self) -> &'static str {
        match self {
            Self::Masks => "encoder-small",
            Self::Denoise => "translation",
            _ => "classifier",
        }
    }

    /// Refuses a model that cannot have it: all but denoising are heads of encoders.
    pub(super) fn check(self, model: &ModelConfig, name: &str) -> Result<(), Failure> {
        if matches!(self, Self::Denoise) || matches!(model, ModelConfig::Encoder(_)) {
            return Ok(());
        }
        let value = clap::ValueEnum::to_possible_value(&self);
        let task = value.as_ref().map_or("", |value| value.get_name());
        Err(Failure::input(
            format!("--task {task} is for encoders, and the model of {name} is none"),
            format!("use --config {}, or --init with an encoder's directory", self.preset()),
        ))
    }

    /// The setting that stands for it.
    pub(super) fn setting(self) -> &'static str {
        match self {
            Self::Masks => "model.head={ kind = \"tokens\" }",
            Self::Classes => "model.head={ kind = \"classes\" }",
            Self::Several => "model.head={ kind = \"classes\", several = true }",
            Self::Tags => "model.head={ kind = \"tags\" }",
            Self::Spans => "model.head={ kind = \"spans\" }",
            Self::Numbers => "model.head={ kind = \"numbers\" }",
            Self::Pairs => "model.head={ kind = \"embedding\" }",
            Self::Denoise => "task.denoise=true",
        }
    }
}

/// Sizes of the model, which people change daily.
#[derive(clap::Args)]
pub(super) struct Sizes {
    /// Number of blocks
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    layers: Option<usize>,

    /// The width of the model; its heads must divide it
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    width: Option<usize>,

    /// Attention heads of each block
    #[arg(long, value_name = "N", conflicts_with = "resume")]
    heads: Option<usize>,

    /// Context length: how many tokens the model sees at once
    #[arg(long, value_name = "N")]
    context: Option<usize>,

    /// Dropout: the probability that an activation is set to 0 in training
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    dropout: Option<f32>,
}

impl Sizes {
    /// As settings of the configuration.
    pub(super) fn sets(&self) -> Vec<String> {
        let text = |value: Option<usize>| value.map(|value| value.to_string());
        [
            ("layers", text(self.layers)),
            ("width", text(self.width)),
            ("heads", text(self.heads)),
            ("context", text(self.context)),
            ("dropout", self.dropout.map(|p| format!("{p:?}"))),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some(format!("model.{key}={}", value?)))
        .collect()
    }
}

/// Pairs whose two sides are in files of their own.
#[derive(clap::Args)]
pub(super) struct Sides {
    /// Texts to translate, one per line; --target has their translations
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "target", conflicts_with = "resume")]
    pub(super) source: Vec<PathBuf>,

    /// Translations of the lines of --source
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "source")]
    pub(super) target: Vec<PathBuf>,
}
