use hearken::nn::config::{BiasConfig, Combine, DecoderConfig, PositionConfig, StackConfig};
use hearken::nn::{cache::CacheKind, config::ModelConfig};
use hearken::tasks::rehearsal;
use hearken::train::TrainConfig;

fn main() {
    let gpt2 = |kv_heads| -> ModelConfig {
        let position = PositionConfig::Learned { combine: Combine::Add };
        let sizes = StackConfig::new(12, 768, 12); // layers, width, heads
        let stack = StackConfig { bias: BiasConfig::ALL, position, kv_heads, ..sizes };
        DecoderConfig { vocabulary: 50257, context: 1024, tied: true, stack }.into()
    };
    let cache = |model: &ModelConfig| rehearsal::cache_bytes(model, 1024, CacheKind::F32).unwrap();
    let cost = rehearsal::cost(&gpt2(None), &TrainConfig::default(), 1024).unwrap();
    assert_eq!(cost.parameters(), 124_439_808);
    assert_eq!(cache(&gpt2(None)), Some(75_497_472));
    println!("grouped: {:?} bytes", cache(&gpt2(Some(4)))); // a third
    assert_eq!(cache(&gpt2(Some(4))), Some(75_497_472 / 3));
}
