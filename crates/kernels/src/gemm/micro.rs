//! The register-blocked tile product that every matrix product here is made of:
//! `C (R, columns) = or += A (R, depth) · B (depth, columns)`.
//!
//! The plain algorithm, for one tile:
//!
//! ```text
//! sum (R × columns) = 0
//! for p in 0..depth:  for i:  for j:  sum[i][j] += A[i][p] · B[p][j]
//! C = sum            or            C += sum
//! ```
//!
//! What makes it fast is that `sum` stays in registers, `B[p]` is loaded once for all R rows and
//! `A[i][p]` is broadcast once for all columns: a step of R·W multiply-adds of W vectors needs
//! R + W loads. Some rows of tiles are computed [together](Tile::TOGETHER), so that a panel of B,
//! which the first has brought near, serves them all. What the next tiles and the epilogue need is
//! [fetched](super::fetches) meanwhile, a row or a line in each round of eight steps, because a burst
//! would hold up the loads of B. AVX2 has its loop [in assembly](super::rounds_avx2), and each set
//! its [constants](super::sets).
//!
//! **Operands** are read with strides ([`Lanes`]), in place or as [`super::pack`] has laid them
//! out: A in rows, or by steps with ROWS rows next to each other, B in panels of [`Tile::COLUMNS`]
//! columns, `panel[p · COLUMNS + j] = B[p][j]`.
//!
//! B may also come in rows that are far apart, and be packed on the way: the first row of tiles
//! reads it where it is and leaves each panel behind for the tiles below. The stores and fetches
//! for that fit between multiply-adds, where a copy beforehand would only wait for memory.
//!
//! **Order of summation.** Each element is one chain of multiply-adds from zero over `p`
//! ascending, wherever it sits in whatever tile.

use super::fetches::Fetches;
use super::transpose::Transpose;
use crate::Write;

/// How an instruction set tiles a product.
pub(crate) trait Tile: Transpose {
    /// Rows of a whole tile.
    const ROWS: usize;
    /// Vectors in a row of a whole tile.
    const VECTORS: usize;
    /// Columns of a whole tile, and of a packed panel of B.
    const COLUMNS: usize = Self::VECTORS * Self::LANES;
    /// Columns of B per group, whole tiles: a block of K of it is 288 KiB, inside a second-level
    /// cache of 512 KiB, unless a set has another.
    const GROUP: usize = 96;
    /// Most floats from one step of depth to the next of an operand that tiles read in place; by
    /// default the sizes in `blocked` alone decide. Steps that are further apart are on lines in few
    /// of the sets of a first-level cache, and push each other out.
    const NEAR: usize = usize::MAX;
    /// Rows of tiles that are computed together: a tile of each with one panel of B, before the next
    /// panel. At most [`MOST_TOGETHER`].
    const TOGETHER: usize = 1;
    /// Is A packed by steps where its columns lie in one piece each? It is a copy then, where rows
    /// would take a transpose, and tiles find all rows of a step next to each other.
    const PACKS_STEPS: bool = false;
    /// Do tiles fetch what the epilogue will touch?
    const FETCHES_FOR_EPILOGUE: bool = false;
    /// Rows of A that a tile fetches, of the row of tiles that comes TOGETHER further down.
    const FETCHES_ROWS: usize = 2;
    /// Can tiles pack B on the way? It pays where a row of a panel is several cache lines. Rows of
    /// tiles come one by one then.
    const PACKS_ON_THE_WAY: bool = false;

    /// The sums of a tile after all its rounds, added to `sum`, which is zero, if this set has the
    /// loop in assembly for a tile of that size and [`Layout`]; else `false`, and nothing is done.
    ///
    /// # Safety
    /// R, W and the layout are the tile's, and `operands` are as [`Self::tiles`] needs them.
    #[inline(always)]
    unsafe fn rounds<const R: usize, const W: usize, const LAYOUT: u8>(
        self,
        _sum: &mut [[Self::V; W]; R],
        _operands: &Operands,
    ) -> bool {
        false
    }

