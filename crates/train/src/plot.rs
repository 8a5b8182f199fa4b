//! The curves of a run, as [`hearken_show::chart`] draws them.

use crate::evaluation::Metric;
use crate::metrics::{Row, final_training_loss};
use std::fmt::Write as _;

pub use hearken_show::chart::{Chart, Level, Mark, Series};
pub use hearken_show::number::thousands;
pub use hearken_show::svg::{BLUE as TRAIN, GREEN as FLOOR, ORANGE as VALIDATION, escape};

/// `loss.svg`: training and validation loss, against the floor if one is known.
pub fn loss_chart(rows: &[Row], floor: Option<f64>) -> Chart {
    let points = |y: fn(&Row) -> Option<f64>| -> Vec<(f64, f64)> {
        rows.iter().filter_map(|row| Some((row.step as f64, y(row)?))).collect()
    };
    let train = points(|row| row.train_loss);
    let validation = points(|row| row.value(Metric::LOSS));
    let mut chart = Chart::new("Loss", "step", "loss");
    // On an even axis, a loss that falls so far lies flat on its floor for most of the run.
    let losses = || train.iter().map(|p| p.1).chain(floor);
    let (least, most) = (losses().fold(f64::MAX, f64::min), losses().fold(0.0, f64::max));
    chart.logarithmic = least > 0.0 && most > 8.0 * least;
    let at_the_end = final_training_loss(rows);
    let name = at_the_end.map_or("training".to_owned(), |(_, loss)| format!("training {loss:.4}"));
    chart.series.push(Series { name, color: TRAIN, points: train, mark: Mark::Line });
    if let Some(last) = validation.last() {
        let best = validation.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(*last);
        let mut name = format!("validation {:.4}", last.1);
        if best.0 != last.0 {
            let _ = write!(name, " (best {:.4} at step {})", best.1, thousands(best.0));
        }
        chart.series.push(Series { name, color: VALIDATION, points: validation, mark: Mark::Dots });
    }
    chart.levels.extend(floor.map(|y| Level { name: format!("entropy of the text {y:.4}"), y }));
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_that_falls_far_is_drawn_over_a_logarithmic_axis() {
        let row = |step, loss| Row {
            step,
            train_loss: Some(loss),
            validation: Vec::new(),
            lr: 0.0,
            grad_norm: None,
            tokens_per_second: 0.0,
            elapsed_seconds: 0.0,
        };
        let rows = [row(1, 4.0), row(2, 0.6)];
        assert!(!loss_chart(&rows, None).logarithmic);
        assert!(loss_chart(&rows, Some(0.1)).logarithmic);
        assert!(!loss_chart(&rows, Some(0.0)).logarithmic);
        assert!(!loss_chart(&[], None).logarithmic);
    }
}
