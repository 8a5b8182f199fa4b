use hearken::tensor::{Param, Role, Tensor};
use hearken::train::norms::{clip_factor, gradient_squares};

fn main() {
    let p = Param::new("p", Role::Hidden, Tensor::zeros([2]));
    p.set_gradient(Some(Tensor::new([2], &[30.0, -40.0])));
    let norm = gradient_squares(&[p], 1.0).iter().sum::<f64>().sqrt();
    let factor = clip_factor(norm, 5.0);
    println!("norm {norm}, factor {factor}");
    assert_eq!((norm, factor), (50.0, 0.1));
    assert_eq!(clip_factor(3.0, 5.0), 1.0); // short enough: left alone
}