    /// `out = A·B` or `out += A·B` for rows of tiles, each `rows × columns`, with the same B: row of
    /// tiles `n` is the product of `operands[n]`, and ROWS further down than the one before it.
    ///
    /// # Safety
    /// There is one of `operands`, or there are several that differ in `a` and in what is fetched
    /// only; then `rows` is ROWS and `keep` null. `1 ≤ rows ≤ ROWS` and `1 ≤ columns`. For each:
    /// `a_lane` or `a_step` is 1; for each row `i` and step `p < depth`,
    /// `a + i · a_lane + p · a_step` is valid for reading, and so are, at
    /// `b + q · b_panel + p · b_step` for each panel `q`, as many floats as it has columns, rounded
    /// up to whole vectors; for number `n` of them, each row `i` and column `j`,
    /// `out + (n · ROWS + i) · out_stride + j` is valid for writing (and reading, to add). `keep` is
    /// null, or `rows` is ROWS and `keep + (q · depth + p) · COLUMNS` is valid for writing as much as
    /// is read of B. `fetches` has `fetches_len` pointers to anything, no more than there are rounds
    /// of `depth`.
    unsafe fn tiles(
        self,
        size: (usize, usize),
        operands: &[Operands],
        out: *mut f32,
        out_stride: usize,
        write: Write,
    );
}

/// An operand as tiles read it: lanes are the rows of A or the columns of B, a panel is ROWS or
/// COLUMNS of them. Lane `l`, less than a panel's, of panel `q` is at step `p` of depth
/// `data[q · panel + l · lane + p · step]`. Neighbouring lanes of B are next to each other.
#[derive(Clone, Copy)]
pub(crate) struct Lanes<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) panel: usize,
    pub(crate) lane: usize,
    pub(crate) step: usize,
}

/// What a row of tiles is the product of.
#[derive(Clone, Copy)]
pub(crate) struct Operands {
    pub(crate) depth: usize,
    /// The first row of A, and the floats from one row, and from one step of depth, to the next:
    /// one of them is 1.
    pub(crate) a: *const f32,
    pub(crate) a_lane: usize,
    pub(crate) a_step: usize,
    /// The first column of B, and the floats from one step of depth, and from one panel, to the
    /// next.
    pub(crate) b: *const f32,
    pub(crate) b_step: usize,
    pub(crate) b_panel: usize,
    /// Where to leave B as packed panels, or null.
    pub(crate) keep: *mut f32,
    /// Rows of C and of what the epilogue will touch that the first tile fetches, one in each
    /// round: no more than there are rounds, and the last comes first. Tile `q` fetches what is
    /// `further` by `q · COLUMNS` floats.
    pub(crate) fetches: *const *const f32,
    pub(crate) fetches_len: usize,
    pub(crate) further: usize,
    /// Where rows of A start that will be needed soon, and how many tiles fetch some.
    pub(crate) ahead: *const f32,
    pub(crate) ahead_tiles: usize,
    /// Of the product, in a layout that says so.
    pub(crate) factor: f32,
}

impl Operands {
    /// The operands of the tile with panel `q`.
    #[inline(always)]
    pub(super) fn of_tile<S: Tile>(&self, q: usize) -> Self {
        let ahead = self.ahead.wrapping_add(q * S::FETCHES_ROWS * self.a_lane);
        Self {
            b: self.b.wrapping_add(q * self.b_panel),
            keep: shifted(self.keep, q * self.depth * S::COLUMNS).cast_mut(),
            further: q * S::COLUMNS,
            // Without anything to fetch, what is near.
            ahead: if q < self.ahead_tiles { ahead } else { self.a },
            ..*self
        }
    }
}

/// `x + by`, or null if it is null.
#[inline(always)]
fn shifted(x: *const f32, by: usize) -> *const f32 {
    if x.is_null() { x } else { x.wrapping_add(by) }
}

