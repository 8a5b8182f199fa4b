//! A model directory: `config.json`, `generation_config.json`, and `model.safetensors` or shards with
//! an index, as `transformers` reads and writes them.

use crate::families::Family;
use crate::families::names::{Piece, pieces};
use crate::json::{self, Fields};
use crate::special::SpecialTokens;
use crate::weights::{self, WeightFiles};
use hearken_base::{Error, Kind, Result};
use hearken_nn::config::ModelConfig;
use hearken_nn::models::{self, Model};
use hearken_nn::scope::Weights;
use hearken_store::Writer;
use hearken_tensor::{Param, Shape, Storage, Tensor};
use serde_json::json;
use std::io::ErrorKind;
use std::path::Path;

/// What a directory holds.
#[derive(Debug)]
pub struct Loaded {
    /// The model.
    pub model: Box<dyn Model>,
    /// How the directory describes it.
    pub family: &'static Family,
    /// Tokens that begin, end or fill up a text.
    pub special: SpecialTokens,
}

/// Loads a directory that `transformers` or [`save`] has written, in f32.
pub fn load(directory: &Path) -> Result<Loaded> {
    load_as(directory, Storage::F32)
}

/// Loads a directory with its matrices and tables in `storage`. In 16 bits the model can be used but
/// not trained.
pub fn load_as(directory: &Path, storage: Storage) -> Result<Loaded> {
    let path = directory.join("config.json");
    let json = json::read(&path).map_err(|error| match error.kind() {
        Kind::Io(ErrorKind::NotFound) => error
            .with_hint("check the path: a model directory has config.json and model.safetensors"),
        _ => error,
    })?;
    let fields = Fields::new(&path, &json);
    let family = Family::named_by(&fields)?;
    if fields.present("quantization_config").is_some() {
        return Err(fields.unsupported("quantization_config", "none"));
    }
    let config = (family.read_config)(&fields)?;
    config.validate().map_err(|error| error.within(path.display()))?;
    if config.vocabulary() == 0 {
        let message = format!("{}: the vocabulary is empty", path.display());
        return Err(Error::new(message, "expected at least one token"));
    }
    let special = SpecialTokens::read(directory, &fields)?;
    let files = WeightFiles::open(directory)?;
    // Parameters without numbers take no memory, whatever config.json says of their sizes.
    let model = models::build(&config, Weights::Unset);
    let pieces = pieces(family, &config, shapes(model.parameters()))?;
    let pieces = weights::check(&files, family, pieces)?;
    fill(model.parameters(), &pieces, &files, storage)?;
    Ok(Loaded { model, family, special })
}

/// Gives a model the weights of a directory, in f32. The directory must hold exactly its parameters.
pub fn load_into(directory: &Path, model: &dyn Model) -> Result<()> {
    let path = directory.join("config.json");
    let json = json::read(&path)?;
    let family = Family::named_by(&Fields::new(&path, &json))?;
    let files = WeightFiles::open(directory)?;
    let pieces = pieces(family, &model.config(), shapes(model.parameters()))?;
    let pieces = weights::check(&files, family, pieces)?;
    fill(model.parameters(), &pieces, &files, Storage::F32)
}

/// Reads every parameter from its pieces, which are in the order of the parameters.
fn fill(
    parameters: &[Param],
    pieces: &[Piece],
    files: &WeightFiles,
    storage: Storage,
) -> Result<()> {
    let mut rest = pieces;
    for (i, parameter) in parameters.iter().enumerate() {
        let own = rest.iter().take_while(|piece| piece.parameter == i).count();
        let (own, others) = rest.split_at(own);
        weights::fill(parameter, own, files, storage)?;
        rest = others;
    }
    Ok(())
}

fn shapes(parameters: &[Param]) -> impl Iterator<Item = (&str, Shape)> {
    parameters.iter().map(|parameter| (parameter.name(), parameter.shape()))
}

/// Writes `config.json`, `generation_config.json` and `model.safetensors` (in f32), as the first
/// family that can express the model.
pub fn save(
    directory: &Path,
    model: &dyn Model,
    special: &SpecialTokens,
) -> Result<&'static Family> {
    let config = model.config();
    let (family, own) = Family::expressing(&config);
    let parameters = model.parameters();
    let pieces = pieces(family, &config, shapes(parameters))?;
    std::fs::create_dir_all(directory).map_err(Error::io("write", directory))?;
    let about = json!({
        "model_type": family.model_type,
        "architectures": [family.architecture],
        "dtype": "float32",
    });
    let described = json::merged(json::merged(about, special.to_json()), own);
    json::write(&directory.join("config.json"), &described)?;
    json::write(&directory.join("generation_config.json"), &special.to_json())?;
    let listed: Vec<(String, Vec<usize>)> =
        pieces.iter().map(|piece| (piece.theirs.clone(), piece.shape.clone())).collect();
    let mut writer = Writer::create(&directory.join("model.safetensors"), &listed)?;
    for (i, parameter) in parameters.iter().enumerate() {
        for piece in pieces.iter().filter(|piece| piece.parameter == i) {
            weights::write(parameter, piece, &mut writer)?;
        }
    }
    writer.finish()?;
    Ok(family)
}

/// Named numbers of a model (its values, or its gradients) under the names and in the layout of
/// `family`.
pub fn to_theirs(
    config: &ModelConfig,
    family: &Family,
    ours: &[(String, Tensor)],
) -> Result<Vec<(String, Tensor)>> {
    let shapes = ours.iter().map(|(name, tensor)| (name.as_str(), tensor.shape()));
    let theirs = |piece: Piece| {
        let (_, tensor) = ours.get(piece.parameter)?;
        let tensor = weights::cut(tensor, &piece);
        Some((piece.theirs, tensor))
    };
    Ok(pieces(family, config, shapes)?.into_iter().filter_map(theirs).collect())
}
