use hearken::tensor::{Tensor, Var};

fn main() {
    let mut x = 3.0;
    for step in 0..10 {
        let here = Var::leaf(Tensor::scalar(x));
        (&here * &here).backward(); // f(x) = x²
        let slope = here.gradient().unwrap().item(); // 2x
        println!("step {step}: x = {x:.4}, slope {slope:.4}");
        x -= 0.1 * slope;
    }
    assert!((x - 0.3221).abs() < 1e-4); // 3·0.8¹⁰
}
