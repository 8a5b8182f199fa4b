//! Short names for what lessons do all the time.

use hearken_nn::config::ModelConfig;
use hearken_show::number;
use hearken_show::svg::{BLUE, PALETTE};
use hearken_show::{Bar, Bars, Chart, Mark, Series};
use hearken_tasks::rehearsal;
use hearken_tensor::{Tensor, Var, ops};
use hearken_train::{Cost, TrainConfig};

/// A matrix that gets a gradient.
pub(crate) fn matrix<const R: usize, const C: usize>(rows: [[f32; C]; R]) -> Var {
    Var::leaf(Tensor::new([R, C], rows.as_flattened()))
}

/// A row (1, n) that gets a gradient.
pub(crate) fn row(numbers: &[f32]) -> Var {
    Var::leaf(Tensor::new([1, numbers.len()], numbers))
}

/// One number that gets a gradient.
pub(crate) fn scalar(x: f32) -> Var {
    Var::leaf(Tensor::scalar(x))
}

/// The gradient that backward has left. Panics if there is none.
pub(crate) fn gradient(x: &Var) -> Tensor {
    x.gradient().expect("backward has run")
}

/// The numbers of a value.
pub(crate) fn numbers(x: &Var) -> Vec<f64> {
    x.value().data().iter().map(|x| f64::from(*x)).collect()
}

/// softmax(scale·x), by the operation that attention uses.
pub(crate) fn softmax(x: &[f32], scale: f32) -> Vec<f64> {
    numbers(&ops::softmax::softmax(row(x), scale))
}

/// tanh z = 2σ(2z) − 1, where σ(2z) is the first of softmax([2z, 0]): with its gradient.
pub(crate) fn tanh(z: &Var) -> Var {
    let shape = z.shape();
    let flat = ops::reshape::reshape(z.clone(), [shape.len(), 1]);
    let zeros = Var::constant(Tensor::zeros([shape.len(), 1]));
    let pairs = ops::softmax::softmax(ops::concat::concat(&[&flat, &zeros], 1), 2.0);
    let first = ops::slice::slice(&pairs, 1, 0..1);
    let minus = Var::constant(Tensor::full([shape.len(), 1], -1.0));
    ops::reshape::reshape(first * 2.0 + &minus, shape)
}

/// The largest difference between two rows of numbers.
pub(crate) fn difference(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len(), "{} numbers against {}", a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max)
}

/// Mean and variance.
pub(crate) fn moments(numbers: &[f64]) -> (f64, f64) {
    let n = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / n;
    (mean, numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n)
}

/// A number as lessons write it: whole ones with commas, others with four decimals, very large and
/// very small ones with an exponent.
pub(crate) fn digits(x: f64) -> String {
    let size = x.abs();
    let text = if x == x.round() && size < 1e15 {
        number::thousands(x)
    } else if (0.000_999_5..1e5).contains(&size) {
        format!("{x:.4}")
    } else if x.is_finite() {
        format!("{x:.3e}")
    } else {
        format!("{x}").replace("inf", "∞")
    };
    // As the text around it writes it.
    text.replacen('-', if x < 0.0 { "−" } else { "-" }, 1)
}

/// The numbers of a row or matrix as [`digits`]; what only rounding has left of a 0 is written as 0.
pub(crate) fn cells(rows: &[Vec<f64>]) -> Vec<Vec<String>> {
    let finite = rows.iter().flatten().filter(|x| x.is_finite());
    let largest = finite.fold(0.0, |most: f64, x| most.max(x.abs()));
    let cell = |x: &f64| if x.abs() < 1e-6 * largest { "0".to_owned() } else { digits(*x) };
    rows.iter().map(|row| row.iter().map(cell).collect()).collect()
}

/// Numbers in square brackets.
pub(crate) fn list(numbers: &[f64]) -> String {
    format!("[{}]", numbers.iter().map(|x| digits(*x)).collect::<Vec<_>>().join(", "))
}

/// Curves, each with its name, on axes that begin where the points do.
pub(crate) fn chart(
    title: &str,
    x_label: &str,
    y_label: &str,
    curves: Vec<(&str, Vec<(f64, f64)>)>,
) -> Chart {
    let mut chart = Chart::new(title, x_label, y_label);
    chart.size = (560.0, 360.0);
    chart.linear_x = true;
    for (i, (name, points)) in curves.into_iter().enumerate() {
        let mark = match points.len() {
            2 => Mark::Dashes, // what is expected
            ..=24 => Mark::Dots,
            _ => Mark::Line,
        };
        let color = PALETTE[i % PALETTE.len()];
        chart.series.push(Series { name: name.to_owned(), color, points, mark });
    }
    chart
}

/// A bar per number, with the number behind it.
pub(crate) fn bars(title: &str, names: &[&str], lengths: &[f64]) -> Bars {
    let bar = |(name, length): (&&str, &f64)| Bar {
        name: (*name).to_owned(),
        lengths: vec![*length],
        note: digits(*length),
    };
    Bars {
        title: title.to_owned(),
        parts: vec![(String::new(), BLUE)],
        bars: names.iter().zip(lengths).map(bar).collect(),
    }
}

/// `count` numbers from `low` to `high`.
pub(crate) fn span(low: f64, high: f64, count: usize) -> impl Iterator<Item = f64> {
    (0..count).map(move |i| low + (high - low) * i as f64 / (count - 1).max(1) as f64)
}

/// What training a model costs, one sequence of so many tokens at a time, by a dry pass.
pub(crate) fn cost(model: &ModelConfig, tokens: usize) -> Cost {
    let train = TrainConfig { batch_size: 1, ..TrainConfig::default() };
    rehearsal::cost(model, &train, tokens).expect("a valid model")
}
