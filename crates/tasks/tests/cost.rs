//! The cost of a dry pass against what real steps take from the pool: in a file of its own, since the
//! pool is the process's.

use hearken_kernels::threads::with_threads;
use hearken_nn::cache::CacheKind;
use hearken_nn::config::{CellKind, DropoutConfig, ExpertsConfig, ModelConfig, RecurrentConfig};
use hearken_nn::models;
use hearken_nn::scope::Weights;
use hearken_nn::slot::Feed;
use hearken_nn::{presets, variants};
use hearken_tasks::rehearsal;
use hearken_tensor::pool;
use hearken_train::cost::short_run;
use hearken_train::ema::EmaConfig;
use hearken_train::{OptimizerConfig, Precision, Stepper, TrainConfig};

const TOKENS: usize = 64;

fn training() -> TrainConfig {
    TrainConfig { batch_size: 3, ..TrainConfig::default() }
}

fn optimizer(text: &str) -> OptimizerConfig {
    hearken_base::settings::Settings::parse(text, "test").unwrap().read().unwrap()
}

/// The most that was in use, and all that was ever taken from the system, in a short run.
fn measure(model: &ModelConfig, train: &TrainConfig) -> (u64, u64) {
    pool::release();
    let before = pool::usage();
    pool::reset_peak();
    let mut task = rehearsal::task(model, train, TOKENS).unwrap();
    let mut stepper = Stepper::new(train, task.parameters());
    short_run(&mut stepper, &mut *task, train).unwrap();
    let after = pool::usage();
    ((after.peak - before.in_use) as u64, (after.in_use + after.kept - before.in_use) as u64)
}

/// In use and reserved: planned over measured.
fn ratios(model: &ModelConfig, train: &TrainConfig) -> [f64; 2] {
    let planned = rehearsal::cost(model, train, TOKENS).unwrap().memory;
    let (in_use, reserved) = measure(model, train);
    [planned.in_use as f64 / in_use as f64, planned.tensors() as f64 / reserved as f64]
}

fn compare(name: &str, model: &ModelConfig, train: &TrainConfig) {
    let [in_use, reserved] = ratios(model, train);
    // Exact but for tensors below a page, which are not in the arena's books. A plan has even experts;
    // real ones have as many rows together, and the largest has more than its share.
    let routed = matches!(model, ModelConfig::Decoder(config) if config.stack.experts.is_some());
    // Of these tiny ones up to 0.12 of what is reserved (bf16, recomputed).
    let bounds = if routed { [0.15, 0.15] } else { [0.03, 0.01] };
    assert!((in_use - 1.0).abs() < bounds[0], "{name}: in use, planned {in_use} of the measured");
    assert!((reserved - 1.0).abs() < bounds[1], "{name}: reserved, planned {reserved} of that");
}

