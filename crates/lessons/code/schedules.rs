use hearken::train::ScheduleConfig;

fn main() {
    let cosine = ScheduleConfig::Cosine { warmup: 100, floor: 0.1 };
    for step in [0, 50, 100, 550, 999] {
        println!("step {step}: {:.3} of the learning rate", cosine.factor(step, 1000));
    }
    assert!((cosine.factor(550, 1000) - 0.55).abs() < 1e-9); // the middle
    let noam = ScheduleConfig::InverseSqrt { warmup: 3999 }; // peak at step 4,000
    let peak = (512.0f64 * 4000.0).powf(-0.5) * noam.factor(3999, 100_000);
    assert!((peak - 6.99e-4).abs() < 1e-6);
}
