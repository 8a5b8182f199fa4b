//! Ways to damage a file.

use crate::dice::Dice;
use serde_json::{Value, json};

/// How the bytes of a target are to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One JSON value.
    Json,
    /// Other text: lines, TOML, JSON lines.
    Text,
    /// Eight bytes with a length, JSON of that length, and data.
    Safetensors,
    /// Anything.
    Binary,
}

/// A damaged copy of `bytes`.
pub fn mutate(bytes: &[u8], form: Form, dice: &mut Dice) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for _ in 0..=dice.below(3) {
        out = match (form, dice.below(4)) {
            (Form::Json, 1..) => json_text(&out, dice),
            (Form::Text, 1 | 2) => numbers(&out, dice),
            (Form::Safetensors, 1..) => safetensors(&out, dice),
            _ => damage(out, dice),
        };
    }
    out
}

/// Bytes that mean something in many formats.
const BYTES: [u8; 16] =
    [0, 0xff, 0x7f, 0x80, b'"', b'{', b'}', b'[', b']', b'\\', b',', b':', b'\n', b'-', b'9', b' '];

/// Changes bytes without knowing what they mean.
fn damage(mut bytes: Vec<u8>, dice: &mut Dice) -> Vec<u8> {
    let at = dice.below(bytes.len());
    let len = 1 + dice.below(16.min(bytes.len().saturating_sub(at).max(1)));
    let end = (at + len).min(bytes.len());
    match dice.below(9) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << dice.below(8),
        1 if !bytes.is_empty() => bytes[at] = *dice.one(&BYTES),
        2 => bytes.insert(at, *dice.one(&BYTES)),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let again: Vec<u8> = bytes[at..end].to_vec();
            let times = *dice.one(&[1, 2, 50, 2000]);
            drop(bytes.splice(at..at, again.repeat(times)));
        }
        5 => bytes.truncate(at),
        6 => {
            let from = dice.below(bytes.len());
            let moved: Vec<u8> = bytes[from..].iter().copied().take(len).collect();
            drop(bytes.splice(at..end, moved));
        }
        7 => {
            let random: Vec<u8> = (0..len).map(|_| dice.any() as u8).collect();
            drop(bytes.splice(at..end, random));
        }
        _ => return numbers(&bytes, dice),
    }
    bytes
}

/// Numbers at the edges of types and of what is sensible.
const NUMBERS: [&str; 30] = [
    "0",
    "-1",
    "1",
    "2",
    "3",
    "7",
    "0.5",
    "-0.0",
    "1e-45",
    "1e308",
    "1e999",
    "nan",
    "inf",
    "127",
    "255",
    "256",
    "65535",
    "65536",
    "16384",
    "1000000",
    "100000000",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "123456789012345678901234567890",
];

fn number(dice: &mut Dice) -> &'static str {
    NUMBERS[dice.below(NUMBERS.len())]
}

/// Puts another number in the place of one.
fn numbers(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let is_digit = |i: usize| bytes.get(i).is_some_and(u8::is_ascii_digit);
    let starts: Vec<usize> =
        (0..bytes.len()).filter(|&i| is_digit(i) && (i == 0 || !is_digit(i - 1))).collect();
    let mut out = bytes.to_vec();
    if starts.is_empty() {
        return out;
    }
    let start = *dice.one(&starts);
    let end = (start..bytes.len()).find(|&i| !is_digit(i)).unwrap_or(bytes.len());
    out.splice(start..end, number(dice).bytes());
    out
}

/// Changes a value somewhere inside of JSON; other text by its bytes.
fn json_text(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    match serde_json::from_slice::<Value>(bytes) {
        Ok(mut value) => {
            change(&mut value, dice);
            value.to_string().into_bytes()
        }
        Err(_) => damage(bytes.to_vec(), dice),
    }
}

/// Changes `value` or something in it.
fn change(value: &mut Value, dice: &mut Dice) {
    let go_on = dice.below(4) > 0;
    match value {
        Value::Object(map) if go_on && !map.is_empty() => {
            let key = map.keys().nth(dice.below(map.len())).cloned().unwrap_or_default();
            match dice.below(12) {
                0 => drop(map.remove(&key)),
                1 => {
                    let value = map.remove(&key).unwrap_or_default();
                    map.insert(text(dice), value);
                }
                2 => drop(map.insert(text(dice), strange(dice))),
                _ => change(map.entry(key).or_insert(Value::Null), dice),
            }
        }
        Value::Array(list) if go_on && !list.is_empty() => {
            let at = dice.below(list.len());
            match dice.below(12) {
                0 => drop(list.remove(at)),
                1 => {
                    let again = list[at].clone();
                    list.insert(at, again);
                }
                2 => list.push(strange(dice)),
                _ => change(&mut list[at], dice),
            }
        }
        Value::Number(_) if dice.below(4) > 0 => {
            *value = serde_json::from_str(number(dice)).unwrap_or(Value::Null);
        }
        _ => *value = strange(dice),
    }
}

/// A value that is not expected.
fn strange(dice: &mut Dice) -> Value {
    match dice.below(9) {
        0 => Value::Null,
        1 => json!(dice.below(2) == 0),
        2 => json!([]),
        3 => json!({}),
        4 => text(dice).into(),
        5 => {
            let deep = 1 + dice.below(120);
            (0..deep).fold(Value::Null, |inner, _| json!([inner]))
        }
        6 => json!(vec![0; dice.below(20_000)]),
        _ => serde_json::from_str(number(dice)).unwrap_or(Value::Null),
    }
}

/// A text that is not expected.
fn text(dice: &mut Dice) -> String {
    match dice.below(8) {
        0 => String::new(),
        1 => "x".repeat(dice.below(70_000)),
        2 => "../../../etc/passwd".to_owned(),
        3 => "\u{1b}[2J\u{7}".to_owned(),
        4 => "\0".to_owned(),
        5 => "a\u{301}\u{202e}𝕏🦊".repeat(1 + dice.below(40)),
        6 => number(dice).to_owned(),
        _ => char::from(dice.any() as u8).to_string(),
    }
}

/// Changes the header and keeps its length right, so that the change is seen.
fn safetensors(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let length = bytes.first_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length) as usize);
    let Some(header) = length.checked_add(8).and_then(|end| bytes.get(8..end)) else {
        return damage(bytes.to_vec(), dice);
    };
    let changed = match dice.below(4) {
        0 => numbers(header, dice),
        1 => damage(header.to_vec(), dice),
        _ => json_text(header, dice),
    };
    [&(changed.len() as u64).to_le_bytes()[..], &changed, &bytes[8 + length..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_case_is_the_same_file_and_cases_differ() {
        let good = br#"{"a": [1, 2, {"b": "text"}], "c": 3.5}"#;
        let make = |case| mutate(good, Form::Json, &mut Dice::new(1, case));
        let cases: Vec<Vec<u8>> = (0..200).map(make).collect();
        assert_eq!(cases, (0..200).map(make).collect::<Vec<_>>());
        let different: std::collections::HashSet<&Vec<u8>> = cases.iter().collect();
        assert!(different.len() > 150, "{}", different.len());
        // Most are still JSON, or nothing behind the parser would be tried.
        let parsed = cases.iter().filter(|c| serde_json::from_slice::<Value>(c).is_ok()).count();
        assert!((80..200).contains(&parsed), "{parsed}");
    }

    #[test]
    fn nothing_at_all_can_be_damaged() {
        for form in [Form::Json, Form::Text, Form::Safetensors, Form::Binary] {
            for case in 0..200 {
                let _ = mutate(b"", form, &mut Dice::new(2, case));
            }
        }
    }
}