fn bench_config(name: &str) -> ModelConfig {
    let path = format!("{}/../../configs/bench/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let line = |line: &str| if line.starts_with("layers") { "layers = 2" } else { line }.to_owned();
    let text: Vec<String> = text.lines().map(line).collect();
    presets::model_of(&text.join("\n"), name).unwrap()
}

/// Every variant that writes.
fn language_models() -> Vec<(String, ModelConfig)> {
    let decoders = variants::all().into_iter().map(|(name, config)| (name, config.into()));
    decoders.chain(variants::without_attention()).collect()
}

/// Every way to train that changes what is held.
fn ways() -> Vec<(&'static str, TrainConfig)> {
    let with = |change: fn(&mut TrainConfig)| {
        let mut train = training();
        change(&mut train);
        train
    };
    vec![
        ("AdamW", training()),
        ("SGD", with(|t| t.optimizer = optimizer("kind = \"sgd\""))),
        ("momentum", with(|t| t.optimizer = optimizer("kind = \"sgd\"\nmomentum = 0.9"))),
        ("Lion", with(|t| t.optimizer = optimizer("kind = \"lion\""))),
        ("Muon", with(|t| t.optimizer = optimizer("kind = \"muon\""))),
        ("averages", with(|t| t.ema = Some(EmaConfig { decay: 0.9 }))),
        ("bf16", with(|t| t.precision = Precision::Bf16)),
        (
            "f16, recomputed",
            with(|t| {
                t.precision = Precision::F16;
                t.gradient_checkpointing = true;
            }),
        ),
        ("recomputed", with(|t| t.gradient_checkpointing = true)),
        ("accumulated", with(|t| t.accumulate = 3)),
    ]
}

/// One test, so that nothing else uses the pool meanwhile.
#[test]
fn the_plan_comes_true() {
    with_threads(1, || {
        let mid = bench_config("mid");
        for (way, train) in ways() {
            compare(&format!("mid, {way}"), &mid, &train);
        }
        for (name, mut config) in variants::all() {
            // Wide enough that the loss and the like do not show.
            (config.stack.width, config.stack.head_width, config.context) = (96, None, TOKENS);
            let plain = ModelConfig::from(config.clone());
            compare(&name, &plain, &training());
            let both = TrainConfig {
                precision: Precision::Bf16,
                gradient_checkpointing: true,
                ..training()
            };
            compare(&format!("{name}, bf16, recomputed"), &plain, &both);
            config.stack.dropout = DropoutConfig::everywhere(0.1);
            compare(&format!("{name}, dropout"), &config.into(), &training());
        }
        for (name, mut config) in variants::without_attention() {
            config.set_context(TOKENS);
            match &mut config {
                ModelConfig::Recurrent(config) => (config.width, config.dropout) = (96, 0.1),
                ModelConfig::Convolution(config) => (config.width, config.dropout) = (96, 0.1),
                _ => panic!("{name} has attention"),
            }
            compare(&name, &config, &training());
        }
    });
    // A vocabulary that is larger than everything else: the peak is in the head.
    let small = bench_config("small");
    let mut wide = small.clone();
    wide.set_vocabulary(5000);
    with_threads(1, || compare("large vocabulary", &wide, &training()));
    // Parts need not be at their peaks at the same moment, and who comes first to the pool is left
    // to chance: the plan is what they may take.
    let parts = TrainConfig { batch_size: 12, parallel_parts: 2, ..TrainConfig::default() };
    for (name, config) in [("small", &small), ("large vocabulary", &wide)] {
        // Tried until both have run at the same time, of which a busy machine may need a few.
        let enough = (0..50).any(|_| {
            let [in_use, reserved] = with_threads(2, || ratios(config, &parts));
            // What is in use is bounded. How it lies in the arena is not: two threads that ask in turns
            // leave gaps that one alone would not, now and then (0.948 and 0.916 were seen in dozens).
            assert!(in_use > 0.95, "{name} in parts: in use, planned {in_use} of the measured");
            assert!(reserved > 0.85, "{name} in parts: reserved, planned {reserved} of that");
            in_use.max(reserved) < 1.25
        });
        assert!(enough, "{name} in parts: planned more than a quarter too much");
    }
}

#[test]
fn parameters_of_gpt2_and_gpt3_are_those_of_the_papers() {
    for (name, want) in [
        ("gpt2-small", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("gpt3-175b", 174_604_259_328),
    ] {
        let config = presets::model_of(presets::find(name).unwrap(), name).unwrap();
        let train = TrainConfig { batch_size: 1, ..TrainConfig::default() };
        let cost = rehearsal::cost(&config, &train, config.context()).unwrap();
        assert_eq!(cost.parameters(), want, "{name}");
        assert_eq!(cost.memory.parameters, 4 * want, "{name}");
    }
}

/// 2 operations per weight and token forward and 4 backward, but for tables, biases and norms; attention
/// 4·T·H·D per layer and token forward, 8 backward.
#[test]
fn operations_are_those_of_the_formulas() {
    let config = presets::model_of(presets::find("gpt2-small").unwrap(), "gpt2-small").unwrap();
    let (layers, width, vocabulary, tokens) = (12.0, 768.0, 50257.0, 512);
    let products = 2.0 * (12.0 * layers * width * width + vocabulary * width);
    let attention = 4.0 * layers * tokens as f64 * width;
    for checkpointing in [false, true] {
        for (precision, parallel_parts) in
            [(Precision::F32, 1), (Precision::Bf16, 1), (Precision::F32, 2)]
        {
            let train = TrainConfig {
                batch_size: 2,
                gradient_checkpointing: checkpointing,
                precision,
                parallel_parts,
                ..TrainConfig::default()
            };
            let cost = rehearsal::cost(&config, &train, tokens).unwrap();
            assert_eq!(cost.forward.products, products);
            assert_eq!(cost.forward.attention, attention);
            assert_eq!(cost.training.products, 3.0 * products);
            assert_eq!(cost.training.attention, 3.0 * attention);
            assert_eq!(cost.tokens, 2 * tokens);
            // Checkpointing computes the blocks again, and not the head.
            let again = cost.step / cost.tokens as f64 - 3.0 * (products + attention);
            let blocks = products - 2.0 * vocabulary * width + attention;
            assert_eq!(again, if checkpointing { blocks } else { 0.0 });
        }
    }
}

/// Recurrent layers have 2 operations per weight and token forward as any other.
#[test]
fn operations_of_recurrent_layers_are_those_of_their_weights() {
    for (cell, gates) in [(CellKind::Rnn, 1.0), (CellKind::Gru, 3.0), (CellKind::Lstm, 4.0)] {
        let config = RecurrentConfig::new(cell, 32, 3, 64);
        let config = ModelConfig::from(RecurrentConfig { vocabulary: 50, ..config });
        let cost = rehearsal::cost(&config, &training(), 32).unwrap();
        let products = 2.0 * (3.0 * gates * 2.0 * 64.0 * 64.0 + 50.0 * 64.0);
        assert_eq!((cost.forward.products, cost.forward.attention), (products, 0.0), "{cell:?}");
        assert_eq!(cost.training.products, 3.0 * products, "{cell:?}");
    }
}

/// Layers that multiply in a way of their own are counted, too: every variant, three times forward.
#[test]
fn every_variant_is_counted() {
    for (name, config) in language_models() {
        let selects = config.stack().is_some_and(|stack| stack.softmax.top.is_some());
        let cost = rehearsal::cost(&config, &training(), config.context()).unwrap();
        let (forward, training) = (cost.forward.all(), cost.training.all());
        let times = training / forward;
        // Random features do not learn, so they have one product backward and not two; the keys that
        // queries keep are found once, forward; reversible layers are computed twice, always.
        let fits = if selects || name.starts_with("performer") {
            (2.0..3.0).contains(&times)
        } else if name.starts_with("reversible") {
            (3.0..4.0).contains(&times)
        } else {
            (times - 3.0).abs() < 1e-9
        };
        assert!(forward > 0.0 && fits, "{name}: {times}, {cost:?}");
    }
}

/// Two experts of half the width cost what one whole layer does, however many there are; and the
/// router, C·E for each token and layer.
#[test]
fn experts_that_are_not_chosen_cost_nothing() {
    let with = |experts: Option<usize>, wide: usize| {
        let mut config = variants::base();
        (config.context, config.stack.width) = (TOKENS, 48);
        config.stack.feed_forward.width = Some(wide);
        config.stack.experts = experts.map(ExpertsConfig::new);
        rehearsal::cost(&config.into(), &training(), TOKENS).unwrap()
    };
    let dense = with(None, 64);
    for count in [2, 4, 8] {
        let experts = with(Some(count), 32);
        let router = (2 * 2 * 48 * count) as f64;
        assert_eq!(experts.forward.products, dense.forward.products + router, "{count} experts");
        assert_eq!(experts.training.products, 3.0 * experts.forward.products);
        assert!(experts.parameters() > dense.parameters());
    }
}

/// Reversible layers keep what one layer needs, however many there are.
#[test]
fn activations_of_reversible_layers_do_not_grow_with_depth() {
    let activations = |layers, reversible| {
        let mut config = variants::base();
        (config.context, config.stack.width, config.stack.layers) = (256, 128, layers);
        config.stack.reversible = reversible;
        // So many tokens that activations are most of the memory, and gaps in it do not count.
        let train = TrainConfig { batch_size: 64, ..TrainConfig::default() };
        rehearsal::cost(&config.into(), &train, 256).unwrap().memory.activations as f64
    };
    let (shallow, deep) = (activations(6, true), activations(24, true));
    println!("activations of 6 and 24 reversible layers: {shallow} and {deep}");
    assert!((0.8..1.2).contains(&(deep / shallow)), "{deep} and {shallow}");
    assert!(activations(24, false) > 2.5 * activations(6, false));
}

#[test]
fn absurd_sizes_are_refused() {
    let config = presets::model_of(presets::find("gpt2-small").unwrap(), "gpt2-small").unwrap();
    for batch_size in [usize::MAX, 1 << 20] {
        let train = TrainConfig { batch_size, ..TrainConfig::default() };
        let error = rehearsal::cost(&config, &train, 1024).unwrap_err().to_string();
        assert!(error.contains("tokens at the same time") && error.contains("hint: "), "{error}");
    }
}

#[test]
fn the_cache_takes_what_is_planned() {
    for (name, config) in language_models() {
        let model = models::build(&config, Weights::Drawn { seed: 1 });
        let model = model.generates().unwrap();
        for kind in [CacheKind::F32, CacheKind::F16, CacheKind::Int8] {
            let mut slot = model.slot(kind);
            model.step(&mut [Feed { ids: &[1; 17], slot: &mut slot }]);
            let planned = rehearsal::cache_bytes(&config, 17, kind).unwrap();
            assert_eq!(Some(slot.bytes() as u64), planned, "{name}, {kind:?}");
        }
    }
}
