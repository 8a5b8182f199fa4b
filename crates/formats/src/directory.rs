//! A model directory: `config.json`, `generation_config.json`, and `model.safetensors` or shards with
//! an index, as `transformers` reads and writes them.

use crate::families::Family;
use crate::families::names::{Names, Piece, copies, pieces};
use crate::json::{self, Fields};
use crate::sentences;
use crate::special::SpecialTokens;
use crate::weights::{self, WeightFiles};
use hearken_base::{Error, Kind, Result};
use hearken_nn::config::{HeadConfig, ModelConfig, PoolerConfig};
use hearken_nn::models::{self, Model};
use hearken_nn::scope::Weights;
use hearken_store::{TensorFile, Writer};
use hearken_tensor::{Param, Shape, Storage, Tensor};
use serde_json::json;
use std::io::ErrorKind;
use std::path::Path;

/// Numbers of a tensor that are compared at a time: 4 MB.
const AT_ONCE: usize = 1 << 20;

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
    let Described { family, config, special, files } = Described::read(directory)?;
    // Parameters without numbers take no memory, whatever config.json says of their sizes.
    let model = models::build(&config, Weights::Unset);
    let pieces = pieces(family, &config, shapes(model.parameters()))?;
    let pieces = weights::check(&files, family, pieces)?;
    fill(model.parameters(), &pieces, &files, storage)?;
    Ok(Loaded { model, family, special })
}

/// What a directory says of its model, without its numbers.
pub fn config_of(directory: &Path) -> Result<ModelConfig> {
    Described::read(directory).map(|described| described.config)
}

/// The tokens with a meaning of their own that a directory states.
pub fn special_tokens_of(directory: &Path) -> Result<SpecialTokens> {
    Described::read(directory).map(|described| described.special)
}

/// A directory whose weights have not been read.
struct Described {
    family: &'static Family,
    config: ModelConfig,
    special: SpecialTokens,
    files: WeightFiles,
}

impl Described {
    fn read(directory: &Path) -> Result<Self> {
        let path = directory.join("config.json");
        let json = json::read(&path).map_err(|error| match error.kind() {
            Kind::Io(ErrorKind::NotFound) => error.with_hint(
                "check the path: a model directory has config.json and model.safetensors",
            ),
            _ => error,
        })?;
        let fields = Fields::new(&path, &json);
        let family = Family::named_by(&fields)?;
        if fields.present("quantization_config").is_some() {
            return Err(fields.unsupported("quantization_config", "none"));
        }
        let mut config = (family.read_config)(&fields)?;
        if let ModelConfig::Encoder(config) = &mut config
            && config.head == (HeadConfig::None {})
            && let Some(head) = sentences::read(directory, config.context)?
        {
            config.head = head;
        }
        let within = |error: Error| error.within(path.display());
        config.validate().map_err(within)?;
        if config.vocabulary() == 0 {
            let message = format!("{}: the vocabulary is empty", path.display());
            return Err(Error::new(message, "expected at least one token"));
        }
        if config.labels().is_some_and(<[String]>::is_empty) {
            let message = format!("{}: there are no labels", path.display());
            return Err(Error::new(message, "expected at least one"));
        }
        let special = SpecialTokens::read(directory, &fields, config.has_source())?;
        special
            .check(config.vocabulary(), config.has_source())
            .map_err(|error| error.within(directory.display()))?;
        let files = WeightFiles::open(directory)?;
        without_missing_pooler(&mut config, &files);
        with_the_head_of(&mut config, family, &files)?;
        Ok(Self { family, config, special, files })
    }
}

/// A bare encoder may have been saved with or without its pooler, and config.json does not say.
fn without_missing_pooler(config: &mut ModelConfig, files: &WeightFiles) {
    if let ModelConfig::Encoder(config) = config
        && config.head.is_bare()
        && !files.entries().any(|entry| entry.name.split('.').any(|part| part == "pooler"))
    {
        config.pooler = PoolerConfig::None;
    }
}

/// T5's config.json does not say for sure whether the head is the embedding, and Marian's not whether
/// it has a bias.
fn with_the_head_of(config: &mut ModelConfig, family: &Family, files: &WeightFiles) -> Result<()> {
    let ModelConfig::EncoderDecoder(config) = config else { return Ok(()) };
    match family.model_type {
        "t5" => {
            config.tied = match (files.find("lm_head.weight"), files.find("shared.weight")) {
                (Some(head), Some(table)) => {
                    same_numbers((head, "lm_head.weight"), (table, "shared.weight"))?
                }
                _ => true,
            };
        }
        "marian" => config.logits_bias = files.find("final_logits_bias").is_some(),
        _ => {}
    }
    Ok(())
}

