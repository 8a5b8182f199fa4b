//! Texts that are longer than what a model reads.

/// How many texts of a list were cut, and which was the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// How many.
    pub count: usize,
    /// The place in the list of the first.
    pub first: Option<usize>,
}

impl Cut {
    /// Counts text `i`.
    pub fn add(&mut self, i: usize) {
        self.count += 1;
        self.first.get_or_insert(i);
    }

    /// Counts those of a part of the list that begins at `start`.
    pub fn extend(&mut self, part: Self, start: usize) {
        self.count += part.count;
        self.first = self.first.or(part.first.map(|first| start + first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_parts_is_kept() {
        let mut part = Cut::default();
        part.add(2);
        part.add(3);
        let mut all = Cut::default();
        all.extend(Cut::default(), 0);
        all.extend(part, 10);
        all.extend(part, 20);
        assert_eq!(all, Cut { count: 4, first: Some(12) });
    }
}
