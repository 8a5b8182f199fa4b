//! Classes: how many are right, which are taken for which, and F1.

use super::{f1, share};

/// How often each class was taken for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confusion {
    classes: usize,
    /// (right, said)
    counts: Vec<usize>,
}

/// How good the answers are that concern one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassScore {
    /// Of those that were called so, this share is right.
    pub precision: f64,
    /// Of those that are so, this share was found.
    pub recall: f64,
    /// The harmonic mean of both.
    pub f1: f64,
    /// How many are so.
    pub count: usize,
}

impl Confusion {
    /// Of so many classes, nothing counted.
    pub fn new(classes: usize) -> Self {
        Self { classes, counts: vec![0; classes * classes] }
    }

    /// Counts an answer. Panics if there is no such class.
    pub fn add(&mut self, right: usize, said: usize) {
        assert!(right < self.classes && said < self.classes, "{right} {said} of {}", self.classes);
        self.counts[right * self.classes + said] += 1;
    }

    /// How often the class `right` was called `said`.
    pub fn count(&self, right: usize, said: usize) -> usize {
        self.counts[right * self.classes + said]
    }

    /// How many classes there are.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// How many answers there are.
    pub fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// The share of right answers.
    pub fn accuracy(&self) -> f64 {
        let right = (0..self.classes).map(|class| self.count(class, class)).sum();
        share(right, self.total())
    }

    /// What an answer that is always the most frequent class would reach.
    pub fn majority(&self) -> f64 {
        let most = (0..self.classes).map(|class| self.score(class).count).max();
        share(most.unwrap_or(0), self.total())
    }

    /// One class.
    pub fn score(&self, class: usize) -> ClassScore {
        let both = self.count(class, class);
        let count = (0..self.classes).map(|said| self.count(class, said)).sum();
        let said = (0..self.classes).map(|right| self.count(right, class)).sum();
        ClassScore {
            precision: share(both, said),
            recall: share(both, count),
            f1: f1(both, count, said),
            count,
        }
    }

    /// The mean F1 of all classes, each counting alike.
    pub fn macro_f1(&self) -> f64 {
        let sum: f64 = (0..self.classes).map(|class| self.score(class).f1).sum();
        sum / self.classes.max(1) as f64
    }
}

/// Of rows in which any number of `classes` classes apply, (rows, classes) each: the share of rows
/// that are wholly right, the mean F1 of the classes, and the F1 of all answers together.
pub fn several_scores(right: &[bool], said: &[bool], classes: usize) -> (f64, f64, f64) {
    assert_eq!(right.len(), said.len(), "answers that do not pair up");
    let width = classes.max(1);
    let rows = right.chunks(width).zip(said.chunks(width));
    let whole = rows.clone().filter(|(right, said)| right == said).count();
    let mut counts = vec![[0_usize; 3]; classes]; // both, right, said
    for (right, said) in rows.clone() {
        for ((count, right), said) in counts.iter_mut().zip(right).zip(said) {
            count[0] += usize::from(*right && *said);
            count[1] += usize::from(*right);
            count[2] += usize::from(*said);
        }
    }
    let of = |[both, right, said]: [usize; 3]| f1(both, right, said);
    let mean = counts.iter().map(|count| of(*count)).sum::<f64>() / width as f64;
    let all = counts.iter().fold([0; 3], |sum, count| [0, 1, 2].map(|i| sum[i] + count[i]));
    (share(whole, rows.len()), mean, of(all))
}
