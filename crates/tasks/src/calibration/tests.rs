use super::*;
use hearken_infer::calibration::Prediction;

/// Logits whose softmax is the truth, times `sharpness`, with classes drawn from the truth.
fn answers(n: usize, sharpness: f32) -> Vec<(Vec<f32>, usize)> {
    let mut rng = Rng::new(7);
    let mut draw = || {
        let logits: Vec<f32> = (0..5).map(|_| 1.5 * rng.normal_one() as f32).collect();
        let sum: f64 = logits.iter().map(|z| f64::from(*z).exp()).sum();
        let mut at = rng.unit() * sum;
        let right = logits.iter().position(|z| {
            at -= f64::from(*z).exp();
            at < 0.0
        });
        (logits.iter().map(|z| sharpness * z).collect(), right.unwrap_or(4))
    };
    (0..n).map(|_| draw()).collect()
}

fn calibrated(data: &[(Vec<f32>, usize)], bins: usize, saved: Option<f64>) -> Calibration {
    calibrate(data.len(), 100, bins, saved, |chunk, answers| {
        for i in chunk {
            answers(&data[*i].0, data[*i].1);
        }
        Ok(())
    })
    .unwrap()
}

/// The definition of the expected calibration error, with plain loops over bins of equal width.
fn reference(data: &[(Vec<f32>, usize)], count: usize) -> f64 {
    let predictions: Vec<Prediction> =
        data.iter().skip(1).step_by(2).map(|(z, right)| judge(z, *right, 1.0).0).collect();
    let mut total = 0.0;
    for m in 0..count {
        let (low, high) = (m as f64 / count as f64, (m + 1) as f64 / count as f64);
        let inside = predictions.iter().filter(|p| p.confidence > low && p.confidence <= high);
        let inside: Vec<&Prediction> = inside.collect();
        let right = inside.iter().filter(|p| p.is_right).count() as f64;
        let sure: f64 = inside.iter().map(|p| p.confidence).sum();
        total += (right - sure).abs();
    }
    total / predictions.len() as f64
}

#[test]
fn an_overconfident_model_is_mended_on_answers_that_did_not_fit_it() {
    let data = answers(8000, 3.0);
    let found = calibrated(&data, 15, Some(2.0));
    assert_eq!((found.fitted_on, found.judged_on), (4000, 4000));
    assert!((found.after.temperature - 3.0).abs() < 0.15, "{}", found.after.temperature);
    assert!((found.before.ece - reference(&data, 15)).abs() < 1e-12);
    assert!(found.after.ece < found.before.ece / 2.0);
    assert!(found.after.ece_equal_mass < found.before.ece_equal_mass / 2.0);
    assert!(found.after.loss < found.before.loss);
    assert_eq!(found.after.accuracy, found.before.accuracy);
    let saved = found.saved.as_ref().unwrap();
    assert!(saved.ece < found.before.ece && saved.ece > found.after.ece);
    // Orange lies below the diagonal: less often right than sure.
    let svg = found.chart().svg();
    assert!(svg.contains("before: T = 1.000") && svg.contains("stroke-dasharray"));
}

#[test]
fn an_honest_model_keeps_its_temperature() {
    let found = calibrated(&answers(8000, 1.0), 10, None);
    assert!((found.after.temperature - 1.0).abs() < 0.06, "{}", found.after.temperature);
    assert!(found.saved.is_none() && found.before.ece < 0.03);
    assert_eq!(found.before.bins.len(), 10);
}

#[test]
fn a_sample_is_kept_of_too_many() {
    // Rows so wide that only five have room; of the first ten each may be among them.
    let width = MOST_LOGITS / 5;
    let mut kept = Kept::default();
    let row = vec![0.0; width];
    (0..10).for_each(|right| kept.add(&row, right));
    assert_eq!((kept.seen, kept.rights.len(), kept.logits.len()), (10, 5, 5 * width));
    assert!(kept.rights.iter().any(|right| *right >= 5), "{:?}", kept.rights);
}

#[test]
fn too_little_is_refused() {
    let nothing = |_: &[usize], _: &mut Answers<'_>| Ok(());
    assert!(calibrate(0, 8, 15, None, nothing).is_err());
    assert!(calibrate(4, 8, 0, None, nothing).is_err());
    let one = calibrate(1, 8, 15, None, |_, answers| {
        answers(&[0.0, 1.0], 0);
        Ok(())
    });
    assert!(one.unwrap_err().to_string().contains("too few"));
}

#[test]
fn a_temperature_is_kept_with_its_model() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Saved::read(folder.path()).unwrap(), None);
    let saved = calibrated(&answers(400, 2.0), 15, None).to_save();
    saved.write(folder.path()).unwrap();
    assert_eq!(Saved::read(folder.path()).unwrap(), Some(saved));
    for bad in ["{}", "{\"temperature\": 0}", "{\"temperature\": 1e9}", "nonsense", "[1]"] {
        std::fs::write(folder.path().join(FILE), bad).unwrap();
        let error = Saved::read(folder.path()).unwrap_err();
        assert!(error.to_string().contains(FILE), "{bad}: {error}");
    }
}
