use hearken::tensor::ops::attention::{Attend, attention_entropy};
use hearken::tensor::rng::Rng;

fn main() {
    let mut rng = Rng::new(1);
    let (q, k) = (rng.normal([1, 64, 256], 1.0), rng.normal([1, 64, 256], 1.0));
    let scaled = attention_entropy(&q, &k, &Attend::new(1)).data()[0]; // q·k/√256
    let raw = attention_entropy(&q, &k, &Attend::new(1).scale(1.0)).data()[0]; // q·k
    println!("entropy over 64 keys: {scaled:.2} nats with √D, {raw:.2} without");
    assert!(scaled > 3.0 && raw < 0.5);
}
