use hearken::tensor::ops::matmul::matmul_transposed;
use hearken::tensor::{Tensor, Var};

fn main() {
    let words = Var::constant(Tensor::new([2, 3], &[0.8, 0.2, 0.1, 0.7, 0.3, 0.2])); // cat, dog
    let products = matmul_transposed(&words, &words); // all dot products at once
    let [cat_cat, cat_dog, _, dog_dog] = products.value().data() else { unreachable!() };
    let cosine = cat_dog / (cat_cat * dog_dog).sqrt();
    let distance = (cat_cat - 2.0 * cat_dog + dog_dog).sqrt();
    println!("cosine {cosine:.4}, distance {distance:.4}");
    assert!((cosine - 0.9785).abs() < 1e-4 && (distance - 0.1732).abs() < 1e-4);
}
