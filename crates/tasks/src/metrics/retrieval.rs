//! Search: is the right text among the k nearest?

/// The cosine of the angle between two vectors; 0 if one of them has no length.
pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    };
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths == 0.0 { 0.0 } else { dot(a, b) / lengths }
}

/// Of queries (N, C), the share whose own text, that of the same number among `texts` (N, C), is one
/// of the `k` nearest by cosine. A text that is exactly as near as the right one counts as nearer
/// if it comes first, so that vectors which are all the same find nothing but by their order.
pub fn recall_at(k: usize, queries: &[f32], texts: &[f32], width: usize) -> f64 {
    assert_eq!(queries.len(), texts.len(), "queries and texts that do not pair up");
    let rows = queries.len() / width.max(1);
    let unit = |all: &[f32]| -> Vec<f32> {
        let scaled = all.chunks_exact(width.max(1)).flat_map(|row| {
            let length = cosine_length(row);
            row.iter().map(move |x| (f64::from(*x) / length) as f32)
        });
        scaled.collect()
    };
    let (queries, texts) = (unit(queries), unit(texts));
    let dot = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
    let row = |all: &[f32], i: usize| all[i * width..(i + 1) * width].to_vec();
    let found = (0..rows).filter(|&i| {
        let query = row(&queries, i);
        let own = dot(&query, &row(&texts, i));
        let nearer = texts.chunks_exact(width).enumerate().filter(|(j, text)| {
            let other = dot(&query, text);
            *j != i && (other > own || (other == own && *j < i))
        });
        nearer.take(k).count() < k
    });
    found.count() as f64 / rows.max(1) as f64
}

/// The length of a vector, 1 if it has none.
fn cosine_length(row: &[f32]) -> f64 {
    let square: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    if square > 0.0 { square.sqrt() } else { 1.0 }
}
