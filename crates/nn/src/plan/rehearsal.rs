//! Operations as sizes alone: what they take from the pool, keep for backward, and give back.
//!
//! A [`Value`] is a tensor without numbers. As with tensors, the last handle that drops gives the
//! memory back, and an operation pushes what its backward does onto a tape, so that each reads
//! like the operation it stands for in `hearken_tensor::ops`.

use hearken_kernels::memory::spans::Spans;
use hearken_kernels::memory::{HUGE_PAGE, SMALLEST_PIECE};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The pool as sizes alone.
#[derive(Default)]
struct Ledger {
    spans: Spans,
    /// Bytes of buffers that are too small for the arena, and the most that there ever were.
    small: usize,
    most_small: usize,
    in_use: usize,
    peak: usize,
}

impl Ledger {
    /// As `Pooled::take`; an address if the arena gives one.
    fn take(&mut self, bytes: usize) -> Option<usize> {
        self.in_use += bytes;
        self.peak = self.peak.max(self.in_use);
        if bytes < SMALLEST_PIECE {
            self.small += bytes;
            self.most_small = self.most_small.max(self.small);
            return None;
        }
        if let Some(start) = self.spans.take(bytes) {
            return Some(start);
        }
        self.spans.append_chunk(Spans::chunk_for(bytes, HUGE_PAGE));
        self.spans.take(bytes)
    }

    fn give(&mut self, start: Option<usize>, bytes: usize) {
        self.in_use -= bytes;
        match start {
            Some(start) => self.spans.give(start, bytes),
            None => self.small -= bytes,
        }
    }
}

/// A buffer on loan.
struct Loan {
    ledger: Rc<RefCell<Ledger>>,
    start: Option<usize>,
    bytes: usize,
}

type Handle = Rc<Loan>;

impl Loan {
    fn new(ledger: &Rc<RefCell<Ledger>>, bytes_each: usize, len: usize) -> Handle {
        let bytes = bytes_each * len;
        let start = ledger.borrow_mut().take(bytes);
        Rc::new(Self { ledger: ledger.clone(), start, bytes })
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.ledger.borrow_mut().give(self.start, self.bytes);
    }
}

/// Where a gradient will be.
type Slot = Rc<RefCell<Option<Handle>>>;

/// A tensor and the place of its gradient.
#[derive(Clone)]
pub(super) struct Value {
    tensor: Handle,
    len: usize,
    gradient: Slot,
}

/// A parameter with its bias; the optimiser's numbers lie beside it.
pub(super) struct Weight {
    len: usize,
    bias: usize,
    gradient: Slot,
    bias_gradient: Slot,
    /// How many gradients there are.
    parts: usize,
    /// In 16 bits, from its first product on.
    rounded: Slot,
    _kept: Vec<Handle>,
}

impl Weight {
    /// After a step: gradients and the copy in 16 bits are gone.
    pub(super) fn update(&self) {
        for slot in [&self.gradient, &self.bias_gradient, &self.rounded] {
            *slot.borrow_mut() = None;
        }
    }
}

/// What backward does, in the order of forward.
type Tape = Vec<Box<dyn FnOnce(&Stage)>>;

/// Where a step is rehearsed.
#[derive(Clone)]
pub(super) struct Stage {
    ledger: Rc<RefCell<Ledger>>,
    tape: Rc<RefCell<Tape>>,
    recording: Rc<Cell<bool>>,
    half: bool,
    /// Side by side, each with gradients of its own.
    parts: usize,
}

impl Stage {
    /// Empty; `half` is 16-bit storage, `parts` is how many have gradients of their own.
    pub(super) fn new(half: bool, parts: usize) -> Self {
        Self {
            ledger: Rc::default(),
            tape: Rc::default(),
            recording: Rc::new(Cell::new(true)),
            half,
            parts,
        }
    }

    /// The most that was in use at any one time.
    pub(super) fn peak(&self) -> u64 {
        self.ledger.borrow().peak as u64
    }

    /// All memory that tensors were ever on.
    pub(super) fn reserved(&self) -> u64 {
        let books = self.ledger.borrow();
        (books.spans.touched() + books.most_small) as u64
    }

    fn take(&self, len: usize) -> Handle {
        Loan::new(&self.ledger, size_of::<f32>(), len)
    }

    /// `len` numbers.
    pub(super) fn value(&self, len: usize) -> Value {
        Value { tensor: self.take(len), len, gradient: Slot::default() }
    }

    /// A parameter of `len` numbers and a bias, each in so many copies.
    pub(super) fn weight(&self, len: usize, bias: usize, copies: usize) -> Weight {
        let lens = [len, bias].into_iter().filter(|len| *len > 0);
        let kept: Vec<Handle> =
            lens.flat_map(|len| (0..copies).map(move |_| len)).map(|len| self.take(len)).collect();
        let [gradient, bias_gradient, rounded] = [(); 3].map(|()| Slot::default());
        Weight { len, bias, gradient, bias_gradient, parts: self.parts, rounded, _kept: kept }
    }

