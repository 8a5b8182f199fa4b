//! Our own names, for what no other family can express: `model` holds the configuration as it is.

use super::Family;
use super::names::Names;
use crate::json::Fields;
use hearken_base::settings::Settings;
use hearken_base::{Error, Result};
use hearken_nn::config::ModelConfig;
use serde_json::{Value, json};

pub(super) static FAMILY: Family = Family {
    model_type: "hearken",
    architecture: "HearkenModel",
    read_config,
    write_config,
    names: Names::Same,
    optional_prefix: "",
    ignored: &[],
};

fn read_config(fields: &Fields<'_>) -> Result<ModelConfig> {
    let name = fields.path().display().to_string();
    let hint = "config.json was changed, or written by another version of hearken";
    let missing = || Error::new(format!("{name}: model is missing"), hint);
    let model = json!({ "model": fields.present("model").ok_or_else(missing)? });
    let settings = Settings::from_json(&model, &name)?;
    let read = settings.read_only("model").map_err(|error| error.with_hint(hint))?;
    read.ok_or_else(missing)
}

fn write_config(config: &ModelConfig) -> Option<Value> {
    serde_json::to_value(config).ok().map(|model| json!({ "model": model }))
}
