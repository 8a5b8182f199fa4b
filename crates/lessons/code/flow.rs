use hearken::tensor::{Tensor, Var};

fn main() {
    let exact = 3.0 * (-2.0f32).exp(); // x(1) of dx/dt = −2x, x(0) = 3
    let mut errors = Vec::new();
    for steps in [40, 80] {
        let mut x = 3.0;
        for _ in 0..steps {
            let here = Var::leaf(Tensor::scalar(x));
            (&here * &here).backward();
            x -= here.gradient().unwrap().item() / steps as f32;
        }
        errors.push((x - exact).abs());
    }
    assert!((errors[0] / errors[1] - 2.0).abs() < 0.1); // half the step, half the error
}
