//! Numbers on their way to the page: exact, and small.

use serde_json::{Value, json};
use std::ops::Range;

/// At most so many cells of a heat map travel in one answer.
const MOST_CELLS: usize = 1 << 15;
/// At most so many in a row or a column.
const MOST_SIDE: usize = 512;

/// Bytes as text.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |i: usize| u32::from(three.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// All bits of these numbers, little-endian.
pub(crate) fn floats(numbers: &[f32]) -> String {
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    base64(&bytes)
}

/// A number as the shortest decimal that gives these bits of f32 back; null if it is not finite.
pub(crate) fn exact(x: f32) -> Value {
    if !x.is_finite() {
        return Value::Null;
    }
    // Of the decimal rather than of the f32 itself, which has more digits in f64.
    x.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

/// A matrix of numbers, row by row.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Matrix<'_> {
    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.columns..(row + 1) * self.columns]
    }

    /// A part as the page draws it: `cells`, each the number itself, or where there are too many the
    /// one with the largest magnitude among `row_step` × `column_step`.
    pub(crate) fn window(&self, rows: Range<usize>, columns: Range<usize>) -> Value {
        let (mut row_step, mut column_step) = (1, columns.len().div_ceil(MOST_SIDE).max(1));
        let cells = |size: usize, step: usize| size.div_ceil(step);
        while cells(rows.len(), row_step) > MOST_SIDE
            || cells(rows.len(), row_step) * cells(columns.len(), column_step) > MOST_CELLS
        {
            row_step += 1;
        }
        // Fewer than sixteen rows are worse than fewer columns.
        while row_step > 1 && cells(rows.len(), row_step) < 16 {
            row_step -= 1;
            column_step = cells(columns.len() * cells(rows.len(), row_step), MOST_CELLS).max(1);
        }
        let mut found = Vec::new();
        let mut range: Option<[f32; 2]> = None;
        for first_row in rows.clone().step_by(row_step) {
            for first_column in columns.clone().step_by(column_step) {
                let last_column = (first_column + column_step).min(columns.end);
                let mut extreme = f32::NEG_INFINITY;
                for row in first_row..(first_row + row_step).min(rows.end) {
                    for x in &self.row(row)[first_column..last_column] {
                        let larger = x.abs() > extreme.abs() || !extreme.is_finite();
                        if x.is_nan() || (x.is_finite() && larger) {
                            extreme = *x;
                        }
                    }
                }
                if extreme.is_finite() {
                    let [low, high] = range.unwrap_or([extreme; 2]);
                    range = Some([low.min(extreme), high.max(extreme)]);
                }
                found.push(extreme);
            }
        }
        json!({
            "rows": [rows.start, rows.end], "columns": [columns.start, columns.end],
            "row_step": row_step, "column_step": column_step, "cells": floats(&found),
            "low": range.map(|r| exact(r[0])), "high": range.map(|r| exact(r[1])),
        })
    }

    /// A small picture: at most `side` × `side` bytes, the largest of each part, 255 for 1.
    pub(crate) fn thumbnail(&self, side: usize) -> Value {
        let step = self.rows.max(self.columns).div_ceil(side).max(1);
        let mut bytes = Vec::new();
        for first_row in (0..self.rows).step_by(step) {
            for first_column in (0..self.columns).step_by(step) {
                let rows = first_row..(first_row + step).min(self.rows);
                let columns = first_column..(first_column + step).min(self.columns);
                let all = rows.flat_map(|row| &self.row(row)[columns.clone()]);
                let most = all.copied().fold(0.0, f32::max);
                bytes.push((most.clamp(0.0, 1.0) * 255.0).round() as u8);
            }
        }
        let columns = self.columns.div_ceil(step);
        json!({ "rows": self.rows.div_ceil(step), "columns": columns, "bytes": base64(&bytes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_the_usual_letters() {
        for (bytes, want) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), want);
        }
    }

    #[test]
    fn exact_numbers_have_the_digits_of_f32() {
        assert_eq!(exact(0.1).to_string(), "0.1");
        assert_eq!(exact(-1.0e-20).as_f64().unwrap() as f32, -1.0e-20);
        assert_eq!(exact(f32::NEG_INFINITY), Value::Null);
    }

    #[test]
    fn large_matrices_are_thinned_out_and_the_largest_numbers_stay() {
        let (rows, columns) = (2000, 2000);
        let mut data = vec![0.25_f32; rows * columns];
        data[777 * columns + 1234] = -3.0;
        let matrix = Matrix { data: &data, rows, columns };
        let window = matrix.window(0..rows, 0..columns);
        assert_eq!((&window["low"], &window["high"]), (&json!(-3.0), &json!(0.25)));
        assert!(window["cells"].as_str().unwrap().len() < 4 * MOST_CELLS * 4 / 3 + 8);
        let exact = matrix.window(770..790, 1230..1240);
        assert_eq!((&exact["row_step"], &exact["column_step"]), (&json!(1), &json!(1)));
        let small = matrix.thumbnail(32);
        assert!(small["rows"].as_u64().unwrap() <= 32);
    }

    #[test]
    fn wide_rows_keep_their_rows() {
        let data = vec![1.0_f32; 20 * 50257];
        let window = Matrix { data: &data, rows: 20, columns: 50257 }.window(0..20, 0..50257);
        assert_eq!(window["row_step"], 1);
        let hidden = [f32::NEG_INFINITY; 4];
        let window = Matrix { data: &hidden, rows: 2, columns: 2 }.window(0..2, 0..2);
        assert_eq!(window["low"], Value::Null);
    }
}
