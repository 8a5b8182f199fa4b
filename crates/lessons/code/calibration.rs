use hearken::infer::calibration::{Binning, bins, expected_error, fit_temperature, judge};

fn main() {
    // Always 98 % sure (logits 4 and 0), and right three times out of four.
    let answers: Vec<usize> = (0..400).map(|i| usize::from(i % 4 == 0)).collect();
    let judge_all = |t: f64| answers.iter().map(move |right| judge(&[4.0, 0.0], *right, t));
    let error = |t: f64| {
        let predictions: Vec<_> = judge_all(t).map(|(prediction, _)| prediction).collect();
        expected_error(&bins(&predictions, 10, Binning::EqualWidth))
    };
    let temperature = fit_temperature(|t| judge_all(t).map(|(_, loss)| loss).sum());
    println!("T = {temperature:.2}: {:.3} before, {:.3} after", error(1.0), error(temperature));
    assert!(error(1.0) > 0.2 && error(temperature) < 0.01);
}
