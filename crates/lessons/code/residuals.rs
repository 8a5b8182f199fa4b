use hearken::tensor::ops::matmul::matmul;
use hearken::tensor::{Tensor, Var};

fn main() {
    let turn = Var::constant(Tensor::new([2, 2], &[0.0, 1.0, -1.0, 0.0])); // dh/dt = h·A
    for layers in [4, 64] {
        let mut h = Var::constant(Tensor::new([1, 2], &[1.0, 0.0]));
        for _ in 0..layers {
            h = &h + matmul(&h, &turn) * (1.0 / layers as f32); // h + F(h)
        }
        println!("{layers} layers: {:?}", h.value().data());
        let error = (h.value().data()[0] - 1f32.cos()).abs();
        assert!(error < 0.8 / layers as f32);
    }
}