/// Are two tensors equal, number by number?
fn same_numbers((a, first): (&TensorFile, &str), (b, second): (&TensorFile, &str)) -> Result<bool> {
    if a.shape(first)? != b.shape(second)? {
        return Ok(false);
    }
    let total: usize = a.shape(first)?.iter().product();
    for start in (0..total).step_by(AT_ONCE) {
        let count = AT_ONCE.min(total - start);
        let (mut x, mut y) = (vec![0.0; count], vec![0.0; count]);
        a.read_range(first, start, &mut x)?;
        b.read_range(second, start, &mut y)?;
        if x != y {
            return Ok(false);
        }
    }
    Ok(true)
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

/// What [`load_body_into`] has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initialised {
    /// Parameters that have the numbers of the directory.
    pub loaded: Vec<String>,
    /// Parameters that the directory does not have, which are as they were.
    pub fresh: Vec<String>,
    /// Parameters of the directory that the model has no use for.
    pub unused: Vec<String>,
}

/// What belongs to the head of a model: only a head of the same kind and labels has the same.
const HEAD: &str = "head.";
/// What an encoder may have or not, whatever is built upon it.
const POOLER: &str = "pooler.";

/// Gives a model the weights of a directory as far as they are those of the same body, in f32: all
/// but a head that differs. What it does not find must belong to the head or the pooler.
pub fn load_body_into(directory: &Path, model: &dyn Model) -> Result<Initialised> {
    let Described { family, config, files, .. } = Described::read(directory)?;
    let source = models::build(&config, Weights::Unset);
    let all =
        weights::check(&files, family, pieces(family, &config, shapes(source.parameters()))?)?;
    let same_head = model.config().head() == config.head();
    let known = |name: &str| source.parameters().iter().position(|known| known.name() == name);
    let mut found = Initialised { loaded: Vec::new(), fresh: Vec::new(), unused: Vec::new() };
    let mut chosen = Vec::new();
    for parameter in model.parameters() {
        let name = parameter.name();
        let at = known(name).filter(|_| same_head || !name.starts_with(HEAD));
        let Some(at) = at else {
            if !name.starts_with(HEAD) && !name.starts_with(POOLER) {
                return Err(Error::new(
                    format!("{} has no {name}, which the model needs", directory.display()),
                    "start from a directory whose model has the same body: the same choices, and \
                     another head at most",
                ));
            }
            found.fresh.push(name.to_owned());
            continue;
        };
        let theirs = source.parameters().get(at).map(Param::shape);
        if theirs != Some(parameter.shape()) {
            let theirs = theirs.map(|shape| shape.to_string()).unwrap_or_default();
            return Err(Error::new(
                format!(
                    "{name} is {theirs} in {}, expected {}",
                    directory.display(),
                    parameter.shape()
                ),
                "start from a directory whose model has the same sizes",
            ));
        }
        chosen.push((parameter, at));
        found.loaded.push(name.to_owned());
    }
    let names = source.parameters().iter().map(Param::name);
    found.unused =
        names.filter(|n| !found.loaded.iter().any(|l| l == n)).map(str::to_owned).collect();
    // Nothing is changed before everything is known to fit.
    for (parameter, at) in chosen {
        let own: Vec<Piece> = all.iter().filter(|piece| piece.parameter == at).cloned().collect();
        weights::fill(parameter, &own, &files, Storage::F32)?;
    }
    Ok(found)
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

/// Writes `config.json` and `model.safetensors` (in f32), as the first family that can express the
/// model; `generation_config.json`, if it generates; and how it embeds texts, if that is its use.
pub fn save(
    directory: &Path,
    model: &dyn Model,
    special: &SpecialTokens,
) -> Result<&'static Family> {
    let config = model.config();
    let (family, own) = Family::expressing(&config);
    let parameters = model.parameters();
    let mut pieces = pieces(family, &config, shapes(parameters))?;
    pieces.extend(copies(family, &config, shapes(parameters))?);
    // In the order of the parameters.
    pieces.sort_by_key(|piece| piece.parameter);
    std::fs::create_dir_all(directory).map_err(Error::io("write", directory))?;
    let about = json!({
        "model_type": family.model_type,
        "architectures": [family.architecture],
        "dtype": "float32",
    });
    let translates = model.translates().is_some();
    let tokens = if translates { special.to_json_of_translator() } else { special.to_json() };
    let described = json::merged(json::merged(about, tokens.clone()), own);
    json::write(&directory.join("config.json"), &described)?;
    if translates || model.generates().is_some() {
        let generation = json::merged(tokens, special.constraints_to_json());
        json::write(&directory.join("generation_config.json"), &generation)?;
    }
    if let ModelConfig::Encoder(config) = &config
        && !matches!(family.names, Names::Same)
    {
        sentences::write(directory, &config.head, config.stack.width)?;
    }
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
