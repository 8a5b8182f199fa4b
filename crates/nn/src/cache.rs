//! The key/value cache: what attention has seen, so that a new token costs O(t) and not O(t²).
//!
//! Keys and values of every layer are kept for `capacity` positions, allocated once, in f32, f16
//! or int8. 8-bit numbers have one scale per position and head: `x ≈ q · scale` with
//! `scale = max|x| / 127`, so an error of at most half a step, max|x| / 254.

use hearken_kernels::convert;

/// How numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheKind {
    /// Four bytes, exact.
    #[default]
    F32,
    /// Two bytes, 11 bits of precision.
    F16,
    /// One byte, and a scale per position and head.
    Int8,
}

/// The shape of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// L
    pub layers: usize,
    /// B: sequences of the same length.
    pub batch: usize,
    /// The most positions.
    pub capacity: usize,
    /// K
    pub kv_heads: usize,
    /// D: of a head's keys.
    pub key_width: usize,
    /// Of a head's values.
    pub value_width: usize,
}

impl CacheShape {
    fn widths(&self) -> [usize; 2] {
        [self.key_width, self.value_width]
    }
}

/// Keys and values of all layers.
#[derive(Clone, Debug)]
pub struct Cache {
    shape: CacheShape,
    length: usize,
    layers: Vec<[Store; 2]>,
    /// Widened keys and values of the layer at hand, when they are not kept in f32.
    wide: [Vec<f32>; 2],
}

/// (B, K, capacity, D) numbers: each head's rows lie next to each other.
#[derive(Clone, Debug)]
enum Store {
    F32(Vec<f32>),
    F16(Vec<u16>),
    Int8 { numbers: Vec<i8>, scales: Vec<f32> },
}

impl Store {
    fn new(kind: CacheKind, shape: CacheShape, head_width: usize) -> Self {
        let heads = shape.batch * shape.capacity * shape.kv_heads;
        let len = heads * head_width;
        match kind {
            CacheKind::F32 => Self::F32(vec![0.0; len]),
            CacheKind::F16 => Self::F16(vec![0; len]),
            CacheKind::Int8 => Self::Int8 { numbers: vec![0; len], scales: vec![0.0; heads] },
        }
    }

    /// Writes `x` from element `start` on; both are whole heads.
    fn write(&mut self, start: usize, x: &[f32], head_width: usize) {
        match self {
            Self::F32(kept) => kept[start..start + x.len()].copy_from_slice(x),
            Self::F16(kept) => convert::f32_to_f16(x, &mut kept[start..start + x.len()]),
            Self::Int8 { numbers, scales } => {
                for (i, head) in x.chunks_exact(head_width).enumerate() {
                    let at = start + i * head_width;
                    let largest = head.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
                    scales[at / head_width] = largest / 127.0;
                    let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
                    for (q, x) in numbers[at..at + head_width].iter_mut().zip(head) {
                        *q = (x * inverse).round_ties_even() as i8;
                    }
                }
            }
        }
    }

    /// Widens elements `from..from + out.len()`, whole heads.
    fn read(&self, from: usize, out: &mut [f32], head_width: usize) {
        match self {
            Self::F32(kept) => out.copy_from_slice(&kept[from..from + out.len()]),
            Self::F16(kept) => convert::f16_to_f32(&kept[from..from + out.len()], out),
            Self::Int8 { numbers, scales } => {
                for (i, head) in out.chunks_exact_mut(head_width).enumerate() {
                    let at = from + i * head_width;
                    let scale = scales[at / head_width];
                    for (x, q) in head.iter_mut().zip(&numbers[at..at + head_width]) {
                        *x = f32::from(*q) * scale;
                    }
                }
            }
        }
    }
}

/// Keys or values as attention reads them: (B, K, `capacity`, D), of which the first positions
/// count.
#[derive(Clone, Copy, Debug)]
pub struct Cached<'a> {
    /// The numbers, in f32.
    pub data: &'a [f32],
    /// Rows per head.
    pub capacity: usize,
}

impl Cache {
    /// An empty cache.
    pub fn new(shape: CacheShape, kind: CacheKind) -> Self {
        let layer = |_| shape.widths().map(|width| Store::new(kind, shape, width));
        Self {
            shape,
            length: 0,
            layers: (0..shape.layers).map(layer).collect(),
            wide: [Vec::new(), Vec::new()],
        }
    }