    /// A product reads a weight: in 16 bits where that is the storage.
    fn read(&self, weight: &Weight) {
        if self.half && weight.rounded.borrow().is_none() {
            *weight.rounded.borrow_mut() = Some(Loan::new(&self.ledger, 2, weight.len));
        }
    }

    /// Keeps a value for backward: another handle, or a copy of half the size.
    fn save(&self, x: &Value) -> Option<Handle> {
        self.recording
            .get()
            .then(|| if self.half { Loan::new(&self.ledger, 2, x.len) } else { x.tensor.clone() })
    }

    /// What backward reads a saved value from: the value itself, or a widened copy.
    fn widen(&self, len: usize) -> Option<Handle> {
        self.half.then(|| self.take(len))
    }

    /// A gradient is written: the first time its memory is taken.
    fn write(&self, slot: &Slot, len: usize) {
        if slot.borrow().is_none() {
            let taken = self.take(len);
            *slot.borrow_mut() = Some(taken);
        }
    }

    fn write_weight(&self, slots: &WeightSlots) {
        self.write(&slots.weight.0, slots.weight.1);
        if slots.bias.1 > 0 {
            self.write(&slots.bias.0, slots.bias.1);
        }
    }

    fn record(&self, backward: impl FnOnce(&Self) + 'static) {
        if self.recording.get() {
            self.tape.borrow_mut().push(Box::new(backward));
        }
    }

    /// Walks the tape back.
    pub(super) fn backward(&self) {
        let tape = self.tape.take();
        for backward in tape.into_iter().rev() {
            backward(self);
        }
    }

    /// Rows of a table.
    pub(super) fn looked_up(&self, table: &Weight, len: usize) -> Value {
        let out = self.value(len);
        let (dout, slots) = (out.gradient.clone(), WeightSlots::of(table));
        self.record(move |stage| {
            let _dout = dout.take();
            stage.write_weight(&slots);
        });
        out
    }

    /// `a + b` in the memory of `a`, which nobody else holds. Both get the same gradient.
    pub(super) fn sum(&self, a: Value, b: &Value) -> Value {
        let out = Value { gradient: Slot::default(), ..a.clone() };
        let (da, db, dout) = (a.gradient, b.gradient.clone(), out.gradient.clone());
        self.record(move |_| {
            let dout = dout.take();
            for slot in [db, da] {
                // Added to what is there, if anything is.
                let mut slot = slot.borrow_mut();
                if slot.is_none() {
                    slot.clone_from(&dout);
                }
            }
        });
        out
    }

    /// `a` and `b` concatenated.
    pub(super) fn joined(&self, a: &Value, b: &Value, len: usize) -> Value {
        let out = self.value(len);
        let (da, db, dout) = (a.gradient.clone(), b.gradient.clone(), out.gradient.clone());
        let (a_len, b_len) = (a.len, b.len);
        self.record(move |stage| {
            let _dout = dout.take();
            stage.write(&da, a_len);
            stage.write(&db, b_len);
        });
        out
    }

    /// An operation that changes its input and its gradient where they are: dropout, scaling.
    pub(super) fn in_place(&self, x: Value) -> Value {
        let out = Value { gradient: Slot::default(), ..x.clone() };
        let (dx, dout, len) = (x.gradient, out.gradient.clone(), x.len);
        self.record(move |stage| {
            let dout = dout.take();
            // A gradient that a sum has handed to two is copied before it is changed.
            let shared = dout.as_ref().is_some_and(|dout| Rc::strong_count(dout) > 1);
            *dx.borrow_mut() = if shared { Some(stage.take(len)) } else { dout };
        });
        out
    }

    /// A norm with `statistics` numbers per row.
    pub(super) fn norm(&self, x: &Value, weight: &Weight, rows: usize, statistics: usize) -> Value {
        let out = self.value(x.len);
        let per_row: Vec<Handle> = (0..statistics).map(|_| self.take(rows)).collect();
        let saved = self.save(x);
        let (dx, dout, len) = (x.gradient.clone(), out.gradient.clone(), x.len);
        let slots = WeightSlots::of(weight);
        if !self.recording.get() {
            return out;
        }
        self.record(move |stage| {
            let _dout = dout.take();
            let _widened = stage.widen(len);
            stage.write(&dx, len);
            stage.write_weight(&slots);
            drop((saved, per_row));
        });
        out
    }

    /// `x·Wᵀ + b`, `len` numbers.
    pub(super) fn product(&self, x: &Value, weight: &Weight, len: usize) -> Value {
        self.general_product(x, weight, len, false)
    }

    /// `f(x·Wᵀ + b)`, which also keeps the slope of f.
    pub(super) fn activated_product(&self, x: &Value, weight: &Weight, len: usize) -> Value {
        self.general_product(x, weight, len, true)
    }

