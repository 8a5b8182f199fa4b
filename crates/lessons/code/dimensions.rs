use hearken::tensor::rng::Rng;

fn main() {
    for d in [10, 1000] {
        let mut rng = Rng::new(1);
        let cosine = |_| {
            let (u, v) = (rng.normal([d], 1.0), rng.normal([d], 1.0));
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            let lengths = (dot(u.data(), u.data()) * dot(v.data(), v.data())).sqrt();
            dot(u.data(), v.data()) / lengths
        };
        let cosines: Vec<f32> = (0..500).map(cosine).collect();
        let deviation = (cosines.iter().map(|c| c * c).sum::<f32>() / 500.0).sqrt();
        println!("d = {d}: deviation {deviation:.3}, 1/√d {:.3}", 1.0 / (d as f32).sqrt());
        assert!((deviation * (d as f32).sqrt() - 1.0).abs() < 0.15);
    }
}
