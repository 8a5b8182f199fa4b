//! What a model learns from if it is given no files.

use hearken_base::{Error, names};
use hearken_data::conversions::Conversion;
use serde::Serialize;

/// What is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Generated {
    /// [Stories](hearken_data::stories), for decoders and encoders.
    Stories,
    /// Rows of [labelled examples](hearken_data::shots), for decoders.
    Shots,
    /// [Random letters, repeated](hearken_data::repeats), for decoders.
    Repeats,
    /// Pairs for encoder-decoders: [`Conversion::Dates`].
    Dates,
    /// [`Conversion::IsoDates`]
    IsoDates,
    /// [`Conversion::Numbers`]
    Numbers,
    /// [`Conversion::Digits`]
    Digits,
}

names!(Generated {
    "stories" => Stories,
    "shots" => Shots,
    "repeats" => Repeats,
    "dates" => Dates,
    "iso-dates" => IsoDates,
    "numbers" => Numbers,
    "digits" => Digits,
});

impl Generated {
    /// The conversion, if it consists of pairs.
    pub fn conversion(self) -> Option<Conversion> {
        match self {
            Self::Dates => Some(Conversion::Dates),
            Self::IsoDates => Some(Conversion::IsoDates),
            Self::Numbers => Some(Conversion::Numbers),
            Self::Digits => Some(Conversion::Digits),
            Self::Stories | Self::Shots | Self::Repeats => None,
        }
    }

    /// The error of a model of another kind.
    pub(crate) fn misfit(self) -> Error {
        let hint = if self.conversion().is_some() {
            "these are pairs, for kind = \"encoder-decoder\"; a decoder learns \"stories\", \
             \"repeats\" or \"shots\""
        } else {
            "this is text, for kind = \"decoder\"; an encoder-decoder learns \"dates\", \
             \"iso-dates\", \"numbers\" or \"digits\""
        };
        Error::new(
            format!("data.generated is {:?}, which the model cannot learn", self.name()),
            hint,
        )
    }
}
