//! Numbers: how far off they are, and whether they are in the right order.

/// mean |said − right|; 0 of nothing.
pub fn mean_absolute_error(said: &[f64], right: &[f64]) -> f64 {
    mean(said, right, f64::abs)
}

/// √ mean (said − right)²; 0 of nothing.
pub fn root_mean_squared_error(said: &[f64], right: &[f64]) -> f64 {
    mean(said, right, |difference| difference * difference).sqrt()
}

fn mean(said: &[f64], right: &[f64], of: fn(f64) -> f64) -> f64 {
    assert_eq!(said.len(), right.len(), "numbers that do not pair up");
    let sum: f64 = said.iter().zip(right).map(|(said, right)| of(said - right)).sum();
    sum / said.len().max(1) as f64
}

/// Spearman's rank correlation: Pearson's of the ranks, equal numbers sharing the mean of theirs.
/// NaN if one side is constant.
pub fn spearman(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "numbers that do not pair up");
    let (a, b) = (ranks(a), ranks(b));
    let mean = f64::midpoint(a.len() as f64, 1.0);
    let (mut products, mut squares_a, mut squares_b) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(&b) {
        products += (a - mean) * (b - mean);
        squares_a += (a - mean) * (a - mean);
        squares_b += (b - mean) * (b - mean);
    }
    products / (squares_a * squares_b).sqrt()
}

/// The rank of each number, from 1.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    let mut ranks = vec![0.0; numbers.len()];
    let mut first = 0;
    for group in order.chunk_by(|&a, &b| numbers[a] == numbers[b]) {
        let mean = first as f64 + f64::midpoint(group.len() as f64, 1.0);
        for &place in group {
            ranks[place] = mean;
        }
        first += group.len();
    }
    ranks
}
