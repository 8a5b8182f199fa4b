//! A part held out, with the same share of every class.
//!
//! Within each class the rows are ordered by a hash of the seed and their texts, and the first of
//! them are held out. So the split depends on the seed and the texts alone, not on the order of
//! the rows, and copies of a text are adjacent in that order: at most one group of copies per
//! class can be cut.

use super::{Answer, Dataset, Row};
use crate::digest::Digest;
use std::collections::BTreeMap;

/// Rows to learn from and rows to be judged by, as indices into [`Dataset::rows`], in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Learned from.
    pub train: Vec<usize>,
    /// Held out.
    pub validation: Vec<usize>,
}

impl Dataset {
    /// Holds out a share of the rows, the same of every class, rounded; at least one row of each
    /// class stays to be learned from.
    pub fn split(&self, share: f64, seed: u64) -> Split {
        let mut classes: BTreeMap<Option<u32>, Vec<(u64, usize)>> = BTreeMap::new();
        for (index, row) in self.rows.iter().enumerate() {
            let class = match row.answer {
                Answer::Class(class) => Some(class),
                _ => None,
            };
            classes.entry(class).or_default().push((hash(row, seed), index));
        }
        let mut split = Split { train: Vec::new(), validation: Vec::new() };
        for mut rows in classes.into_values() {
            rows.sort_unstable();
            let held = (share * rows.len() as f64).round() as usize;
            let held = held.min(rows.len().saturating_sub(1));
            let (validation, train) = rows.split_at(held);
            split.validation.extend(validation.iter().map(|(_, index)| index));
            split.train.extend(train.iter().map(|(_, index)| index));
        }
        split.train.sort_unstable();
        split.validation.sort_unstable();
        split
    }

    /// A weight for each class that makes all classes count alike: n / (classes · rows of the
    /// class), so that the mean weight of a row is 1. A class without rows has the weight 0.
    pub fn class_weights(&self, rows: &[usize]) -> Vec<f32> {
        let mut counts = vec![0_u64; self.labels.len()];
        for row in rows.iter().filter_map(|index| self.rows.get(*index)) {
            if let Answer::Class(class) = row.answer
                && let Some(count) = counts.get_mut(class as usize)
            {
                *count += 1;
            }
        }
        let present = counts.iter().filter(|count| **count > 0).count().max(1);
        let all = counts.iter().sum::<u64>() as f64;
        let weight = |count: &u64| match count {
            0 => 0.0,
            count => (all / (present as f64 * *count as f64)) as f32,
        };
        counts.iter().map(weight).collect()
    }
}

fn hash(row: &Row, seed: u64) -> u64 {
    let mut digest = Digest::default();
    digest.update(&seed.to_le_bytes());
    digest.update(row.text.as_bytes());
    if let Some(second) = &row.second {
        digest.update(&[0xff]); // in no text
        digest.update(second.as_bytes());
    }
    digest.value()
}
