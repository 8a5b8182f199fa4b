//! A small model of every kind: what tests of training, generation and files run over, so that a
//! new variant is tested everywhere once it is listed here.

use crate::config::{
    AttentionConfig, BiasConfig, Combine, DecoderConfig, EncoderConfig, ExpertsConfig,
    FeedForwardConfig, FeedForwardKind, HeadConfig, InitConfig, NormConfig, NormKind, Placement,
    PoolerConfig, Pooling, PositionConfig, RopeScaling, Shared, SoftmaxConfig, StackConfig,
};

/// The smallest sensible decoder: 2 layers of width 16, 4 heads, 13 tokens.
pub fn base() -> DecoderConfig {
    // Larger than usual, so that attention is far from uniform and errors show.
    let init = InitConfig { deviation: 0.3, scale_residual: false, ..InitConfig::default() };
    let stack = StackConfig { bias: BiasConfig::ALL, init, ..StackConfig::new(2, 16, 4) };
    DecoderConfig { vocabulary: 13, context: 24, tied: true, stack }
}

/// [`base`] with other blocks.
fn with(change: impl FnOnce(&mut StackConfig)) -> DecoderConfig {
    let mut config = base();
    change(&mut config.stack);
    config.tied = config.stack.token_width() == config.stack.width;
    config
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
            let config = with(|stack| {
                stack.position = position.clone();
                stack.attention = attention;
            });
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
        all.push((format!("{kind:?}"), with(|stack| stack.feed_forward = feed_forward)));
    }
    for kind in [NormKind::Layer, NormKind::Rms] {
        for placement in [Placement::Pre, Placement::Post] {
            let norm = NormConfig { kind, placement, eps: 1e-5 };
            all.push((format!("{kind:?} {placement:?}"), with(|stack| stack.norm = norm)));
        }
    }
    let others = [others(), mixtures(), mixings()].concat();
    all.extend(others.into_iter().map(|(name, config)| (name.to_owned(), config)));
    all
}

/// Does a small change of a number change which expert, or which key, is chosen? Then neither caches
/// that round nor differences over long steps say anything.
pub fn chooses(stack: &StackConfig) -> bool {
    stack.experts.is_some() || stack.softmax.top.is_some()
}

/// Mixtures of experts.
fn mixtures() -> Vec<(&'static str, DecoderConfig)> {
    let mixtral = with(|stack| {
        stack.norm.kind = NormKind::Rms;
        stack.position =
            PositionConfig::Rope { base: 100.0, share: 1.0, scaling: RopeScaling::None };
        stack.feed_forward = FeedForwardConfig { kind: FeedForwardKind::Swiglu, width: Some(20) };
        stack.kv_heads = Some(2);
        stack.bias = BiasConfig::NONE;
        stack.experts = Some(ExpertsConfig::new(4));
    });
    let experts = |experts| with(|stack| stack.experts = Some(experts));
    let capacity = Some(0.75);
    vec![
        ("mixtral", DecoderConfig { tied: false, ..mixtral }),
        ("plain experts", experts(ExpertsConfig { top: 3, balance: 0.5, ..ExpertsConfig::new(5) })),
        (
            "one expert each",
            experts(ExpertsConfig { normalised: false, top: 1, ..ExpertsConfig::new(3) }),
        ),
        ("full experts", experts(ExpertsConfig { capacity, z_loss: 0.1, ..ExpertsConfig::new(4) })),
    ]
}

/// Other ways of mixing values.
fn mixings() -> Vec<(&'static str, DecoderConfig)> {
    let softmax = |top, temperature| SoftmaxConfig { top, temperature };
    let rope = PositionConfig::Rope { base: 100.0, share: 1.0, scaling: RopeScaling::None };
    let t5 = PositionConfig::T5 { buckets: 6, max_distance: 10 };
    vec![
        ("sharp", with(|stack| stack.softmax = softmax(None, 0.5))),
        (
            "top keys",
            with(|stack| {
                (stack.softmax, stack.kv_heads) = (softmax(Some(3), 1.0), Some(2));
                stack.position = rope.clone();
            }),
        ),
        (
            "sharp top keys, window",
            with(|stack| {
                stack.softmax = softmax(Some(2), 0.7);
                stack.attention = AttentionConfig::Window { size: 5 };
                stack.position = t5;
            }),
        ),
        (
            "queries are keys",
            with(|stack| {
                stack.shared_projections = Shared::QueryKey;
                stack.position = rope.clone();
            }),
        ),
        (
            "keys are values",
            with(|stack| {
                (stack.shared_projections, stack.kv_heads) = (Shared::KeyValue, Some(2));
                stack.position = rope.clone();
            }),
        ),
        ("all the same", with(|stack| stack.shared_projections = Shared::All)),
        ("prefix", with(|stack| stack.prefix = true)),
        (
            "prefix, window",
            with(|stack| {
                (stack.prefix, stack.attention) = (true, AttentionConfig::Window { size: 3 });
            }),
        ),
    ]
}