    /// How many positions are filled.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Is nothing in it?
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Its shape.
    pub fn shape(&self) -> CacheShape {
        self.shape
    }

    /// Forgets all positions from `length` on.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Bytes that the kept numbers take.
    pub fn bytes(&self) -> usize {
        let store = |s: &Store| match s {
            Store::F32(x) => 4 * x.len(),
            Store::F16(x) => 2 * x.len(),
            Store::Int8 { numbers, scales } => numbers.len() + 4 * scales.len(),
        };
        self.layers.iter().flatten().map(store).sum()
    }

    /// One layer of it.
    pub fn layer(&mut self, layer: usize) -> LayerCache<'_> {
        LayerCache { cache: self, layer }
    }

    /// Puts `tokens` new positions of `layer` behind those that count, without counting them yet
    /// (see [`Cache::advance`]). `keys` and `values` are rows of a packed projection: row (b, t)
    /// starts at `(b · tokens + t) · stride`, K·D numbers each (values: K times their own width).
    pub fn put(
        &mut self,
        layer: usize,
        tokens: usize,
        keys: &[f32],
        values: &[f32],
        stride: usize,
    ) {
        let CacheShape { batch, capacity, kv_heads, .. } = self.shape;
        assert!(
            self.length + tokens <= capacity,
            "a cache of {capacity} positions cannot hold {} + {tokens}",
            self.length
        );
        let stores = self.layers[layer].iter_mut().zip([keys, values]).zip(self.shape.widths());
        for ((store, new), head_width) in stores {
            for (b, t, head) in positions(batch, tokens, kv_heads) {
                let from = (b * tokens + t) * stride + head * head_width;
                let to = ((b * kv_heads + head) * capacity + self.length + t) * head_width;
                store.write(to, &new[from..from + head_width], head_width);
            }
        }
    }

    /// Keys and values of `layer` for the first `length` positions.
    pub fn get(&mut self, layer: usize, length: usize) -> [Cached<'_>; 2] {
        let CacheShape { batch, capacity, kv_heads, .. } = self.shape;
        assert!(length <= capacity, "{length} positions of a cache of {capacity}");
        let [keys, values] = &self.layers[layer];
        if let (Store::F32(keys), Store::F32(values)) = (keys, values) {
            return [keys, values].map(|data| Cached { data, capacity });
        }
        let stores = self.wide.iter_mut().zip([keys, values]).zip(self.shape.widths());
        for ((wide, store), head_width) in stores {
            wide.resize(batch * kv_heads * length * head_width, 0.0);
            for (i, out) in wide.chunks_exact_mut((length * head_width).max(1)).enumerate() {
                store.read(i * capacity * head_width, out, head_width);
            }
        }
        self.wide.each_ref().map(|data| Cached { data, capacity: length })
    }

    /// Counts `tokens` positions that every layer has put.
    pub fn advance(&mut self, tokens: usize) {
        assert!(self.length + tokens <= self.shape.capacity, "the cache is full");
        self.length += tokens;
    }

    /// Makes sequence i a copy of what sequence `from[i]` was: how beam search moves its beams.
    pub fn reorder(&mut self, from: &[usize]) {
        let CacheShape { batch, capacity, kv_heads, .. } = self.shape;
        assert!(from.len() == batch && from.iter().all(|b| *b < batch), "{from:?} of {batch}");
        let widths = self.shape.widths();
        let stores = self.layers.iter_mut().flat_map(|layer| layer.iter_mut().zip(widths));
        for (store, width) in stores {
            let row = kv_heads * width;
            match store {
                Store::F32(x) => reorder(x, from, capacity * row),
                Store::F16(x) => reorder(x, from, capacity * row),
                Store::Int8 { numbers, scales } => {
                    reorder(numbers, from, capacity * row);
                    reorder(scales, from, capacity * kv_heads);
                }
            }
        }
    }
}

/// Keys and values of one layer.
pub struct LayerCache<'a> {
    cache: &'a mut Cache,
    layer: usize,
}

