use hearken::tensor::ops::{layer_norm::layer_norm, transpose::transpose};
use hearken::tensor::{Tensor, Var};

fn main() {
    let norm = |last: f32| {
        let batch = Tensor::new([3, 2], &[1.0, 2.0, 0.0, 4.0, last, 3.0]);
        let batch = Var::constant(batch);
        let layer = layer_norm(&batch, None, None, 1e-5); // over features
        let across = layer_norm(&transpose(&batch, 0, 1), None, None, 1e-5); // over the batch
        (layer.value().data()[0], across.value().data()[0])
    };
    let (before, after) = (norm(2.0), norm(50.0)); // the last token changes
    assert_eq!(before.0, after.0); // LayerNorm of the first does not
    assert!((before.1 - after.1).abs() > 0.1); // BatchNorm's does
}
