//! The header of a safetensors file: eight bytes with the length of a JSON object, and the object,
//! which maps each name to a type, a shape and a place behind the header.
//!
//! Everything is checked before it is used: the length against the file, places against the data and
//! each other, shapes against places. Every byte of the data belongs to exactly one tensor.

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;

/// Longer headers are refused, as the format's own reader does.
pub(crate) const LONGEST: u64 = 100_000_000;

/// What a file says of one tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its type, as the file writes it: `F32`, `F16`, `BF16`, `I64`, …
    pub dtype: String,
    /// Its dimensions.
    pub shape: Vec<usize>,
    /// Its first byte, counted from the end of the header.
    pub(crate) start: u64,
    /// The byte behind its last.
    pub(crate) end: u64,
}

impl Entry {
    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Is some dimension zero?
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
}

/// How many bits a number of this type takes; `None` for types that came after this was written.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F64" | "I64" | "U64" | "C64" => 64,
        "F32" | "I32" | "U32" => 32,
        "F16" | "BF16" | "I16" | "U16" => 16,
        "I8" | "U8" | "BOOL" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" => 8,
        "F6_E2M3" | "F6_E3M2" => 6,
        "F4" => 4,
        _ => return None,
    })
}

/// Reads and checks a header in front of `room` bytes of data. The entries are in the order of their
/// places; an error says what is wrong.
pub(crate) fn parse(header: &[u8], room: u64) -> Result<Vec<Entry>, String> {
    let Tensors(tensors) = serde_json::from_slice(header).map_err(|e| {
        let what = if e.is_data() { "not a table of tensors" } else { "not JSON" };
        format!("the header is {what}: {e}")
    })?;
    let mut entries: Vec<Entry> =
        tensors.into_iter().map(|(name, raw)| raw.check(name, room)).collect::<Result<_, _>>()?;
    entries.sort_by_key(|entry| (entry.start, entry.end));
    let mut at = 0;
    for Entry { name, start, end, .. } in &entries {
        if *start < at {
            return Err(format!("{name} overlaps the tensor before it"));
        }
        if *start > at {
            return Err(format!("{} bytes before {name} belong to no tensor", start - at));
        }
        at = *end;
    }
    if at < room {
        return Err(format!("{} bytes at the end belong to no tensor", room - at));
    }
    Ok(entries)
}

/// The tensors of a header by name, none of them twice. They are read one by one into what they need,
/// so that a header takes no more memory than its length allows for.
struct Tensors(BTreeMap<String, Raw>);

impl<'de> Deserialize<'de> for Tensors {
    fn deserialize<D: Deserializer<'de>>(header: D) -> Result<Self, D::Error> {
        header.deserialize_map(TensorsVisitor)
    }
}

struct TensorsVisitor;

impl<'de> Visitor<'de> for TensorsVisitor {
    type Value = Tensors;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tensors, A::Error> {
        let mut tensors = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
            } else if let Some((name, _)) = tensors.remove_entry(&name) {
                return Err(A::Error::custom(format!("{name} is there twice")));
            } else {
                let raw = map.next_value();
                let raw = raw.map_err(|e| A::Error::custom(format!("{name}: {e}")))?;
                tensors.insert(name, raw);
            }
        }
        Ok(Tensors(tensors))
    }
}

/// An entry as it is written.
#[derive(Deserialize)]
struct Raw {
    dtype: String,
    shape: Dims,
    data_offsets: [u64; 2],
}

/// A list of at most [`MOST_DIMS`] numbers.
struct Dims(Vec<u64>);

/// Far above what any library allows.
const MOST_DIMS: usize = 64;

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(list: D) -> Result<Self, D::Error> {
        list.deserialize_seq(DimsVisitor)
    }
}

struct DimsVisitor;

impl<'de> Visitor<'de> for DimsVisitor {
    type Value = Dims;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of dimensions")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Dims, A::Error> {
        let mut dims = Vec::new();
        while let Some(dim) = list.next_element()? {
            if dims.len() == MOST_DIMS {
                return Err(A::Error::custom(format!("more than {MOST_DIMS} dimensions")));
            }
            dims.push(dim);
        }
        Ok(Dims(dims))
    }
}

impl Raw {
    fn check(self, name: String, room: u64) -> Result<Entry, String> {
        let Self { dtype, shape: Dims(shape), data_offsets: [start, end] } = self;
        let dims = shape.iter().map(|d| usize::try_from(*d).ok()).collect::<Option<Vec<usize>>>();
        let count = shape.iter().try_fold(1_u64, |n, d| n.checked_mul(*d));
        let (Some(dims), Some(count)) = (dims, count) else {
            return Err(format!("{name} of shape {shape:?} is too large"));
        };
        let fits = start <= end && end <= room && {
            let (held, count) = (8 * u128::from(end - start), u128::from(count));
            match bits(&dtype) {
                Some(bits) => u128::from(bits) * count == held,
                None => count <= held, // a number of any type takes a bit at least
            }
        };
        if !fits {
            let at = format!("{start}..{end} of {room} bytes");
            return Err(format!("{name}, {dtype} of shape {shape:?}, does not lie at {at}"));
        }
        Ok(Entry { name, dtype, shape: dims, start, end })
    }
}

/// The bytes in front of the data of f32 tensors of these names and shapes, in this order.
pub(crate) fn of<'a>(tensors: impl IntoIterator<Item = (&'a str, &'a [usize])>) -> Vec<u8> {
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
    let mut at = 0_u64;
    for (name, shape) in tensors {
        let end = at + 4 * shape.iter().product::<usize>() as u64;
        let entry = json!({ "dtype": "F32", "shape": shape, "data_offsets": [at, end] });
        header.insert(name.to_owned(), entry);
        at = end;
    }
    let mut text = Value::Object(header).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' '); // numbers start on eight bytes
    [&(text.len() as u64).to_le_bytes()[..], &text].concat()
}
