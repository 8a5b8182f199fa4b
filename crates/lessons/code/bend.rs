use hearken::tensor::ops::activations::{gelu, relu};
use hearken::tensor::{Tensor, Var};

fn main() {
    for x in [-3.0, -1.0, 0.0, 1.0, 3.0] {
        let here = Var::leaf(Tensor::scalar(x));
        let y = gelu(here.clone());
        y.backward();
        let slope = here.gradient().unwrap().item();
        println!("x = {x}: GELU {:.4}, slope {slope:.4}", y.value().item());
        assert!(y.value().item() <= relu(Var::constant(Tensor::scalar(x))).value().item());
    }
}