/// A block of products on this thread: `out = A·B` or `out += A·B` with A `rows × depth` and B
/// `depth × columns`. Row `i` of the result starts at `out + i · out_stride`. Calls `after_rows`
/// for each range of rows that is done.
///
/// B should fit in the second-level cache; loops over a larger one are the caller's. With `room`
/// for its panels it is packed on the way, if that is worth it. `then` is what `after_rows` will
/// touch, laid out as the result is, nulls last: it is fetched meanwhile.
///
/// # Safety
/// For each row `i` and column `j`, `out + i · out_stride + j` is valid for writing (and reading,
/// to add), and nobody else uses it meanwhile.
#[inline(always)]
pub(crate) unsafe fn block<S: Tile>(
    s: S,
    (rows, columns, depth): (usize, usize, usize),
    a: Lanes<'_>,
    b: Lanes<'_>,
    room: Option<&mut [f32]>,
    out: *mut f32,
    out_stride: usize,
    write: Write,
    then: [*const f32; 2],
    mut after_rows: impl FnMut(std::ops::Range<usize>),
) {
    if rows == 0 || columns == 0 || depth == 0 {
        return;
    }
    // How far panel `q` with that many lanes reaches.
    let end = |x: &Lanes<'_>, q: usize, lanes: usize| {
        q * x.panel + (lanes - 1) * x.lane + (depth - 1) * x.step + 1
    };
    let panels = columns.div_ceil(S::COLUMNS);
    // Panels before the last two are as wide as the last but one, and end before it.
    for panel in panels.saturating_sub(2)..panels {
        let lanes = S::COLUMNS.min(columns - panel * S::COLUMNS).next_multiple_of(S::LANES);
        assert!(end(&b, panel, lanes) <= b.data.len(), "B has fewer columns");
    }
    // A single row of tiles leaves nothing for others.
    let room = room.filter(|_| S::PACKS_ON_THE_WAY && rows > S::ROWS).map(|room| {
        assert!(room.len() >= panels * S::COLUMNS * depth, "no room for the panels");
        room.as_mut_ptr()
    });
    const { assert!(1 <= S::TOGETHER && S::TOGETHER <= MOST_TOGETHER, "too many together") };
    const { assert!(S::TOGETHER == 1 || !S::PACKS_ON_THE_WAY, "B is packed by one row of tiles") };
    let mut fetches: [_; MOST_TOGETHER] = std::array::from_fn(|_| Fetches::new(depth / ROUND));
    let mut i = 0;
    while i < rows {
        let tile_rows = S::ROWS.min(rows - i);
        let together = ((rows - i) / S::ROWS).clamp(1, S::TOGETHER);
        let in_place = (b.data.as_ptr(), b.step, b.panel);
        let ((from, b_step, b_panel), keep) = match room {
            None => (in_place, std::ptr::null_mut()),
            Some(room) if i == 0 => (in_place, room),
            Some(room) => {
                ((room.cast_const(), S::COLUMNS, S::COLUMNS * depth), std::ptr::null_mut())
            }
        };
        // Of the row of tiles that starts with row `i`.
        let operands_of = |i: usize, fetches: &mut Fetches| {
            assert!(end(&a, i / S::ROWS, tile_rows) <= a.data.len(), "A has fewer rows");
            fetches.clear();
            for block in [out.cast_const(), then[0], then[1]] {
                fetches.add_rows(shifted(block, i * out_stride), out_stride, tile_rows);
            }
            let ahead = rows.saturating_sub(i + together * S::ROWS);
            let ahead_rows = if a.step == 1 { S::ROWS.min(ahead) } else { 0 };
            let a_start = i / S::ROWS * a.panel;
            Operands {
                depth,
                a: a.data[a_start..].as_ptr(),
                a_lane: a.lane,
                a_step: a.step,
                b: from,
                b_step,
                b_panel,
                keep,
                fetches: fetches.as_ptr(),
                fetches_len: fetches.len,
                further: 0,
                ahead: a.data.as_ptr().wrapping_add(a_start + together * a.panel),
                ahead_tiles: ahead_rows.div_ceil(S::FETCHES_ROWS),
                factor: 1.0,
            }
        };
        let mut operands = [operands_of(i, &mut fetches[0]); MOST_TOGETHER];
        for n in 1..together {
            operands[n] = operands_of(i + n * S::ROWS, &mut fetches[n]);
        }
        // SAFETY: the farthest elements of A and B that the tiles read are inside, by the
        // assertions, and so are `depth` rows of each panel in `room`, which the first row of
        // tiles, a whole one, writes before others read it; the tiles are part of the block of
        // `out` that the caller vouches for, with several rows of tiles only where so many whole
        // ones are left. The lists live on, and are no longer than there are rounds: `Fetches` was
        // told.
        unsafe {
            let out = out.add(i * out_stride);
            s.tiles((tile_rows, columns), &operands[..together], out, out_stride, write);
        }
        let end = (i + together * S::ROWS).min(rows);
        after_rows(i..end);
        i = end;
    }
}

/// No set has more rows of tiles computed together.
const MOST_TOGETHER: usize = 2;

/// Steps of depth in a round of a tile's loop, which moves pointers and fetches what comes next once.
pub(super) const ROUND: usize = 8;
/// How many rows of B are fetched ahead where it is packed on the way: some 100 cycles.
const ROWS_AHEAD: usize = 8;
/// Floats in a cache line.
pub(super) const CACHE_LINE: usize = 16;

/// How the operands of a tile lie, known to the compiler: a sum of these. An address that is not a
/// constant away from the last one costs an addition at every step, and where another guest runs
/// on the other half of the core, the number of instructions is what a tile takes its time from.
pub(crate) struct Layout;

