//! The header of a safetensors file: eight bytes with the length of a JSON object, and the object,
//! which maps each name to a type, a shape and a place behind the header.
//!
//! Everything is checked before it is used: the length against the file, places against the data and
//! each other, shapes against places. Every byte of the data belongs to exactly one tensor.

use serde_json::{Map, Value, json};

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
    let header: Map<String, Value> =
        serde_json::from_slice(header).map_err(|e| format!("the header is not JSON: {e}"))?;
    let tensors = header.into_iter().filter(|(name, _)| name != "__metadata__");
    let mut entries: Vec<Entry> =
        tensors.map(|(name, value)| entry(name, &value, room)).collect::<Result<_, _>>()?;
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

fn entry(name: String, value: &Value, room: u64) -> Result<Entry, String> {
    let numbers = |key: &str| -> Option<Vec<u64>> {
        value.get(key)?.as_array()?.iter().map(Value::as_u64).collect()
    };
    let (Some(dtype), Some(shape), Some(place)) =
        (value.get("dtype").and_then(Value::as_str), numbers("shape"), numbers("data_offsets"))
    else {
        return Err(format!("{name} lacks a dtype, shape or data_offsets"));
    };
    let [start, end] = place[..] else { return Err(format!("{name} has no start and end")) };
    let dims = shape.iter().map(|d| usize::try_from(*d).ok()).collect::<Option<Vec<usize>>>();
    let count = shape.iter().try_fold(1_u64, |n, d| n.checked_mul(*d));
    let (Some(dims), Some(count)) = (dims, count) else {
        return Err(format!("{name} of shape {shape:?} is too large"));
    };
    let fits = start <= end && end <= room;
    let expected = bits(dtype).map(|bits| u128::from(bits) * u128::from(count));
    if !fits || expected.is_some_and(|expected| expected != 8 * u128::from(end - start)) {
        let at = format!("{start}..{end} of {room} bytes");
        return Err(format!("{name}, {dtype} of shape {shape:?}, does not lie at {at}"));
    }
    Ok(Entry { name, dtype: dtype.to_owned(), shape: dims, start, end })
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
