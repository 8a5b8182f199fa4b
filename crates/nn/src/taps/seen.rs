//! What taps have recorded.

use hearken_kernels::elementwise;
use hearken_tensor::Tensor;
use std::collections::HashMap;

/// Recorded values by name, in the order in which they came.
pub(super) struct Seen {
    entries: Vec<(String, Entry)>,
    places: HashMap<String, usize>,
    bytes: usize,
    pub(super) most_bytes: usize,
    /// The first name that there was no room for.
    pub(super) overflow: Option<String>,
}

enum Entry {
    /// Room for a gradient of so many numbers.
    Awaited(usize),
    Here(Tensor),
}

impl Entry {
    fn bytes(&self) -> usize {
        let numbers = match self {
            Self::Awaited(numbers) => *numbers,
            Self::Here(tensor) => tensor.shape().len(),
        };
        numbers * size_of::<f32>()
    }
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            places: HashMap::new(),
            bytes: 0,
            most_bytes: usize::MAX,
            overflow: None,
        }
    }
}

impl Seen {
    /// A value; one of the same name is replaced.
    pub(super) fn set(&mut self, name: String, value: Tensor) {
        self.put(name, Entry::Here(value));
    }

    /// Makes room for a gradient; false if there is none.
    pub(super) fn reserve(&mut self, name: &str, numbers: usize) -> bool {
        self.places.contains_key(name) || self.put(name.to_owned(), Entry::Awaited(numbers))
    }

    /// A gradient; it is added to one of the same name.
    pub(super) fn add(&mut self, name: String, gradient: Tensor) {
        match self.places.get(&name).map(|place| &mut self.entries[*place].1) {
            Some(Entry::Here(sum)) => {
                let (old, new) = (sum.shape(), gradient.shape());
                assert_eq!(old, new, "gradients of {name} that do not add up: take them first");
                elementwise::add_assign(sum.data_mut(), gradient.data());
            }
            _ => {
                self.put(name, Entry::Here(gradient));
            }
        }
    }

    fn put(&mut self, name: String, entry: Entry) -> bool {
        let place = self.places.get(&name).copied();
        let before = place.map_or(0, |place| self.entries[place].1.bytes());
        let bytes = self.bytes - before + entry.bytes();
        if bytes > self.most_bytes {
            self.overflow.get_or_insert(name);
            return false;
        }
        self.bytes = bytes;
        if let Some(place) = place {
            self.entries[place].1 = entry;
        } else {
            self.places.insert(name.clone(), self.entries.len());
            self.entries.push((name, entry));
        }
        true
    }

    pub(super) fn get(&self, name: &str) -> Option<Tensor> {
        match &self.entries[*self.places.get(name)?].1 {
            Entry::Here(tensor) => Some(tensor.clone()),
            Entry::Awaited(_) => None,
        }
    }

    pub(super) fn take(&mut self) -> Vec<(String, Tensor)> {
        (self.bytes, self.overflow) = (0, None);
        self.places.clear();
        let here = |(name, entry)| match entry {
            Entry::Here(tensor) => Some((name, tensor)),
            Entry::Awaited(_) => None,
        };
        std::mem::take(&mut self.entries).into_iter().filter_map(here).collect()
    }
}
