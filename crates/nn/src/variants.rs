//! A small model of every kind: what tests of training, generation and files run over, so that a
//! new variant is tested everywhere once it is listed here.

use crate::config::{
    AttentionConfig, BiasConfig, CellKind, Combine, ConvolutionConfig, Cross, DecoderConfig,
    EncoderConfig, EncoderDecoderConfig, EncoderSizes, ExpertsConfig, FeatureMap,
    FeedForwardConfig, FeedForwardKind, HeadConfig, InitConfig, MechanismConfig, ModelConfig,
    NormConfig, NormKind, Placement, PoolerConfig, Pooling, PositionConfig, RecurrentConfig,
    RecurrentSeq2seqConfig, RopeScaling, Shared, SineOrder, SoftmaxConfig, SourceAttention,
    StackConfig,
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
    let sinusoidal = |combine, order| PositionConfig::Sinusoidal { combine, order };
    let beside = Combine::Concatenate { width: 6 };
    vec![
        ("no position", PositionConfig::None {}),
        ("learned", PositionConfig::Learned { combine: Combine::Add }),
        ("learned beside", PositionConfig::Learned { combine: beside }),
        ("sinusoidal", sinusoidal(Combine::Add, SineOrder::Pairs)),
        ("sinusoidal beside", sinusoidal(beside, SineOrder::Halves)),
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

/// Every mechanism of attention, with a position that it can be had with.
pub fn mechanisms() -> Vec<(&'static str, MechanismConfig, PositionConfig)> {
    let learned = PositionConfig::Learned { combine: Combine::Add };
    let rope = PositionConfig::Rope { base: 100.0, share: 1.0, scaling: RopeScaling::None };
    let linear = |map| MechanismConfig::Linear { map };
    let performer = MechanismConfig::Performer { features: 12, redraw: 0 };
    vec![
        ("linear", linear(FeatureMap::Elu), learned.clone()),
        ("linear squared relu", linear(FeatureMap::SquaredRelu), PositionConfig::None {}),
        ("performer", performer, learned.clone()),
        ("performer rope", performer, rope),
        (
            "performer redrawn",
            MechanismConfig::Performer { features: 9, redraw: 2 },
            PositionConfig::Sinusoidal { combine: Combine::Add, order: SineOrder::Pairs },
        ),
        (
            "lsh",
            MechanismConfig::Lsh { chunk: 4, buckets: 4, rounds: 2, redraw: 0 },
            learned.clone(),
        ),
        (
            "lsh by length",
            MechanismConfig::Lsh { chunk: 2, buckets: 0, rounds: 1, redraw: 0 },
            learned,
        ),
    ]
}

/// Makes differences of a loss mean something, and says whether there are kinks left: of ReLU, and
/// where features are all 0 and so is the normaliser. A hash jumps; with all of `tokens` in one chunk
/// it does not matter. (Chunks are proven by the operation, with its buckets held fixed.)
pub fn prepare_for_differences(stack: &mut StackConfig, tokens: usize) -> bool {
    if let MechanismConfig::Lsh { chunk, .. } = &mut stack.mechanism {
        *chunk = tokens;
    }
    stack.feed_forward.kind == FeedForwardKind::Relu
        || stack.mechanism == MechanismConfig::Linear { map: FeatureMap::SquaredRelu }
}

/// Decoders that attend in other ways than by softmax, or whose layers are reversible.
fn efficient() -> Vec<(&'static str, DecoderConfig)> {
    let mut found: Vec<(&str, DecoderConfig)> = mechanisms()
        .into_iter()
        .map(|(name, mechanism, position)| {
            (name, with(|stack| (stack.mechanism, stack.position) = (mechanism, position)))
        })
        .collect();
    let linear = MechanismConfig::Linear { map: FeatureMap::Elu };
    found.extend([
        (
            "linear grouped heads",
            with(|stack| {
                (stack.mechanism, stack.kv_heads, stack.value_width) = (linear, Some(2), Some(7));
            }),
        ),
        ("reversible", with(|stack| stack.reversible = true)),
        (
            "reversible linear",
            with(|stack| {
                (stack.reversible, stack.mechanism, stack.residual_scale) = (true, linear, 0.5);
            }),
        ),
    ]);
    found
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
    let named = [others(), mixtures(), mixings()].concat().into_iter().chain(efficient());
    all.extend(named.map(|(name, config)| (name.to_owned(), config)));
    all
}

/// Does a small change of a number change which expert, or which key, is chosen? Then neither caches
/// that round nor differences over long steps say anything.
pub fn chooses(stack: &StackConfig) -> bool {
    stack.chooses() && !matches!(stack.mechanism, MechanismConfig::Lsh { .. })
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
        ("unscaled scores", with(|stack| stack.scaled_scores = false)),
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
    let mut linformer = encoder();
    linformer.stack.mechanism = MechanismConfig::Linformer { rank: 5 };
    found.push(("linformer".to_owned(), linformer.clone()));
    linformer.stack.kv_heads = Some(2);
    found.push(("linformer grouped heads".to_owned(), linformer));
    found.push(("bert, own head".to_owned(), EncoderConfig { tied: false, ..encoder() }));
    let plain = HeadConfig::Tokens { transform: false };
    let own_plain = EncoderConfig { tied: false, head: plain, ..modern_encoder() };
    found.push(("modern, own plain head".to_owned(), own_plain));
    found.push(("five types".to_owned(), EncoderConfig { types: 5, ..encoder() }));
    found.push(("no types".to_owned(), EncoderConfig { types: 0, ..encoder() }));
    found
}

/// Small language models without attention: every cell, and convolutions.
pub fn without_attention() -> Vec<(String, ModelConfig)> {
    let init = InitConfig { scale_residual: false, deviation: 0.3, ..InitConfig::default() };
    let mut found = Vec::new();
    for cell in [CellKind::Rnn, CellKind::Gru, CellKind::Lstm] {
        let config = RecurrentConfig::new(cell, 24, 2, 9);
        let config = RecurrentConfig { vocabulary: 13, init, ..config };
        let own = RecurrentConfig { tied: false, layers: 1, width: 17, ..config.clone() };
        found.push((cell.title().to_owned(), config.into()));
        found.push((format!("{}, own head", cell.title()), own.into()));
    }
    let config = ConvolutionConfig::new(24, 3, 10, 3);
    let config = ConvolutionConfig { vocabulary: 13, init, ..config };
    let gelu = ConvolutionConfig {
        activation: FeedForwardKind::Gelu,
        kernel: 2,
        cycle: Some(2),
        tied: false,
        norm: NormConfig { kind: NormKind::Rms, ..config.norm },
        ..config.clone()
    };
    found.push(("convolution".to_owned(), config.into()));
    found.push(("convolution, GELU".to_owned(), gelu.into()));
    found
}

/// The smallest sensible encoder-decoder, in the shape of Vaswani et al. 2017: post-norm, sines, one
/// embedding for everything.
pub fn encoder_decoder() -> EncoderDecoderConfig {
    let mut stack = base().stack;
    stack.norm.placement = Placement::Post;
    stack.feed_forward.kind = FeedForwardKind::Relu;
    stack.position = PositionConfig::Sinusoidal { combine: Combine::Add, order: SineOrder::Halves };
    let config = EncoderDecoderConfig::new(24, stack);
    EncoderDecoderConfig { vocabulary: 13, scaled_embeddings: true, logits_bias: true, ..config }
}

/// [`encoder_decoder`] in T5's shape: RMSNorm before, buckets of distances, plain scores, a head of its
/// own, gated.
pub fn t5() -> EncoderDecoderConfig {
    let mut stack = base().stack;
    stack.norm = NormConfig::rms();
    stack.position = PositionConfig::T5 { buckets: 6, max_distance: 10 };
    stack.feed_forward = FeedForwardConfig { kind: FeedForwardKind::GegluTanh, width: Some(20) };
    stack.head_width = Some(6);
    stack.scaled_scores = false;
    stack.bias = BiasConfig::NONE;
    stack.init.query_key_scale = 0.5;
    EncoderDecoderConfig { vocabulary: 13, tied: false, ..EncoderDecoderConfig::new(24, stack) }
}

/// [`t5`] as its first version: a tied head of scaled hidden states, ReLU.
pub fn t5_first() -> EncoderDecoderConfig {
    let mut config = EncoderDecoderConfig { tied: true, scaled_logits: true, ..t5() };
    config.stack.feed_forward.kind = FeedForwardKind::Relu;
    config
}

/// Every third stack of [`all`] in an encoder-decoder, and one of everything around the stacks.
pub fn encoder_decoders() -> Vec<(String, EncoderDecoderConfig)> {
    let mut found = vec![
        ("vaswani".to_owned(), encoder_decoder()),
        ("t5".to_owned(), t5()),
        ("first t5".to_owned(), t5_first()),
    ];
    let mut smooth = encoder_decoder();
    smooth.stack.feed_forward.kind = FeedForwardKind::Gelu;
    let vaswani = || smooth.clone();
    let sizes = |layers, heads, feed_forward_width| EncoderSizes {
        layers: Some(layers),
        heads: Some(heads),
        feed_forward_width: Some(feed_forward_width),
    };
    for (name, config) in [
        ("own embeddings", EncoderDecoderConfig { shared: false, ..vaswani() }),
        (
            "own embeddings and head",
            EncoderDecoderConfig { shared: false, tied: false, ..vaswani() },
        ),
        ("own head, t5", EncoderDecoderConfig { logits_bias: true, ..t5() }),
        ("post-norm, layer by layer", EncoderDecoderConfig { cross: Cross::Layers, ..vaswani() }),
        ("pre-norm, layer by layer", EncoderDecoderConfig { cross: Cross::Layers, ..t5() }),
        (
            "top keys, also of the source",
            EncoderDecoderConfig {
                stack: StackConfig {
                    softmax: SoftmaxConfig { top: Some(2), temperature: 1.0 },
                    ..vaswani().stack
                },
                ..vaswani()
            },
        ),
        ("three and two layers", EncoderDecoderConfig { encoder: sizes(3, 2, 24), ..vaswani() }),
        ("one and two layers, t5", EncoderDecoderConfig { encoder: sizes(1, 2, 12), ..t5() }),
    ] {
        found.push((name.to_owned(), config));
    }
    // Both stacks attend by softmax, and what is read first is not a prefix.
    let fits =
        |stack: &StackConfig| stack.mechanism.is_softmax() && !stack.reversible && !stack.prefix;
    let fitting = all().into_iter().filter(|(_, config)| fits(&config.stack));
    for (name, DecoderConfig { stack, tied, .. }) in fitting.step_by(3) {
        let config = EncoderDecoderConfig { tied, stack, ..encoder_decoder() };
        found.push((format!("encoder-decoder, {name}"), config));
    }
    found
}

/// Small recurrent encoder-decoders: with a fixed vector and with attention, of different widths.
pub fn recurrent_translators() -> Vec<(String, ModelConfig)> {
    let init = InitConfig { scale_residual: false, deviation: 0.3, ..InitConfig::default() };
    let mut found = Vec::new();
    for cell in [CellKind::Rnn, CellKind::Gru, CellKind::Lstm] {
        for attention in [SourceAttention::None, SourceAttention::Additive] {
            let config = RecurrentSeq2seqConfig::new(cell, 24, 1, 6);
            let config = RecurrentSeq2seqConfig { vocabulary: 13, attention, init, ..config };
            let wide = RecurrentSeq2seqConfig {
                layers: 2,
                encoder_layers: Some(1),
                encoder_width: Some(4),
                attention_width: Some(5),
                tied: false,
                ..config.clone()
            };
            let name = format!("{} {attention:?}", cell.title());
            found.push((format!("{name}, different widths"), wide.into()));
            found.push((name, config.into()));
        }
    }
    found
}