    fn general_product(&self, x: &Value, weight: &Weight, len: usize, activated: bool) -> Value {
        self.read(weight);
        let out = self.value(len);
        let slope = (activated && self.recording.get()).then(|| self.value(len));
        let saved = self.save(x);
        let saved_slope = slope.as_ref().map(|slope| self.save(slope));
        drop(slope);
        let (dx, dout, x_len) = (x.gradient.clone(), out.gradient.clone(), x.len);
        let slots = WeightSlots::of(weight);
        self.record(move |stage| {
            let _dout = dout.take();
            if saved_slope.is_some() {
                drop(stage.widen(len));
            }
            drop(saved_slope);
            stage.write(&dx, x_len);
            stage.write(&slots.weight.0, slots.weight.1);
            drop(saved);
            stage.write_weight(&slots);
        });
        out
    }

    /// `f(x·Uᵀ + b)·Dᵀ + c`, `len` numbers by way of `wide`, which are kept with the slope of f.
    pub(super) fn feed_forward(
        &self,
        x: &Value,
        (up, down): (&Weight, &Weight),
        wide: usize,
        len: usize,
    ) -> Value {
        self.read(up);
        self.read(down);
        let hidden = self.value(wide);
        let slope = self.recording.get().then(|| self.value(wide));
        let out = self.value(len);
        let saved = self.save(x);
        let saved_hidden = self.save(&hidden);
        let saved_slope = slope.as_ref().and_then(|slope| self.save(slope));
        drop((hidden, slope));
        let (dx, dout, x_len) = (x.gradient.clone(), out.gradient.clone(), x.len);
        let (up, down) = (WeightSlots::of(up), WeightSlots::of(down));
        self.record(move |stage| {
            let dout = dout.take();
            stage.write_weight(&down);
            drop(saved_hidden);
            let slope = if stage.half { stage.widen(wide) } else { saved_slope.clone() };
            drop(saved_slope);
            let _dpre = stage.value(wide);
            drop((slope, dout));
            stage.write(&dx, x_len);
            stage.write_weight(&up);
            drop(saved);
        });
        out
    }

    /// `f(gate)·up`, `len` numbers of twice as many.
    pub(super) fn gated(&self, x: &Value, len: usize) -> Value {
        let out = self.value(len);
        let saved = self.save(x);
        let (dx, dout, x_len) = (x.gradient.clone(), out.gradient.clone(), x.len);
        self.record(move |stage| {
            let _dout = dout.take();
            let _widened = stage.widen(x_len);
            stage.write(&dx, x_len);
            drop(saved);
        });
        out
    }

    /// Attention of packed queries, keys and values; `sums` are the log-sum-exps, `table` what the
    /// rule has learned.
    pub(super) fn attention(
        &self,
        packed: &Value,
        len: usize,
        sums: usize,
        table: Option<&Weight>,
    ) -> Value {
        let out = self.value(len);
        let sums = self.take(sums);
        if !self.recording.get() {
            return out;
        }
        let saved = (self.save(packed), self.save(&out), sums);
        let (dx, dout, x_len) = (packed.gradient.clone(), out.gradient.clone(), packed.len);
        let slots = table.map(WeightSlots::of);
        self.record(move |stage| {
            let dout = dout.take();
            let _widened = (stage.widen(x_len), stage.widen(len));
            let _table = slots.as_ref().map(|slots| stage.take(slots.weight.1));
            stage.write(&dx, x_len);
            if let Some(slots) = slots {
                stage.write_weight(&slots);
            }
            drop((dout, saved));
        });
        out
    }

    /// The head and its loss: gradients of the rows and of the weight are made at once, with a
    /// chunk of logits beside them.
    pub(super) fn head(&self, x: &Value, weight: &Weight, rows: usize, chunk: usize) {
        self.read(weight);
        let _losses = self.take(rows);
        let dx = self.take(x.len);
        let dweight = self.take(weight.parts * weight.len);
        drop(self.take(chunk));
        let (x_slot, weight_slot) = (x.gradient.clone(), weight.gradient.clone());
        self.record(move |_| {
            *x_slot.borrow_mut() = Some(dx);
            *weight_slot.borrow_mut() = Some(dweight);
        });
    }

    /// `block(x)`, computed again in backward: only x is kept.
    pub(super) fn checkpoint(&self, x: &Value, block: impl Fn(Value) -> Value + 'static) -> Value {
        let again = Value { gradient: Slot::default(), ..x.clone() };
        self.recording.set(false);
        let out = block(again.clone());
        self.recording.set(true);
        let out = Value { gradient: Slot::default(), ..out };
        let (dx, dout) = (x.gradient.clone(), out.gradient.clone());
        self.record(move |stage| {
            let out = block(again.clone());
            *out.gradient.borrow_mut() = dout.take();
            stage.backward();
            *dx.borrow_mut() = again.gradient.take();
        });
        out
    }
}

/// Where the gradients of a weight and its bias go, and their lengths.
struct WeightSlots {
    weight: (Slot, usize),
    bias: (Slot, usize),
}

impl WeightSlots {
    fn of(weight: &Weight) -> Self {
        Self {
            weight: (weight.gradient.clone(), weight.parts * weight.len),
            bias: (weight.bias_gradient.clone(), weight.parts * weight.bias),
        }
    }
}
