//! Which well-known architecture a decoder is, and how that one names and lays out its
//! parameters.
//!
//! | | ours | GPT-2 | Llama |
//! |---|---|---|---|
//! | queries, keys, values | one matrix ((H+2K)·D, C) | one, transposed (C, 3C) | three |
//! | gate and up | one matrix (2F, C), gate first | – | two |
//! | other matrices | (out, in) | (in, out) | (out, in) |

use hearken_nn::config::{
    AttentionConfig, Combine, DecoderConfig, FeedForwardKind, NormKind, Placement, PositionConfig,
    RopeScaling,
};
use std::ops::Range;

/// How a directory's files are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `GPT2LMHeadModel` of `transformers`.
    Gpt2,
    /// `LlamaForCausalLM` of `transformers`.
    Llama,
    /// Our own names, for what neither of them can express.
    Hearken,
}

/// A tensor of a file as a part of one of our parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its name in the file.
    pub theirs: String,
    /// The parameter's name here.
    pub ours: String,
    /// Which rows of ours it is; all if none.
    pub rows: Option<Range<usize>>,
    /// Is it stored the other way round?
    pub transposed: bool,
}

impl Family {
    /// The family that can express `config`, ours if none can.
    pub fn of(config: &DecoderConfig) -> Self {
        let plain = config.attention == AttentionConfig::Full {}
            && config.residual_scale == 1.0
            && config.norm.placement == Placement::Pre;
        let gpt2 = plain
            && config.norm.kind == NormKind::Layer
            && config.position == PositionConfig::Learned { combine: Combine::Add }
            && gpt2_activation(config.feed_forward.kind).is_some()
            && config.bias
            && config.kv_heads() == config.heads
            && config.head_width() * config.heads == config.width;
        let rope = matches!(
            config.position,
            PositionConfig::Rope {
                share: 1.0,
                scaling: RopeScaling::None
                    | RopeScaling::Linear { .. }
                    | RopeScaling::Yarn { .. }
                    | RopeScaling::Llama3 { .. },
                ..
            }
        );
        let llama = plain
            && config.norm.kind == NormKind::Rms
            && rope
            && config.feed_forward.kind == FeedForwardKind::Swiglu;
        match (gpt2, llama) {
            (true, _) => Self::Gpt2,
            (_, true) => Self::Llama,
            _ => Self::Hearken,
        }
    }

    /// `model_type` in config.json.
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Gpt2 => "gpt2",
            Self::Llama => "llama",
            Self::Hearken => "hearken",
        }
    }

    /// Every tensor of a file of this family, for a model whose parameters are `names`.
    pub fn pieces(self, config: &DecoderConfig, names: &[&str]) -> Vec<Piece> {
        names.iter().flat_map(|name| self.pieces_of(config, name)).collect()
    }

    fn pieces_of(self, config: &DecoderConfig, ours: &str) -> Vec<Piece> {
        let piece = |theirs: String, rows: Option<Range<usize>>, transposed: bool| Piece {
            theirs,
            ours: ours.to_owned(),
            rows,
            transposed,
        };
        // "blocks.3.attention.qkv.weight" → (3, "attention.qkv", "weight")
        let block = ours.strip_prefix("blocks.").and_then(|rest| {
            let (index, rest) = rest.split_once('.')?;
            let (layer, kind) = rest.rsplit_once('.')?;
            Some((index, layer, kind))
        });
        match self {
            Self::Hearken => vec![piece(ours.to_owned(), None, false)],
            Self::Gpt2 => {
                let Some((index, layer, kind)) = block else {
                    let theirs = match ours {
                        "embedding.weight" => "transformer.wte.weight",
                        "position.weight" => "transformer.wpe.weight",
                        "norm.weight" => "transformer.ln_f.weight",
                        "norm.bias" => "transformer.ln_f.bias",
                        "head.weight" => "lm_head.weight",
                        other => other,
                    };
                    return vec![piece(theirs.to_owned(), None, false)];
                };
                let theirs = match layer {
                    "norm1" => "ln_1",
                    "attention.qkv" => "attn.c_attn",
                    "attention.out" => "attn.c_proj",
                    "norm2" => "ln_2",
                    "feed_forward.up" => "mlp.c_fc",
                    "feed_forward.down" => "mlp.c_proj",
                    other => other,
                };
                let transposed = kind == "weight" && !layer.starts_with("norm");
                vec![piece(format!("transformer.h.{index}.{theirs}.{kind}"), None, transposed)]
            }
            Self::Llama => {
                let Some((index, layer, kind)) = block else {
                    let theirs = match ours {
                        "embedding.weight" => "model.embed_tokens.weight",
                        "norm.weight" => "model.norm.weight",
                        "head.weight" => "lm_head.weight",
                        other => other,
                    };
                    return vec![piece(theirs.to_owned(), None, false)];
                };
                let at = |theirs: &str| format!("model.layers.{index}.{theirs}.{kind}");
                let queries = config.heads * config.head_width();
                let keys = config.kv_heads() * config.head_width();
                let wide = config.feed_forward_width();
                match layer {
                    "norm1" => vec![piece(at("input_layernorm"), None, false)],
                    "norm2" => vec![piece(at("post_attention_layernorm"), None, false)],
                    "attention.qkv" => vec![
                        piece(at("self_attn.q_proj"), Some(0..queries), false),
                        piece(at("self_attn.k_proj"), Some(queries..queries + keys), false),
                        piece(
                            at("self_attn.v_proj"),
                            Some(queries + keys..queries + 2 * keys),
                            false,
                        ),
                    ],
                    "attention.out" => vec![piece(at("self_attn.o_proj"), None, false)],
                    "feed_forward.up" => vec![
                        piece(at("mlp.gate_proj"), Some(0..wide), false),
                        piece(at("mlp.up_proj"), Some(wide..2 * wide), false),
                    ],
                    "feed_forward.down" => vec![piece(at("mlp.down_proj"), None, false)],
                    other => vec![piece(at(other), None, false)],
                }
            }
        }
    }
}

/// `activation_function` of GPT-2 for a kind of ours.
pub(crate) fn gpt2_activation(kind: FeedForwardKind) -> Option<&'static str> {
    match kind {
        FeedForwardKind::GeluTanh => Some("gelu_new"),
        FeedForwardKind::Gelu => Some("gelu"),
        FeedForwardKind::Relu => Some("relu"),
        FeedForwardKind::Silu => Some("silu"),
        FeedForwardKind::SquaredRelu => Some("relu2"),
        _ => None,
    }
}

/// The kind of ours for an `activation_function` of GPT-2.
pub(crate) fn gpt2_kind(activation: &str) -> Option<FeedForwardKind> {
    match activation {
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Some(FeedForwardKind::GeluTanh),
        "gelu" => Some(FeedForwardKind::Gelu),
        "relu" => Some(FeedForwardKind::Relu),
        "silu" | "swish" => Some(FeedForwardKind::Silu),
        "relu2" => Some(FeedForwardKind::SquaredRelu),
        _ => None,
    }
}
