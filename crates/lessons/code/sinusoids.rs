use hearken::tensor::positions::sinusoidal;

fn main() {
    let table = sinusoidal(100, 8); // (positions, width)
    let at = |p: usize| &table.data()[8 * p..8 * (p + 1)];
    let dot = |i, j| at(i).iter().zip(at(j)).map(|(a, b)| a * b).sum::<f32>();
    assert!((dot(3, 10) - dot(50, 57)).abs() < 1e-5); // the distance alone counts
    // A shift by 5 turns the first pair by 5 radians, wherever it is.
    let (sin, cos) = (5f32.sin(), 5f32.cos());
    for p in 0..90 {
        let turned = at(p)[0] * cos + at(p)[1] * sin; // sin(p + 5)
        assert!((turned - at(p + 5)[0]).abs() < 1e-5);
    }
}
