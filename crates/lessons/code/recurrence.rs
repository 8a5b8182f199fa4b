use hearken::tensor::{Tensor, Var};

fn main() {
    for w in [0.9f32, 1.1] {
        let start = Var::leaf(Tensor::scalar(1.0));
        let mut h = start.clone();
        for _ in 0..20 {
            h = &h * w; // a linear recurrent network: every Jacobian is w
        }
        h.backward();
        let felt = start.gradient().unwrap().item();
        println!("w = {w}: ∂h₂₀/∂h₀ = {felt:.4}");
        assert!((felt / w.powi(20) - 1.0).abs() < 1e-4);
    }
}
