//! Constraints on the tokens that a model writes, whatever its logits say.
//!
//! A directory of `transformers` states them in `generation_config.json`. Marian's, for instance, never
//! write the padding token, which is trained as a target nowhere and may have any logit.

/// What a model must write and what it must not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraints {
    /// Sequences of tokens that are never written (`bad_words_ids`).
    pub bad_words: Vec<Vec<u32>>,
    /// Tokens that are never written (`suppress_tokens`).
    pub suppressed: Vec<u32>,
    /// Tokens that are never written first (`begin_suppress_tokens`).
    pub suppressed_first: Vec<u32>,
    /// The first token that is written after a single one, such as that which begins targets
    /// (`forced_bos_token_id`).
    pub first: Option<u32>,
    /// The last token of a text that reaches its limit is one of these, if there are any
    /// (`forced_eos_token_id`).
    pub last: Vec<u32>,
}

/// Where a token is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// All tokens before it, the prompt included.
    pub tokens: &'a [u32],
    /// How many of these were written, and are not of the prompt.
    pub written: usize,
    /// The most tokens that are written.
    pub most: usize,
}

/// Which tokens are allowed at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// All but these.
    AllBut(Vec<u32>),
    /// One of these, with certainty.
    Only(Vec<u32>),
}

impl Constraints {
    /// Is everything allowed everywhere?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Which tokens are allowed at this place.
    pub fn allowed(&self, place: Place<'_>) -> Allowed {
        if place.tokens.len() == 1
            && let Some(first) = self.first
        {
            return Allowed::Only(vec![first]);
        }
        if !self.last.is_empty() && place.written + 1 == place.most {
            return Allowed::Only(self.last.clone());
        }
        let mut not = self.suppressed.clone();
        // A token that is forced to be first was not chosen: the one after it is.
        let forced = usize::from(self.first.is_some() && place.tokens.len() == 1 + place.written);
        if place.written == forced {
            not.extend(&self.suppressed_first);
        }
        for word in &self.bad_words {
            if let Some((last, before)) = word.split_last()
                && place.tokens.ends_with(before)
            {
                not.push(*last);
            }
        }
        Allowed::AllBut(not)
    }

    /// Logits, or their logarithmic probabilities, with −∞ for what is not allowed at this place.
    pub fn apply<T: Copy + From<f32>>(&self, place: Place<'_>, scores: &mut [T]) {
        if !self.is_empty() {
            self.allowed(place).mask(scores);
        }
    }
}

impl Allowed {
    /// Sets what is not allowed to −∞, and what must come to 0.
    fn mask<T: Copy + From<f32>>(&self, scores: &mut [T]) {
        let (ids, value) = match self {
            Self::AllBut(ids) => (ids, f32::NEG_INFINITY),
            Self::Only(ids) => {
                scores.fill(f32::NEG_INFINITY.into());
                (ids, 0.0)
            }
        };
        for id in ids {
            if let Some(score) = scores.get_mut(*id as usize) {
                *score = value.into();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tokens: &[u32], written: usize) -> Place<'_> {
        Place { tokens, written, most: 5 }
    }

    #[test]
    fn a_bad_word_is_forbidden_where_it_would_be_completed() {
        let constraints =
            Constraints { bad_words: vec![vec![7], vec![1, 2, 3]], ..Constraints::default() };
        let forbidden = |tokens: &[u32]| constraints.allowed(at(tokens, 0));
        assert_eq!(forbidden(&[0, 1]), Allowed::AllBut(vec![7]));
        assert_eq!(forbidden(&[0, 1, 2]), Allowed::AllBut(vec![7, 3]));
        assert_eq!(forbidden(&[2]), Allowed::AllBut(vec![7]), "a text shorter than the word");
        let mut scores = [1.0_f32, 2.0];
        constraints.apply(at(&[0, 1], 0), &mut scores);
        assert_eq!(scores, [1.0, 2.0], "a token that the model does not have");
    }

    #[test]
    fn first_and_last_tokens_are_forced() {
        let constraints = Constraints {
            first: Some(2),
            last: vec![0, 1],
            suppressed: vec![3],
            suppressed_first: vec![4],
            ..Constraints::default()
        };
        assert_eq!(constraints.allowed(at(&[9], 0)), Allowed::Only(vec![2]));
        assert_eq!(constraints.allowed(at(&[9, 2], 1)), Allowed::AllBut(vec![3, 4]));
        assert_eq!(constraints.allowed(at(&[9, 2, 5], 2)), Allowed::AllBut(vec![3]));
        assert_eq!(constraints.allowed(at(&[9, 2, 5, 5, 5], 4)), Allowed::Only(vec![0, 1]));
        // After a longer prompt nothing is forced to be first.
        assert_eq!(constraints.allowed(at(&[9, 9], 0)), Allowed::AllBut(vec![3, 4]));
        let mut scores = [1.0_f64, 2.0, 3.0];
        constraints.apply(at(&[9], 0), &mut scores);
        assert_eq!(scores, [f64::NEG_INFINITY, f64::NEG_INFINITY, 0.0]);
    }
}
