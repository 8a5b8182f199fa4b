fn main() {
    let scores = [1.0f32, 3.0, 2.0, 5.0, 0.0, 4.0];
    let values = [2.0f32, -1.0, 0.5, 1.0, 3.0, -2.0];
    let (mut max, mut sum, mut out) = (f32::NEG_INFINITY, 0.0, 0.0);
    for (score, value) in scores.iter().zip(values) {
        let new = max.max(*score);
        let (repair, weight) = ((max - new).exp(), (score - new).exp());
        (max, sum, out) = (new, sum * repair + weight, out * repair + weight * value);
    }
    let total: f32 = scores.iter().map(|s| s.exp()).sum();
    let plain: f32 = scores.iter().zip(values).map(|(s, v)| s.exp() / total * v).sum();
    println!("{} {plain}", out / sum);
    assert!((out / sum - plain).abs() < 1e-6);
}