impl Layout {
    /// A lies in columns: `a_lane` is 1.
    pub(crate) const A_IN_COLUMNS: u8 = 0;
    /// A lies in rows: `a_step` is 1.
    pub(crate) const A_IN_ROWS: u8 = 1;
    /// B is a packed panel: `b_step` is COLUMNS.
    pub(super) const PANEL: u8 = 2;
    /// B is left behind as a packed panel: `keep` is not null.
    pub(super) const KEEP: u8 = 4;
    /// A lies in columns as if packed by steps: `a_step` is ROWS.
    pub(super) const STEPS: u8 = 8;
    /// All is in the first-level cache: nothing is fetched.
    pub(crate) const NEAR: u8 = 16;
    /// The product is multiplied by `factor`.
    pub(crate) const SCALED: u8 = 32;

    pub(super) const ROWS_AND_PANEL: u8 = Self::A_IN_ROWS + Self::PANEL;
    pub(super) const STEPS_AND_PANEL: u8 = Self::A_IN_COLUMNS + Self::PANEL + Self::STEPS;

    /// The layout of operands. PANEL, KEEP and STEPS are for whole tiles only; others do without.
    #[inline(always)]
    pub(super) fn of<S: Tile>(rows: usize, operands: &Operands) -> u8 {
        let in_rows = operands.a_step == 1;
        assert!(in_rows || operands.a_lane == 1, "A lies neither in rows nor in columns");
        let a = if in_rows { Self::A_IN_ROWS } else { Self::A_IN_COLUMNS };
        if rows < S::ROWS {
            a
        } else if S::PACKS_ON_THE_WAY && !operands.keep.is_null() {
            a + Self::KEEP
        } else if operands.b_step == S::COLUMNS {
            let steps = S::PACKS_STEPS && !in_rows && operands.a_step == S::ROWS;
            a + Self::PANEL + if steps { Self::STEPS } else { 0 }
        } else {
            a
        }
    }
}

