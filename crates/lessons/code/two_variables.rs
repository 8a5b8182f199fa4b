use hearken::tensor::{Tensor, Var};

fn main() {
    let steepness = Var::constant(Tensor::new([2], &[1.0, 10.0])); // x² + 10y²
    let mut p = [3.0, 1.0];
    for _ in 0..20 {
        let here = Var::leaf(Tensor::new([2], &p));
        (&(&here * &here) * &steepness).sum().backward();
        let slope = here.gradient().unwrap();
        p = [p[0] - 0.09 * slope.data()[0], p[1] - 0.09 * slope.data()[1]];
    }
    println!("{p:?}");
    assert!(p[0].abs() < 0.1 && p[1].abs() < 0.1);
}
