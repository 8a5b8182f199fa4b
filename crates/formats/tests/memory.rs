//! Loading takes the memory of the weights and no more, alone in its process: other tests would be
//! counted, too.

use hearken_formats::{SpecialTokens, load_as, save};
use hearken_nn::config::{BiasConfig, DecoderConfig, StackConfig};
use hearken_nn::models::Decoder;
use hearken_tensor::{Role, Storage, pool};

#[test]
fn weights_are_never_in_memory_twice() {
    let stack = StackConfig { bias: BiasConfig::ALL, ..StackConfig::new(3, 192, 3) };
    let config = DecoderConfig { vocabulary: 5000, context: 100, tied: false, stack };
    let model = Decoder::drawn(config, 1);
    let directory = tempfile::tempdir().unwrap();
    pool::reset_peak();
    let before = pool::usage().in_use;
    save(directory.path(), &model, &SpecialTokens::default()).unwrap();
    assert_eq!(pool::usage().peak, before, "saving takes no tensors");
    drop(model);
    for storage in [Storage::F32, Storage::Bf16] {
        pool::reset_peak();
        let before = pool::usage().in_use;
        let loaded = load_as(directory.path(), storage).unwrap();
        let peak = pool::usage().peak - before;
        let size = |role| if storage == Storage::F32 || role == Role::Vector { 4 } else { 2 };
        let parameters = loaded.model.parameters().iter();
        let weights: usize = parameters.map(|p| p.shape().len() * size(p.role())).sum();
        assert_eq!(peak, weights, "{storage:?}");
    }
}
