//! What tiles fetch while they are computed.

/// Rows that the tiles of a row fetch, one in each round, from the end of the list on: a tile's loop,
/// which has no instructions to spare, counts its rounds down.
pub(super) struct Fetches {
    rows: [*const f32; Self::MOST],
    /// Rows that there is time for.
    most: usize,
    pub(super) len: usize,
}

impl Fetches {
    /// Six rows, the most of any tile, of C and of two things that an epilogue touches. More are left
    /// out.
    const MOST: usize = 18;

    /// For tiles of so many rounds.
    #[inline(always)]
    pub(super) fn new(rounds: usize) -> Self {
        Self { rows: [std::ptr::null(); _], most: rounds.min(Self::MOST), len: 0 }
    }

    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// So many rows, `stride` apart, unless `first` is null.
    #[inline(always)]
    pub(super) fn add_rows(&mut self, first: *const f32, stride: usize, rows: usize) {
        let rows = if first.is_null() { 0 } else { rows.min(self.most - self.len) };
        for row in 0..rows {
            self.len += 1;
            self.rows[Self::MOST - self.len] = first.wrapping_add(row * stride);
        }
    }

    /// The list, of which the row at the beginning is fetched last.
    #[inline(always)]
    pub(super) fn as_ptr(&self) -> *const *const f32 {
        self.rows[Self::MOST - self.len..].as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_from_the_end_on_and_only_as_many_as_there_is_time_for() {
        let x = [0.0; 100];
        let place = |i: usize| x[i..].as_ptr();
        let mut fetches = Fetches::new(5);
        assert_eq!(fetches.len, 0);
        fetches.add_rows(place(0), 10, 2);
        fetches.add_rows(std::ptr::null(), 10, 2);
        fetches.add_rows(place(50), 1, 9);
        // SAFETY: `len` pointers from there on.
        let list = unsafe { std::slice::from_raw_parts(fetches.as_ptr(), fetches.len) };
        assert_eq!(list, [52, 51, 50, 10, 0].map(place));
        fetches.clear();
        assert_eq!(fetches.len, 0);
        let mut many = Fetches::new(96);
        (0..4).for_each(|i| many.add_rows(place(i), 5, 6));
        assert_eq!(many.len, Fetches::MOST);
        let mut none = Fetches::new(0);
        none.add_rows(place(0), 1, 3);
        assert_eq!(none.len, 0);
    }
}
