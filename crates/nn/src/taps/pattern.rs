//! Names of values with `*` for anything, and the heads of those that have some.

use hearken_base::{Error, Result};
use hearken_tensor::Tensor;
use std::fmt;

/// Which values: a name in which every `*` stands for any text, such as `blocks.*.norm1`. At its end
/// `[2]` chooses a head, and `[*]` each of them by itself; without, values are taken as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    name: String,
    heads: Option<Heads>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heads {
    Each,
    One(usize),
}

impl Pattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |what: &str| {
            Error::new(
                format!("'{text}' is no pattern of names: {what}"),
                "write 'blocks.0.*', or 'blocks.*.attention.weights[2]' for head 2",
            )
        };
        if text.is_empty() {
            return Err(wrong("it is empty"));
        }
        let Some((name, heads)) = text.strip_suffix(']').and_then(|rest| rest.rsplit_once('['))
        else {
            let stray = text.contains(['[', ']']);
            let all = Self { name: text.to_owned(), heads: None };
            return if stray { Err(wrong("a bracket without its other")) } else { Ok(all) };
        };
        let heads = match heads {
            "*" => Heads::Each,
            number => Heads::One(
                number
                    .parse()
                    .map_err(|_| wrong(&format!("'{number}' is not the number of a head")))?,
            ),
        };
        Ok(Self { name: name.to_owned(), heads: Some(heads) })
    }

    /// The values whose gradients it names, if it is one of gradients, `d.…`.
    pub(crate) fn of_gradients(&self) -> Option<Self> {
        let name = self.name.strip_prefix("d.")?.to_owned();
        Some(Self { name, heads: self.heads })
    }

    /// Is this the name of such a value, heads apart?
    pub fn matches(&self, name: &str) -> bool {
        let mut pieces = self.name.split('*');
        let first = pieces.next().unwrap_or_default();
        let Some(mut rest) = name.strip_prefix(first) else { return false };
        let Some(last) = pieces.next_back() else { return rest.is_empty() };
        for piece in pieces {
            match rest.find(piece) {
                Some(at) => rest = &rest[at + piece.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }

    pub(super) fn is_of_heads(&self) -> bool {
        self.heads.is_some()
    }

    /// Does it choose this head?
    pub(super) fn has_head(&self, head: usize) -> bool {
        match self.heads {
            None => false,
            Some(Heads::Each) => true,
            Some(Heads::One(one)) => one == head,
        }
    }

    /// The parts that it chooses of a value with so many heads, or with none.
    pub(super) fn parts(&self, heads: usize) -> impl Iterator<Item = Part> + use<> {
        let whole = self.heads.is_none().then_some(Part::Whole);
        let pattern = self.clone();
        let heads = (0..heads).filter(move |head| pattern.has_head(*head));
        whole.into_iter().chain(heads.map(Part::Head))
    }
}

/// Panics if it is none; see [`Pattern::parse`].
impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        Self::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.heads {
            None => f.write_str(&self.name),
            Some(Heads::Each) => write!(f, "{}[*]", self.name),
            Some(Heads::One(head)) => write!(f, "{}[{head}]", self.name),
        }
    }
}

/// A value, or one head of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    Head(usize),
}

impl Part {
    pub(super) fn name(self, of: &str) -> String {
        match self {
            Self::Whole => of.to_owned(),
            Self::Head(head) => format!("{of}[{head}]"),
        }
    }

    /// Of `x` (B, heads, …) a head (B, …), or all.
    pub(super) fn of(self, x: &Tensor) -> Tensor {
        let Self::Head(head) = self else { return x.clone() };
        let dims = x.shape().dims().to_vec();
        let each: usize = dims[2..].iter().product();
        let own = (0..dims[0]).flat_map(|row| &x.data()[(row * dims[1] + head) * each..][..each]);
        let own: Vec<f32> = own.copied().collect();
        Tensor::new([&dims[..1], &dims[2..]].concat().as_slice(), &own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, want) in [
            ("norm", "norm", true),
            ("norm", "norm1", false),
            ("norm*", "norm", true),
            ("*", "blocks.0.norm1", true),
            ("blocks.0.*", "blocks.0.attention.weights", true),
            ("blocks.1.*", "blocks.10.norm1", false),
            ("blocks.*.attention.weights", "blocks.10.attention.weights", true),
            ("blocks.*.attention.weights", "blocks.1.cross_attention.weights", false),
            ("*.out", "blocks.0.attention.out", true),
            ("*a*a*", "banana", true),
            ("*a*na", "na", false), // the last piece is not the middle one again
            ("blocks.*.weights[3]", "blocks.1.attention.weights", true),
        ] {
            assert_eq!(Pattern::from(pattern).matches(name), want, "{pattern} and {name}");
        }
    }

    #[test]
    fn heads_are_chosen_at_the_end() {
        let parts = |text: &str, heads| Pattern::from(text).parts(heads).collect::<Vec<_>>();
        assert_eq!(parts("a", 3), [Part::Whole]);
        assert_eq!(parts("a", 0), [Part::Whole]);
        assert_eq!(parts("a[1]", 3), [Part::Head(1)]);
        assert_eq!(parts("a[*]", 2), [Part::Head(0), Part::Head(1)]);
        assert_eq!(parts("a[3]", 3), []);
        assert_eq!(parts("a[*]", 0), []);
        for text in ["a", "a*", "a[*]", "a[12]"] {
            assert_eq!(Pattern::from(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for text in ["", "a[", "a]", "a[]", "a[x]", "a[-1]", "a[1", "a[1]b"] {
            let error = Pattern::parse(text).unwrap_err();
            assert!(error.hint().is_some_and(|hint| hint.contains("head 2")), "{text}: {error}");
        }
    }

    #[test]
    fn a_head_is_cut_out_of_every_row_of_the_batch() {
        let x = Tensor::new([2, 3, 2], &(0..12).map(|x| x as f32).collect::<Vec<_>>());
        let head = Part::Head(1).of(&x);
        assert_eq!((head.shape().dims(), head.data()), (&[2, 2][..], &[2., 3., 8., 9.][..]));
    }
}
