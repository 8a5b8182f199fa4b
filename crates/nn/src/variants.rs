//! A small model of every kind: what tests of training, generation and files run over, so that a
//! new variant is tested everywhere once it is listed here.

use crate::config::{
    AttentionConfig, Combine, DecoderConfig, DropoutConfig, FeedForwardConfig, FeedForwardKind,
    InitConfig, NormConfig, NormKind, Placement, PositionConfig, RopeScaling,
};

/// The smallest sensible decoder: 2 layers of width 16, 4 heads, 13 tokens.
pub fn base() -> DecoderConfig {
    DecoderConfig {
        vocabulary: 13,
        context: 24,
        layers: 2,
        width: 16,
        heads: 4,
        kv_heads: None,
        head_width: None,
        norm: NormConfig::default(),
        position: PositionConfig::default(),
        feed_forward: FeedForwardConfig::default(),
        attention: AttentionConfig::default(),
        bias: true,
        tied: true,
        residual_scale: 1.0,
        dropout: DropoutConfig::default(),
        // Larger than usual, so that attention is far from uniform and errors show.
        init: InitConfig { deviation: 0.3, scale_residual: false, ..InitConfig::default() },
    }
}

/// Every way of knowing the position.
pub fn positions() -> Vec<(&'static str, PositionConfig)> {
    let rope = |scaling| PositionConfig::Rope { base: 100.0, share: 1.0, scaling };
    let beside = Combine::Concatenate { width: 6 };
    vec![
        ("no position", PositionConfig::None {}),
        ("learned", PositionConfig::Learned { combine: Combine::Add }),
        ("learned beside", PositionConfig::Learned { combine: beside }),
        ("sinusoidal", PositionConfig::Sinusoidal { combine: Combine::Add }),
        ("sinusoidal beside", PositionConfig::Sinusoidal { combine: beside }),
        ("rope", rope(RopeScaling::None)),
        (
            "rope of half",
            PositionConfig::Rope { base: 100.0, share: 0.5, scaling: RopeScaling::None },
        ),
        ("rope linear", rope(RopeScaling::Linear { factor: 2.0 })),
        ("rope ntk", rope(RopeScaling::Ntk { factor: 2.0 })),
        (
            "rope yarn",
            rope(RopeScaling::Yarn {
                factor: 2.0,
                original_context: 12,
                beta_fast: 4.0,
                beta_slow: 1.0,
            }),
        ),
        (
            "rope llama3",
            rope(RopeScaling::Llama3 {
                factor: 2.0,
                original_context: 12,
                low_frequency_factor: 1.0,
                high_frequency_factor: 4.0,
            }),
        ),
        ("alibi", PositionConfig::Alibi {}),
        ("t5", PositionConfig::T5 { buckets: 6, max_distance: 10 }),
        ("relative", PositionConfig::Relative { max_distance: 5 }),
    ]
}

/// Every pattern of attention.
pub fn attentions() -> Vec<(&'static str, AttentionConfig)> {
    vec![
        ("full", AttentionConfig::Full {}),
        ("window", AttentionConfig::Window { size: 5 }),
        ("sparse", AttentionConfig::Sparse { window: 3, stride: 4, global: 2 }),
        ("global", AttentionConfig::Sparse { window: 3, stride: 0, global: 1 }),
    ]
}

/// All combinations of position and pattern, and one of everything else.
pub fn all() -> Vec<(String, DecoderConfig)> {
    let mut all = Vec::new();
    for (position_name, position) in positions() {
        for (attention_name, attention) in attentions() {
            let tied = !position_name.ends_with("beside");
            let config = DecoderConfig { position: position.clone(), attention, tied, ..base() };
            all.push((format!("{position_name}, {attention_name}"), config));
        }
    }
    for kind in [
        FeedForwardKind::Relu,
        FeedForwardKind::SquaredRelu,
        FeedForwardKind::Gelu,
        FeedForwardKind::GeluTanh,
        FeedForwardKind::Silu,
        FeedForwardKind::Swiglu,
        FeedForwardKind::Geglu,
        FeedForwardKind::GegluTanh,
    ] {
        let feed_forward = FeedForwardConfig { kind, width: None };
        all.push((format!("{kind:?}"), DecoderConfig { feed_forward, ..base() }));
    }
    for kind in [NormKind::Layer, NormKind::Rms] {
        for placement in [Placement::Pre, Placement::Post] {
            let norm = NormConfig { kind, placement, eps: 1e-5 };
            all.push((format!("{kind:?} {placement:?}"), DecoderConfig { norm, ..base() }));
        }
    }
    let rope = PositionConfig::Rope { base: 100.0, share: 1.0, scaling: RopeScaling::None };
    let others = [
        ("grouped heads", DecoderConfig { kv_heads: Some(2), position: rope.clone(), ..base() }),
        ("one key head", DecoderConfig { kv_heads: Some(1), ..base() }),
        ("wide heads", DecoderConfig { head_width: Some(6), kv_heads: Some(2), ..base() }),
        ("no bias", DecoderConfig { bias: false, ..base() }),
        ("own head", DecoderConfig { tied: false, ..base() }),
        ("scaled residuals", DecoderConfig { residual_scale: 0.5, ..base() }),
        (
            "llama",
            DecoderConfig {
                norm: NormConfig { kind: NormKind::Rms, ..NormConfig::default() },
                position: rope,
                feed_forward: FeedForwardConfig { kind: FeedForwardKind::Swiglu, width: Some(20) },
                kv_heads: Some(2),
                bias: false,
                tied: false,
                ..base()
            },
        ),
    ];
    all.extend(others.map(|(name, config)| (name.to_owned(), config)));
    all
}
