use hearken::nn::config::{BiasConfig, Combine, DecoderConfig, PositionConfig, StackConfig};
use hearken::nn::{cache::CacheKind, plan::Plan};

fn main() {
    let gpt2 = |kv_heads| {
        let position = PositionConfig::Learned { combine: Combine::Add };
        let sizes = StackConfig::new(12, 768, 12); // layers, width, heads
        let stack = StackConfig { bias: BiasConfig::ALL, position, kv_heads, ..sizes };
        Plan::new(&DecoderConfig { vocabulary: 50257, context: 1024, tied: true, stack }.into())
    };
    assert_eq!(gpt2(None).parameters(), 124_439_808);
    assert_eq!(gpt2(None).cache_bytes(1024, CacheKind::F32), 75_497_472);
    println!("grouped: {} bytes", gpt2(Some(4)).cache_bytes(1024, CacheKind::F32)); // a third
    assert_eq!(gpt2(Some(4)).cache_bytes(1024, CacheKind::F32), 75_497_472 / 3);
}
