//! Where a long text may be cut so that its pieces have the same tokens as the whole.
//!
//! A tokenizer of this crate breaks text by a pattern whose matches never run over the start of
//! a run of white space, and which never looks back: the text may be cut before any white space
//! that follows something else. Published tokenizers have other patterns (some take the line
//! ends that follow a full stop into the same token); in all the common ones a single line end
//! between two other characters ends a match, so the cut is after it.

/// Where a text may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutRule {
    /// Between any two characters.
    Anywhere,
    /// Before white space that follows something else.
    BeforeSpace,
    /// Behind a line end between two characters that are not white space.
    BehindLine,
}

impl CutRule {
    /// The last place in `text` at or before byte `limit` where it may be cut, if there is one
    /// beyond byte 0.
    pub fn last_cut(self, text: &str, limit: usize) -> Option<usize> {
        let limit = text.floor_char_boundary(limit.min(text.len()));
        if self == Self::Anywhere {
            return (limit > 0).then_some(limit);
        }
        // The cut lies between `before` and `after`; the characters are read backwards.
        let mut after = text[limit..].chars().next();
        let mut at = limit;
        for before in text[..limit].chars().rev() {
            if let Some(next) = after {
                let fits = match self {
                    Self::Anywhere => true,
                    Self::BeforeSpace => next.is_whitespace() && !before.is_whitespace(),
                    Self::BehindLine => {
                        let earlier = text[..at - before.len_utf8()].chars().next_back();
                        before == '\n'
                            && !next.is_whitespace()
                            && earlier.is_some_and(|c| !c.is_whitespace())
                    }
                };
                if fits {
                    return Some(at);
                }
            }
            after = Some(before);
            at -= before.len_utf8();
        }
        None
    }

    /// The pieces of `text`, each of about `size` bytes if the rule allows.
    pub fn pieces(self, text: &str, size: usize) -> Vec<&str> {
        let mut pieces = Vec::with_capacity(text.len() / size.max(1) + 1);
        let mut rest = text;
        let mut reach = size;
        while rest.len() > reach {
            // Nowhere to cut: look further, twice as far each time, so that the search stays
            // linear in the length of the text.
            let Some(at) = self.last_cut(rest, reach) else {
                reach = reach.saturating_mul(2);
                continue;
            };
            let (piece, tail) = rest.split_at(at);
            pieces.push(piece);
            rest = tail;
            reach = size;
        }
        pieces.push(rest);
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_where_the_rule_allows() {
        assert_eq!(CutRule::BeforeSpace.last_cut("one  two three", 13), Some(8));
        assert_eq!(CutRule::BeforeSpace.last_cut("one  two three", 7), Some(3));
        assert_eq!(CutRule::BeforeSpace.last_cut("  two", 5), None);
        assert_eq!(CutRule::BehindLine.last_cut("a\nb\n\nc", 6), Some(2));
        assert_eq!(CutRule::BehindLine.last_cut("\nb", 2), None);
        assert_eq!(CutRule::Anywhere.last_cut("äö", 3), Some(2));
    }

    #[test]
    fn pieces_make_up_the_text() {
        let text = "It rained. \r\n\n Then   it stopped, äöü\u{3000}and all\tthe birds sang";
        for rule in [CutRule::Anywhere, CutRule::BeforeSpace, CutRule::BehindLine] {
            for size in 1..text.len() + 2 {
                assert_eq!(rule.pieces(text, size).concat(), text, "{rule:?}, {size}");
            }
        }
        assert_eq!(CutRule::BeforeSpace.pieces("", 4), [""]);
    }
}
