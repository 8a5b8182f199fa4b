//! A model directory: `config.json`, `model.safetensors` (or shards with an index), as
//! `transformers` reads and writes them.

use crate::error::FormatError;
use crate::family::{Family, Piece, gpt2_activation, gpt2_kind};
use crate::safetensors::{self, Tensors};
use hearken_nn::config::{
    Combine, DecoderConfig, DropoutConfig, FeedForwardConfig, FeedForwardKind, InitConfig,
    NormConfig, NormKind, Placement, PositionConfig, RopeScaling,
};
use hearken_nn::decoder::Decoder;
use hearken_tensor::{Shape, Tensor};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Tokens with a meaning of their own, for `generation_config.json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpecialTokens {
    /// Begins a text.
    pub begin: Option<u32>,
    /// Ends a text.
    pub end: Option<u32>,
    /// Fills up a batch.
    pub pad: Option<u32>,
}

/// What a directory holds.
#[derive(Debug)]
pub struct Loaded {
    /// The model.
    pub model: Decoder,
    /// How the directory names things.
    pub family: Family,
    /// From `generation_config.json` or `config.json`.
    pub special: SpecialTokens,
}

/// Reads a directory written by `transformers` (GPT-2 or Llama) or by [`save`].
pub fn load(directory: &Path) -> Result<Loaded, FormatError> {
    let path = directory.join("config.json");
    let json = read_json(&path)?;
    let (config, family) = read_config(&path, &json)?;
    config.validate().map_err(|e| FormatError::content(&path, e.message, e.hint))?;
    let model = Decoder::empty(config);
    let (file, tensors) = read_tensors(directory)?;
    fill(&model, family, tensors, &file)?;
    let special = read_special(directory, &json);
    Ok(Loaded { model, family, special })
}

/// Writes `config.json`, `generation_config.json` and `model.safetensors`, in the layout of the
/// family that can express the model.
pub fn save(
    directory: &Path,
    model: &Decoder,
    special: SpecialTokens,
) -> Result<Family, FormatError> {
    let family = Family::of(model.config());
    std::fs::create_dir_all(directory).map_err(|e| FormatError::write(directory, e))?;
    write_json(&directory.join("config.json"), &write_config(model.config(), family, special))?;
    let generation = json!({
        "bos_token_id": special.begin,
        "eos_token_id": special.end,
        "pad_token_id": special.pad,
    });
    write_json(&directory.join("generation_config.json"), &generation)?;
    let values: Vec<(String, Tensor)> =
        model.parameters().iter().map(|p| (p.name().to_owned(), p.value())).collect();
    let tensors = to_theirs(model.config(), family, &values);
    let path = directory.join("model.safetensors");
    safetensors::write(&path, tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)))?;
    Ok(family)
}

/// Named numbers of a model (its values, or its gradients) under the names and in the layout of
/// `family`.
pub fn to_theirs(
    config: &DecoderConfig,
    family: Family,
    ours: &[(String, Tensor)],
) -> Vec<(String, Tensor)> {
    let names: Vec<&str> = ours.iter().map(|(name, _)| name.as_str()).collect();
    let pieces = family.pieces(config, &names);
    let find = |name: &str| ours.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor);
    pieces
        .into_iter()
        .filter_map(|piece| {
            find(&piece.ours).map(|tensor| (piece.theirs.clone(), cut(tensor, &piece)))
        })
        .collect()
}

/// The rows of `tensor` that make up `piece`, the other way round if need be.
fn cut(tensor: &Tensor, piece: &Piece) -> Tensor {
    let width = if tensor.shape().rank() == 1 { 1 } else { tensor.shape().width() };
    let rows = piece.rows.clone().unwrap_or(0..tensor.shape().len() / width.max(1));
    let data = &tensor.data()[rows.start * width..rows.end * width];
    if piece.transposed {
        return Tensor::new([width, rows.len()], &transpose(data, rows.len(), width));
    }
    let dims = tensor.shape();
    let mut dims = dims.dims().to_vec();
    if let Some(first) = dims.first_mut() {
        *first = rows.len();
    }
    Tensor::new(Shape::new(&dims), data)
}

fn transpose(data: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..rows * columns).map(|i| data[(i % rows) * columns + i / rows]).collect()
}

/// Sets every parameter of `model` from a file's tensors.
fn fill(
    model: &Decoder,
    family: Family,
    mut tensors: Tensors,
    path: &Path,
) -> Result<(), FormatError> {
    let parameters = model.parameters();
    let names: Vec<&str> = parameters.iter().map(hearken_tensor::Param::name).collect();
    let pieces = family.pieces(model.config(), &names);
    for parameter in &parameters {
        let mut value = Tensor::unset(parameter.shape());
        for piece in pieces.iter().filter(|piece| piece.ours == parameter.name()) {
            let tensor = take(&mut tensors, &piece.theirs).ok_or_else(|| {
                FormatError::content(
                    path,
                    format!("there is no tensor {}", piece.theirs),
                    format!(
                        "config.json says {}: does it belong to this file?",
                        family.model_type()
                    ),
                )
            })?;
            paste(&mut value, &tensor, piece).map_err(|(want, got)| {
                FormatError::content(
                    path,
                    format!("{} has shape {got}, expected {want}", piece.theirs),
                    "config.json and the weights do not belong together",
                )
            })?;
        }
        parameter.set_value(value);
    }
    Ok(())
}

/// Files of the hub name GPT-2's tensors with or without the prefix.
fn take(tensors: &mut Tensors, name: &str) -> Option<Tensor> {
    tensors.remove(name).or_else(|| tensors.remove(name.strip_prefix("transformer.")?))
}

/// Writes `tensor` to its rows of `value`; or gives the shape that was expected and the one found.
fn paste(value: &mut Tensor, tensor: &Tensor, piece: &Piece) -> Result<(), (Shape, Shape)> {
    let shape = value.shape();
    let width = if shape.rank() == 1 { 1 } else { shape.width() };
    let rows = piece.rows.clone().unwrap_or(0..shape.len() / width.max(1));
    let mut want = shape.dims().to_vec();
    if let Some(first) = want.first_mut() {
        *first = rows.len();
    }
    if piece.transposed {
        want.reverse();
    }
    let want = Shape::new(&want);
    if want != tensor.shape() {
        return Err((want, tensor.shape()));
    }
    let target = &mut value.data_mut()[rows.start * width..rows.end * width];
    if piece.transposed {
        target.copy_from_slice(&transpose(tensor.data(), width, rows.len()));
    } else {
        target.copy_from_slice(tensor.data());
    }
    Ok(())
}

/// The files of a directory that hold its weights: one, or the shards that an index names.
pub fn weight_files(directory: &Path) -> Result<Vec<PathBuf>, FormatError> {
    let single = directory.join("model.safetensors");
    let index = directory.join("model.safetensors.index.json");
    if single.exists() || !index.exists() {
        return Ok(vec![single]);
    }
    let json = read_json(&index)?;
    let bad = |message: &str| FormatError::content(&index, message, "get the file again");
    let map = json
        .get("weight_map")
        .and_then(Value::as_object)
        .ok_or_else(|| bad("has no weight_map"))?;
    let files: Option<BTreeSet<&str>> = map.values().map(Value::as_str).collect();
    let files = files.ok_or_else(|| bad("weight_map names something that is not a file"))?;
    // A shard lies beside the index, whatever the index says.
    let beside = |file: &str| Path::new(file).file_name().map(|name| directory.join(name));
    let paths: Option<Vec<PathBuf>> = files.into_iter().map(beside).collect();
    paths.ok_or_else(|| bad("names a shard without a name"))
}

/// All tensors of a directory, and the file to name when one is wrong.
fn read_tensors(directory: &Path) -> Result<(PathBuf, Tensors), FormatError> {
    let files = weight_files(directory)?;
    let mut tensors = Tensors::new();
    for file in &files {
        tensors.extend(safetensors::read(file)?);
    }
    let named = match files.as_slice() {
        [single] => single.clone(),
        _ => directory.join("model.safetensors.index.json"),
    };
    Ok((named, tensors))
}

fn read_json(path: &Path) -> Result<Value, FormatError> {
    let text = std::fs::read_to_string(path).map_err(|e| FormatError::read(path, e))?;
    serde_json::from_str(&text)
        .map_err(|e| FormatError::content(path, format!("not JSON: {e}"), "get the file again"))
}

fn write_json(path: &Path, json: &Value) -> Result<(), FormatError> {
    let text = serde_json::to_string_pretty(json).unwrap_or_default() + "\n";
    std::fs::write(path, text).map_err(|e| FormatError::write(path, e))
}

fn read_special(directory: &Path, config: &Value) -> SpecialTokens {
    let generation = read_json(&directory.join("generation_config.json")).unwrap_or(Value::Null);
    let find = |key: &str| {
        let one = |json: &Value| match json.get(key) {
            Some(Value::Array(many)) => many.first().and_then(Value::as_u64),
            other => other.and_then(Value::as_u64),
        };
        one(&generation).or_else(|| one(config)).and_then(|id| u32::try_from(id).ok())
    };
    SpecialTokens {
        begin: find("bos_token_id"),
        end: find("eos_token_id"),
        pad: find("pad_token_id"),
    }
}

/// Reads fields of config.json with errors that name them.
struct Fields<'a> {
    path: &'a Path,
    json: &'a Value,
}

impl Fields<'_> {
    fn present(&self, key: &str) -> Option<&Value> {
        self.json.get(key).filter(|value| !value.is_null())
    }

    fn bad(&self, key: &str, expected: &str) -> FormatError {
        let got = self.json.get(key).map_or("nothing".to_owned(), ToString::to_string);
        FormatError::content(
            self.path,
            format!("{key} is {got}, expected {expected}"),
            "config.json must be one of GPT-2, Llama or Hearken",
        )
    }

    fn size(&self, key: &str) -> Result<usize, FormatError> {
        let value = self.json.get(key).and_then(Value::as_u64);
        value.map(|n| n as usize).ok_or_else(|| self.bad(key, "a whole number"))
    }

    fn size_or(&self, key: &str, default: usize) -> Result<usize, FormatError> {
        if self.present(key).is_some() { self.size(key) } else { Ok(default) }
    }

    fn number_or(&self, key: &str, default: f32) -> Result<f32, FormatError> {
        let Some(value) = self.present(key) else { return Ok(default) };
        value.as_f64().map(|x| x as f32).ok_or_else(|| self.bad(key, "a number"))
    }

    fn truth_or(&self, key: &str, default: bool) -> Result<bool, FormatError> {
        let Some(value) = self.present(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.bad(key, "true or false"))
    }
}

fn read_config(path: &Path, json: &Value) -> Result<(DecoderConfig, Family), FormatError> {
    let fields = Fields { path, json };
    match json.get("model_type").and_then(Value::as_str) {
        Some("gpt2") => Ok((read_gpt2(&fields)?, Family::Gpt2)),
        Some("llama") => Ok((read_llama(&fields)?, Family::Llama)),
        Some("hearken") => {
            let config = json.get("model").cloned().unwrap_or(Value::Null);
            let config = serde_json::from_value(config).map_err(|e| {
                FormatError::content(
                    path,
                    format!("model: {e}"),
                    "was it written by a newer Hearken?",
                )
            })?;
            Ok((config, Family::Hearken))
        }
        _ => Err(fields.bad("model_type", "\"gpt2\", \"llama\" or \"hearken\"")),
    }
}

fn read_gpt2(fields: &Fields<'_>) -> Result<DecoderConfig, FormatError> {
    for (key, usual) in [
        ("scale_attn_by_inverse_layer_idx", false),
        ("reorder_and_upcast_attn", false),
        ("add_cross_attention", false),
        ("scale_attn_weights", true),
    ] {
        if fields.truth_or(key, usual)? != usual {
            return Err(fields.bad(key, if usual { "true" } else { "false" }));
        }
    }
    let activation =
        fields.present("activation_function").and_then(Value::as_str).unwrap_or("gelu_new");
    let kind = gpt2_kind(activation)
        .ok_or_else(|| fields.bad("activation_function", "gelu_new, gelu, relu or silu"))?;
    let width = fields.size("n_embd")?;
    Ok(DecoderConfig {
        vocabulary: fields.size("vocab_size")?,
        context: fields.size("n_positions")?,
        layers: fields.size("n_layer")?,
        width,
        heads: fields.size("n_head")?,
        kv_heads: None,
        head_width: None,
        norm: NormConfig {
            kind: NormKind::Layer,
            placement: Placement::Pre,
            eps: fields.number_or("layer_norm_epsilon", 1e-5)?,
        },
        position: PositionConfig::Learned { combine: Combine::Add },
        feed_forward: FeedForwardConfig {
            kind,
            width: Some(fields.size_or("n_inner", 4 * width)?),
        },
        attention: hearken_nn::config::AttentionConfig::default(),
        bias: true,
        tied: fields.truth_or("tie_word_embeddings", true)?,
        residual_scale: 1.0,
        dropout: DropoutConfig {
            embedding: fields.number_or("embd_pdrop", 0.1)?,
            attention: fields.number_or("attn_pdrop", 0.1)?,
            residual: fields.number_or("resid_pdrop", 0.1)?,
            feed_forward: 0.0,
        },
        init: InitConfig {
            deviation: fields.number_or("initializer_range", 0.02)?,
            ..InitConfig::default()
        },
    })
}

fn read_llama(fields: &Fields<'_>) -> Result<DecoderConfig, FormatError> {
    if fields.present("hidden_act").is_some_and(|act| act != "silu") {
        return Err(fields.bad("hidden_act", "\"silu\""));
    }
    let bias = fields.truth_or("attention_bias", false)?;
    if fields.truth_or("mlp_bias", false)? != bias {
        return Err(fields.bad("mlp_bias", "the same as attention_bias"));
    }
    let heads = fields.size("num_attention_heads")?;
    let width = fields.size("hidden_size")?;
    let head_width = fields.size_or("head_dim", width / heads.max(1))?;
    Ok(DecoderConfig {
        vocabulary: fields.size("vocab_size")?,
        context: fields.size("max_position_embeddings")?,
        layers: fields.size("num_hidden_layers")?,
        width,
        heads,
        kv_heads: Some(fields.size_or("num_key_value_heads", heads)?),
        head_width: Some(head_width),
        norm: NormConfig {
            kind: NormKind::Rms,
            placement: Placement::Pre,
            eps: fields.number_or("rms_norm_eps", 1e-6)?,
        },
        position: read_rope(fields)?,
        feed_forward: FeedForwardConfig {
            kind: FeedForwardKind::Swiglu,
            width: Some(fields.size("intermediate_size")?),
        },
        attention: hearken_nn::config::AttentionConfig::default(),
        bias,
        tied: fields.truth_or("tie_word_embeddings", false)?,
        residual_scale: 1.0,
        dropout: DropoutConfig {
            attention: fields.number_or("attention_dropout", 0.0)?,
            ..DropoutConfig::default()
        },
        init: InitConfig {
            deviation: fields.number_or("initializer_range", 0.02)?,
            ..InitConfig::default()
        },
    })
}

/// `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before).
fn read_rope(fields: &Fields<'_>) -> Result<PositionConfig, FormatError> {
    let nested = fields.present("rope_parameters").or_else(|| fields.present("rope_scaling"));
    let none = Value::Null;
    let rope = Fields { path: fields.path, json: nested.unwrap_or(&none) };
    let base = fields.number_or("rope_theta", 10_000.0)?;
    let base = rope.number_or("rope_theta", base)?;
    let kind = rope.present("rope_type").or_else(|| rope.present("type"));
    let context = || match rope.present("original_max_position_embeddings") {
        Some(_) => rope.size("original_max_position_embeddings"),
        None => fields.size("max_position_embeddings"),
    };
    let scaling = match kind.and_then(Value::as_str).unwrap_or("default") {
        "default" => RopeScaling::None,
        "linear" => RopeScaling::Linear { factor: rope.number_or("factor", 1.0)? },
        "llama3" => RopeScaling::Llama3 {
            factor: rope.number_or("factor", 8.0)?,
            original_context: context()?,
            low_frequency_factor: rope.number_or("low_freq_factor", 1.0)?,
            high_frequency_factor: rope.number_or("high_freq_factor", 4.0)?,
        },
        "yarn" => read_yarn(&rope, context()?)?,
        _ => {
            let known = "\"default\", \"linear\", \"yarn\" or \"llama3\"";
            return Err(rope.bad("rope_type", known));
        }
    };
    Ok(PositionConfig::Rope { base, share: 1.0, scaling })
}

