use hearken::tensor::ops::{reshape::reshape, transpose::transpose};
use hearken::tensor::{Tensor, Var};

fn main() {
    let pixels: Vec<f32> = (0..224 * 224 * 3).map(|i| i as f32).collect();
    // 14 rows of patches, 16 rows of pixels, 14 patches beside each other, 16 pixels of 3 colours.
    let image = Var::constant(Tensor::new([14, 16, 14, 48], &pixels));
    let patches = reshape(transpose(&image, 1, 2), [196, 768]);
    println!("{:?}", patches.shape());
    assert_eq!(patches.value().data()[768], 48.0); // the second begins 16 pixels to the right
    assert_eq!(patches.value().data()[14 * 768], 16.0 * 224.0 * 3.0); // the second row of patches
}