impl LayerCache<'_> {
    /// How many positions are filled.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Is nothing in it?
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
    }

    /// As [`Cache::put`].
    pub fn put(&mut self, tokens: usize, keys: &[f32], values: &[f32], stride: usize) {
        self.cache.put(self.layer, tokens, keys, values, stride);
    }

    /// As [`Cache::get`].
    pub fn get(&mut self, length: usize) -> [Cached<'_>; 2] {
        self.cache.get(self.layer, length)
    }
}

/// All (sequence, token, head).
fn positions(
    batch: usize,
    tokens: usize,
    heads: usize,
) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..batch * tokens * heads).map(move |i| (i / heads / tokens, i / heads % tokens, i % heads))
}

/// Copies block `from[i]` to block i, of blocks of `stride`.
fn reorder<E: Copy>(x: &mut [E], from: &[usize], stride: usize) {
    if from.iter().enumerate().all(|(i, b)| i == *b) {
        return;
    }
    let old = x.to_vec();
    for (block, b) in x.chunks_exact_mut(stride.max(1)).zip(from) {
        block.copy_from_slice(&old[b * stride..(b + 1) * stride]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearken_tensor::rng::Rng;

    const SHAPE: CacheShape =
        CacheShape { layers: 2, batch: 2, capacity: 5, kv_heads: 3, key_width: 4, value_width: 4 };

    fn filled(kind: CacheKind) -> (Cache, Vec<f32>) {
        let mut cache = Cache::new(SHAPE, kind);
        // Two batches of 3 tokens, rows of 2·12 numbers: keys first, then values.
        let packed = Rng::new(1).normal([6 * 24], 1.0).data().to_vec();
        for layer in 0..2 {
            cache.put(layer, 3, &packed, &packed[12..], 24);
        }
        cache.advance(3);
        (cache, packed)
    }

    #[test]
    fn what_was_put_comes_back_within_the_precision_of_the_kind() {
        for (kind, bound) in [
            (CacheKind::F32, 0.0),
            (CacheKind::F16, 4.0 * 2.0_f32.powi(-11)), // numbers below 4, 11 bits
            (CacheKind::Int8, 4.0 / 254.0),            // half a step of a head's largest
        ] {
            let (mut cache, packed) = filled(kind);
            let [keys, values] = cache.get(1, 3);
            for b in 0..2 {
                for t in 0..3 {
                    for i in 0..12 {
                        let from = (b * 3 + t) * 24 + i;
                        let at = ((b * 3 + i / 4) * keys.capacity + t) * 4 + i % 4;
                        assert!((keys.data[at] - packed[from]).abs() <= bound, "{kind:?}");
                        assert!((values.data[at] - packed[from + 12]).abs() <= bound, "{kind:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn beams_move_with_all_their_layers() {
        for kind in [CacheKind::F32, CacheKind::F16, CacheKind::Int8] {
            let (mut cache, _) = filled(kind);
            let first = |cache: &mut Cache, b: usize| {
                let [keys, _] = cache.get(1, 3);
                let heads = keys.data.chunks_exact(keys.capacity * 4).skip(3 * b).take(3);
                heads.flat_map(|rows| rows[..12].to_vec()).collect::<Vec<f32>>()
            };
            let (zero, one) = (first(&mut cache, 0), first(&mut cache, 1));
            cache.reorder(&[1, 0]);
            assert_eq!((first(&mut cache, 0), first(&mut cache, 1)), (one, zero.clone()));
            cache.reorder(&[1, 1]);
            assert_eq!(first(&mut cache, 0), zero);
        }
    }

    #[test]
    fn sixteen_and_eight_bits_take_half_and_about_a_quarter() {
        let bytes = |kind| Cache::new(SHAPE, kind).bytes();
        assert_eq!(bytes(CacheKind::F16) * 2, bytes(CacheKind::F32));
        // One byte a number, and four for each head of four numbers here.
        assert_eq!(bytes(CacheKind::Int8) * 2, bytes(CacheKind::F32));
    }

    #[test]
    #[should_panic(expected = "cannot hold 3 + 3")]
    fn a_full_cache_refuses() {
        let (mut cache, packed) = filled(CacheKind::F32);
        cache.put(0, 3, &packed, &packed[12..], 24);
    }
}