fn read_yarn(rope: &Fields<'_>, original_context: usize) -> Result<RopeScaling, FormatError> {
    // What changes the factor of attention has no place in our configuration.
    for key in ["attention_factor", "mscale", "mscale_all_dim"] {
        if rope.present(key).is_some() {
            return Err(rope.bad(key, "nothing: 0.1·ln(factor) + 1 is used"));
        }
    }
    if !rope.truth_or("truncate", true)? {
        return Err(rope.bad("truncate", "true"));
    }
    Ok(RopeScaling::Yarn {
        factor: rope.number_or("factor", 1.0)?,
        original_context,
        beta_fast: rope.number_or("beta_fast", 32.0)?,
        beta_slow: rope.number_or("beta_slow", 1.0)?,
    })
}

fn write_config(config: &DecoderConfig, family: Family, special: SpecialTokens) -> Value {
    let common = json!({
        "model_type": family.model_type(),
        "vocab_size": config.vocabulary,
        "tie_word_embeddings": config.tied,
        "initializer_range": number(config.init.deviation),
        "bos_token_id": special.begin,
        "eos_token_id": special.end,
        "pad_token_id": special.pad,
        "dtype": "float32",
        "use_cache": true,
    });
    let own = match family {
        Family::Gpt2 => json!({
            "architectures": ["GPT2LMHeadModel"],
            "n_positions": config.context,
            "n_embd": config.width,
            "n_layer": config.layers,
            "n_head": config.heads,
            "n_inner": config.feed_forward_width(),
            "activation_function": gpt2_activation(config.feed_forward.kind),
            "layer_norm_epsilon": number(config.norm.eps),
            "embd_pdrop": number(config.dropout.embedding),
            "attn_pdrop": number(config.dropout.attention),
            "resid_pdrop": number(config.dropout.residual),
        }),
        Family::Llama => json!({
            "architectures": ["LlamaForCausalLM"],
            "max_position_embeddings": config.context,
            "hidden_size": config.width,
            "num_hidden_layers": config.layers,
            "num_attention_heads": config.heads,
            "num_key_value_heads": config.kv_heads(),
            "head_dim": config.head_width(),
            "intermediate_size": config.feed_forward_width(),
            "hidden_act": "silu",
            "rms_norm_eps": number(config.norm.eps),
            "attention_bias": config.bias,
            "mlp_bias": config.bias,
            "attention_dropout": number(config.dropout.attention),
            "rope_parameters": write_rope(&config.position),
        }),
        Family::Hearken => json!({ "architectures": ["HearkenDecoder"], "model": config }),
    };
    let mut all = common;
    if let (Value::Object(all), Value::Object(own)) = (&mut all, own) {
        all.extend(own);
    }
    all
}

/// An f32 as the shortest decimal that gives it back: 0.1 and not 0.10000000149.
fn number(x: f32) -> Value {
    x.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

fn write_rope(position: &PositionConfig) -> Value {
    let PositionConfig::Rope { base, scaling, .. } = position else { return Value::Null };
    let theta = number(*base);
    match scaling {
        RopeScaling::Linear { factor } => {
            json!({ "rope_type": "linear", "rope_theta": theta, "factor": number(*factor) })
        }
        RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow } => json!({
            "rope_type": "yarn",
            "rope_theta": theta,
            "factor": number(*factor),
            "original_max_position_embeddings": original_context,
            "beta_fast": number(*beta_fast),
            "beta_slow": number(*beta_slow),
        }),
        RopeScaling::Llama3 {
            factor,
            original_context,
            low_frequency_factor,
            high_frequency_factor,
        } => json!({
            "rope_type": "llama3",
            "rope_theta": theta,
            "factor": number(*factor),
            "original_max_position_embeddings": original_context,
            "low_freq_factor": number(*low_frequency_factor),
            "high_freq_factor": number(*high_frequency_factor),
        }),
        _ => json!({ "rope_type": "default", "rope_theta": theta }),
    }
}