/// One of everything else.
fn others() -> Vec<(&'static str, DecoderConfig)> {
    let rope = PositionConfig::Rope { base: 100.0, share: 1.0, scaling: RopeScaling::None };
    let llama = with(|stack| {
        stack.norm.kind = NormKind::Rms;
        stack.position = rope.clone();
        stack.feed_forward = FeedForwardConfig { kind: FeedForwardKind::Swiglu, width: Some(20) };
        stack.kv_heads = Some(2);
        stack.bias = BiasConfig::NONE;
    });
    let mut mistral = llama.clone();
    mistral.stack.attention = AttentionConfig::Window { size: 7 };
    let mut qwen = llama.clone();
    qwen.stack.bias.attention_in = true;
    vec![
        ("grouped heads", with(|stack| (stack.kv_heads, stack.position) = (Some(2), rope.clone()))),
        ("one key head", with(|stack| stack.kv_heads = Some(1))),
        ("wide heads", with(|stack| (stack.head_width, stack.kv_heads) = (Some(6), Some(2)))),
        (
            "wide values",
            with(|stack| {
                (stack.value_width, stack.kv_heads) = (Some(7), Some(2));
                stack.position = rope.clone();
            }),
        ),
        ("no bias", with(|stack| stack.bias = BiasConfig::NONE)),
        ("bias of norms", with(|stack| stack.bias = BiasConfig { norm: true, ..BiasConfig::NONE })),
        ("own head", DecoderConfig { tied: false, ..base() }),
        ("scaled residuals", with(|stack| stack.residual_scale = 0.5)),
        ("llama", DecoderConfig { tied: false, ..llama }),
        ("mistral", DecoderConfig { tied: false, ..mistral }),
        ("qwen2", qwen),
    ]
}

/// The smallest sensible encoder, in BERT's shape: post-norm, learned positions, types of tokens, a
/// norm of their sum, and a head that predicts hidden tokens.
pub fn encoder() -> EncoderConfig {
    let mut stack = base().stack;
    stack.norm.placement = Placement::Post;
    EncoderConfig {
        vocabulary: 13,
        context: 24,
        types: 2,
        embedding_norm: true,
        pooler: PoolerConfig::None,
        tied: true,
        stack,
        head: HeadConfig::Tokens { transform: true },
    }
}

/// [`encoder`] as today's are: pre-norm, rotary positions, gated, without types.
pub fn modern_encoder() -> EncoderConfig {
    let mut config = EncoderConfig { types: 0, embedding_norm: false, ..encoder() };
    let rope = PositionConfig::Rope { base: 100.0, share: 1.0, scaling: RopeScaling::None };
    config.stack.position = rope;
    config.stack.norm = NormConfig { kind: NormKind::Rms, placement: Placement::Pre, eps: 1e-5 };
    config.stack.feed_forward = FeedForwardConfig { kind: FeedForwardKind::Geglu, width: Some(20) };
    config.stack.bias = BiasConfig::NONE;
    config
}

fn names_of(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

/// Every head of an encoder.
pub fn heads() -> Vec<(&'static str, HeadConfig)> {
    let labels = || names_of(&["good", "bad", "neither"]);
    let embedding =
        |pooling, normalised| HeadConfig::Embedding { pooling, normalised, most_tokens: Some(20) };
    vec![
        ("no head", HeadConfig::None {}),
        ("tokens", HeadConfig::Tokens { transform: true }),
        ("plain tokens", HeadConfig::Tokens { transform: false }),
        ("classes", HeadConfig::Classes { labels: labels(), several: false }),
        ("several classes", HeadConfig::Classes { labels: labels(), several: true }),
        ("tags", HeadConfig::Tags { labels: names_of(&["O", "B-WHO", "I-WHO"]) }),
        ("spans", HeadConfig::Spans {}),
        ("numbers", HeadConfig::Numbers { outputs: 2 }),
        ("first token", embedding(Pooling::Cls, false)),
        ("mean", embedding(Pooling::Mean, true)),
        ("last token", embedding(Pooling::Last, true)),
    ]
}

/// Every stack of [`all`] as an encoder's, every head on two shapes of encoders, and one of
/// everything else.
pub fn encoders() -> Vec<(String, EncoderConfig)> {
    let mut found = Vec::new();
    for (name, DecoderConfig { stack, tied, .. }) in all() {
        if stack.prefix {
            continue; // all sees all
        }
        found.push((format!("encoder, {name}"), EncoderConfig { tied, stack, ..encoder() }));
    }
    for (name, head) in heads() {
        for (shape, config) in [("bert", encoder()), ("modern", modern_encoder())] {
            for pooler in [PoolerConfig::None, PoolerConfig::Tanh, PoolerConfig::Relu] {
                let pools = matches!(head, HeadConfig::Classes { .. } | HeadConfig::Numbers { .. });
                if pooler == PoolerConfig::None || pools || (head == HeadConfig::None {}) {
                    let name = format!("{shape}, {name}, pooler {pooler:?}");
                    found.push((
                        name,
                        EncoderConfig { head: head.clone(), pooler, ..config.clone() },
                    ));
                }
            }
        }
    }
    found.push(("bert, own head".to_owned(), EncoderConfig { tied: false, ..encoder() }));
    let plain = HeadConfig::Tokens { transform: false };
    let own_plain = EncoderConfig { tied: false, head: plain, ..modern_encoder() };
    found.push(("modern, own plain head".to_owned(), own_plain));
    found.push(("five types".to_owned(), EncoderConfig { types: 5, ..encoder() }));
    found.push(("no types".to_owned(), EncoderConfig { types: 0, ..encoder() }));
    found
}