/// One tile with `R` rows and `W` vectors, both known to the compiler so that `sum` lives in
/// registers. The safety contract is that of [`Tile::tiles`] for a single tile, with `rows = R`,
/// `(W − 1) · LANES < columns ≤ W · LANES`, and a [`Layout`] that is true. Any R and W will do
/// where B is neither a panel nor kept as one. In a layout that says so, the product is multiplied by
/// a factor before it is written or added.
#[inline(always)]
pub(crate) unsafe fn tile_of<S: Tile, const R: usize, const W: usize, const LAYOUT: u8>(
    s: S,
    columns: usize,
    operands: Operands,
    out: *mut f32,
    out_stride: usize,
    write: Write,
) {
    let a_in_rows = LAYOUT & Layout::A_IN_ROWS != 0;
    let panel = LAYOUT & Layout::PANEL != 0;
    let keeps = LAYOUT & Layout::KEEP != 0;
    let by_steps = LAYOUT & Layout::STEPS != 0;
    let fetches = LAYOUT & Layout::NEAR == 0;
    let Operands { depth, a_lane, a_step, mut b, b_step, mut keep, .. } = operands;
    let mut sum = [[s.zero(); W]; R];
    // SAFETY: the caller vouches for layout and operands.
    let in_assembly = unsafe { s.rounds::<R, W, LAYOUT>(&mut sum, &operands) };
    let mut p = if in_assembly { depth - depth % ROUND } else { 0 };
    b = b.wrapping_add(p * b_step);
    // In rows, each has a pointer of its own, which moves once a round. Opaque, or the compiler
    // would derive each from the one before it, at every step.
    let mut rows = [operands.a.wrapping_add(p * a_step); R];
    if a_in_rows {
        for i in 0..R {
            let row = rows[i].wrapping_add(i * a_lane);
            rows[i] = if in_assembly { row } else { std::hint::black_box(row) };
        }
    }
    // Step `t` after the pointers.
    macro_rules! step {
        ($t:expr) => {
            // SAFETY: step p < depth reads a[i · a_lane + p · a_step] with i < R and
            // b[p · b_step + w · LANES..][..LANES] with w < W, inside the operands, and writes
            // as much at keep[p · COLUMNS..] if there is one.
            unsafe {
                let t = $t;
                let from = if panel { b.add(t * S::COLUMNS) } else { b };
                let mut row = [s.zero(); W];
                for w in 0..W {
                    row[w] = s.load(from.add(w * S::LANES));
                    if keeps {
                        prefetch(from.wrapping_add(ROWS_AHEAD * b_step + w * S::LANES));
                        s.store(keep.add(t * S::COLUMNS + w * S::LANES), row[w]);
                    }
                }
                for i in 0..R {
                    let x = if a_in_rows {
                        rows[i].add(t)
                    } else if by_steps {
                        rows[0].add(t * S::ROWS + i)
                    } else {
                        rows[0].add(i)
                    };
                    let x = s.splat(*x);
                    for w in 0..W {
                        sum[i][w] = s.mul_add(x, row[w], sum[i][w]);
                    }
                }
                if !a_in_rows && !by_steps {
                    rows[0] = rows[0].wrapping_add(a_step);
                }
                if !panel {
                    b = b.wrapping_add(b_step);
                }
            }
        };
    }
    // Moves the pointers that have not moved at each step.
    macro_rules! advance {
        ($steps:expr) => {
            if a_in_rows {
                for i in 0..R {
                    rows[i] = rows[i].wrapping_add($steps);
                }
            }
            if by_steps {
                rows[0] = rows[0].wrapping_add($steps * S::ROWS);
            }
            if panel {
                b = b.wrapping_add($steps * S::COLUMNS);
            }
            if keeps {
                keep = keep.wrapping_add($steps * S::COLUMNS);
            }
        };
    }
    let mut to_fetch = if fetches { operands.fetches_len } else { 0 };
    while !in_assembly && p + ROUND <= depth {
        if to_fetch > 0 {
            to_fetch -= 1;
            // SAFETY: a place in the list.
            let row = unsafe { *operands.fetches.add(to_fetch) };
            // Tiles begin with a cache line, in models whose widths are whole lines.
            for line in (0..W * S::LANES).step_by(CACHE_LINE) {
                prefetch(row.wrapping_add(operands.further + line));
            }
        }
        // A line of A a round.
        let line = p / ROUND * CACHE_LINE;
        if fetches && a_in_rows && line < depth {
            for row in 0..S::FETCHES_ROWS {
                prefetch(operands.ahead.wrapping_add(row * a_lane + line));
            }
        }
        for t in 0..ROUND {
            step!(t);
        }
        advance!(ROUND);
        p += ROUND;
    }
    while p < depth {
        step!(0);
        advance!(1);
        p += 1;
    }

    if LAYOUT & Layout::SCALED != 0 {
        let factor = s.splat(operands.factor);
        // Loops, since a closure is a function without the set's features where it is not inlined.
        for i in 0..R {
            for w in 0..W {
                sum[i][w] = s.mul(sum[i][w], factor);
            }
        }
    }
    let last = columns - (W - 1) * S::LANES; // columns in the last vector
    // SAFETY: row i, columns from w · LANES: LANES of them, or `last` in the last vector, all
    // inside the tile that the caller vouches for. Each loop is small enough to be unrolled,
    // without which `sum` would not stay in registers.
    unsafe {
        if write == Write::Add {
            for i in 0..R {
                for w in 0..W - 1 {
                    let p = out.add(i * out_stride + w * S::LANES);
                    sum[i][w] = s.add(s.load(p), sum[i][w]);
                }
            }
            if last == S::LANES {
                for i in 0..R {
                    let p = out.add(i * out_stride + (W - 1) * S::LANES);
                    sum[i][W - 1] = s.add(s.load(p), sum[i][W - 1]);
                }
            } else {
                for i in 0..R {
                    let p = out.add(i * out_stride + (W - 1) * S::LANES);
                    sum[i][W - 1] = s.add(s.load_first(last, p), sum[i][W - 1]);
                }
            }
        }
        for i in 0..R {
            for w in 0..W - 1 {
                s.store(out.add(i * out_stride + w * S::LANES), sum[i][w]);
            }
        }
        if last == S::LANES {
            for i in 0..R {
                s.store(out.add(i * out_stride + (W - 1) * S::LANES), sum[i][W - 1]);
            }
        } else {
            for i in 0..R {
                s.store_first(last, out.add(i * out_stride + (W - 1) * S::LANES), sum[i][W - 1]);
            }
        }
    }
}

/// Asks for the cache line of `p` in the second-level cache; harmless for any address.
#[inline(always)]
pub(super) fn prefetch_second_level(p: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint and does not fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// Asks for the cache line of `p`; harmless for any address.
#[inline(always)]
pub(crate) fn prefetch(p: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint and does not fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}
