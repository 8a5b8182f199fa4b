//! Which expert computes which token.

use hearken_kernels::dry;
use hearken_kernels::routing::{self, NOWHERE};

/// The choices of N tokens, `top` experts each, and which of them are computed.
///
/// Choices are taken in a fixed order: the first choices of all tokens, from the first token on, then
/// the second ones. An expert that is full drops those that come later. Within an expert, tokens are
/// in this order, too. So the same scores give the same routes on any number of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    top: usize,
    /// The expert of each choice, (N, k).
    chosen: Vec<u32>,
    /// Its row among those of the expert, or [`NOWHERE`]: (N, k).
    places: Vec<u32>,
    /// For each expert the choices that it computes, as places in `chosen`.
    assigned: Vec<Vec<u32>>,
    /// For each expert, how many tokens have chosen it, dropped ones included.
    wanted: Vec<usize>,
    /// Tokens that are no padding.
    tokens: usize,
}

impl Routes {
    /// Each token goes to the `top` experts with its largest `scores` (N, E); of equal ones, to the
    /// first. Tokens that are not `real` go nowhere; all are, if there is nothing to say which. With
    /// a capacity, an expert computes at most capacity · k · tokens / E of them, rounded up.
    ///
    /// In a [dry pass](dry) there are no scores: tokens are spread evenly.
    pub fn new(
        scores: &[f32],
        experts: usize,
        top: usize,
        real: Option<&[bool]>,
        capacity: Option<f32>,
    ) -> Self {
        let rows = scores.len() / experts.max(1);
        assert_eq!(rows * experts, scores.len(), "scores are no rows of {experts}");
        let mut chosen = vec![0; rows * top];
        if dry::is_on() {
            chosen.iter_mut().enumerate().for_each(|(i, e)| *e = (i % experts) as u32);
        } else {
            routing::choose(scores, experts, top, &mut chosen);
        }
        let is_real = |n: usize| real.is_none_or(|real| real[n]);
        let tokens = (0..rows).filter(|n| is_real(*n)).count();
        let even = (top * tokens) as f64 / experts.max(1) as f64;
        let most =
            capacity.map_or(usize::MAX, |capacity| (f64::from(capacity) * even).ceil() as usize);
        let mut routes = Self {
            top,
            places: vec![NOWHERE; chosen.len()],
            assigned: vec![Vec::new(); experts],
            wanted: vec![0; experts],
            chosen,
            tokens,
        };
        for choice in 0..top {
            for i in (0..rows).filter(|n| is_real(*n)).map(|n| n * top + choice) {
                routes.take(i, most);
            }
        }
        routes
    }

    /// Gives choice `i` to its expert, unless that has `most` already.
    fn take(&mut self, i: usize, most: usize) {
        let expert = self.chosen[i] as usize;
        self.wanted[expert] += 1;
        let own = &mut self.assigned[expert];
        if own.len() < most {
            self.places[i] = own.len() as u32;
            own.push(i as u32);
        }
    }

    /// N, padding included.
    pub fn rows(&self) -> usize {
        self.chosen.len() / self.top.max(1)
    }

    /// k
    pub fn top(&self) -> usize {
        self.top
    }

    /// E
    pub fn experts(&self) -> usize {
        self.assigned.len()
    }

    /// The expert of each choice, (N, k).
    pub fn chosen(&self) -> &[u32] {
        &self.chosen
    }

    /// The row of each choice among those of its expert, or [`NOWHERE`]: (N, k).
    pub fn places(&self) -> &[u32] {
        &self.places
    }

    /// The choices that an expert computes, in the order of its rows.
    pub fn assigned(&self, expert: usize) -> &[u32] {
        &self.assigned[expert]
    }

    /// The tokens that an expert computes, in the order of its rows.
    pub fn tokens_of(&self, expert: usize) -> Vec<u32> {
        self.assigned[expert].iter().map(|choice| choice / self.top as u32).collect()
    }

    /// The share of all choices that each expert has, dropped ones included: they sum to 1.
    pub fn shares(&self) -> Vec<f32> {
        let all = (self.top * self.tokens).max(1) as f32;
        self.wanted.iter().map(|wanted| *wanted as f32 / all).collect()
    }

    /// How many choices were dropped because experts were full.
    pub fn dropped(&self) -> usize {
        self.top * self.tokens - self.assigned.iter().map(Vec::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four tokens that like the experts in the order 0, 1, 2, and one the other way round.
    const SCORES: [f32; 15] =
        [0.5, 0.3, 0.2, 0.5, 0.3, 0.2, 0.2, 0.3, 0.5, 0.5, 0.3, 0.2, 0.5, 0.3, 0.2];

    #[test]
    fn tokens_are_grouped_by_expert_in_order() {
        let routes = Routes::new(&SCORES, 3, 2, None, None);
        assert_eq!(routes.chosen(), [0, 1, 0, 1, 2, 1, 0, 1, 0, 1]);
        assert_eq!(routes.tokens_of(0), [0, 1, 3, 4]);
        assert_eq!(routes.tokens_of(1), [0, 1, 2, 3, 4]);
        assert_eq!(routes.tokens_of(2), [2]);
        assert_eq!(routes.shares(), [0.4, 0.5, 0.1]);
        assert_eq!((routes.rows(), routes.dropped()), (5, 0));
    }

    #[test]
    fn a_full_expert_drops_later_tokens_and_second_choices_first() {
        // 0.75 · 2 · 5 / 3 = 2.5: three tokens each.
        let routes = Routes::new(&SCORES, 3, 2, None, Some(0.75));
        assert_eq!(routes.tokens_of(0), [0, 1, 3]);
        assert_eq!(routes.tokens_of(1), [0, 1, 2]);
        assert_eq!(routes.places()[8..], [NOWHERE; 2]);
        assert_eq!(routes.dropped(), 3);
        assert_eq!(routes.shares(), [0.4, 0.5, 0.1]);
    }

    #[test]
    fn padding_goes_nowhere_and_is_not_counted() {
        let real = [true, false, true, false, false];
        let routes = Routes::new(&SCORES, 3, 1, Some(&real), None);
        assert_eq!((routes.tokens_of(0), routes.tokens_of(2)), (vec![0], vec![2]));
        assert_eq!(routes.shares(), [0.5, 0.0, 0.5]);
    }

    #[test]
    fn a_dry_pass_spreads_tokens_evenly() {
        let routes = dry::Dry::new().run(|| Routes::new(&[0.0; 24], 4, 2, None, None)).unwrap();
        assert!((0..4).all(|e| routes.assigned(e).len() == 3));
        assert!((0..6).all(|n| routes.chosen()[2 * n] != routes.chosen()[2 * n + 1]));
    }
}
