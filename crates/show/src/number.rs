//! Numbers as people read them.

/// With commas: 12345 → 12,345
pub fn thousands(x: f64) -> String {
    let digits = format!("{x:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        let inside = i > 0 && out != "-";
        if inside && (digits.len() - i).is_multiple_of(3) && digit.is_ascii_digit() {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Three digits and a letter: 1234567 → 1.23M
pub fn short(x: f64) -> String {
    for (unit, letter) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if x >= unit {
            let x = x / unit;
            let digits = if x < 10.0 { 2 } else { usize::from(x < 100.0) };
            return format!("{x:.digits$}{letter}");
        }
    }
    format!("{x:.0}")
}

/// Hours, minutes and seconds: 3725 → 1h 02m
pub fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m {:02}s", s / 60, s % 60),
        3600..86400 => format!("{}h {:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d {:02}h", s / 86400, s / 3600 % 24),
    }
}

/// Bytes in powers of 1000: 93,123,456 → 93.1 MB
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// Bytes as so many megabytes, without the unit: for columns and comparisons.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / 1e6)
}

/// Floating-point operations: 2.5e11 → 250 GFLOP
pub fn operations(flops: f64) -> String {
    scaled(flops, &["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"])
}

/// Three significant digits, in the largest unit that leaves at least 1.
fn scaled(mut x: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while x >= 999.5 && unit + 1 < units.len() {
        x /= 1000.0;
        unit += 1;
    }
    let digits = match x {
        _ if unit == 0 => 0,
        _ if x < 9.995 => 2,
        _ if x < 99.95 => 1,
        _ => 0,
    };
    format!("{x:.digits$} {}", units[unit])
}

/// Four significant digits, with an exponent for what is very large or very small.
pub fn significant(x: f64) -> String {
    if x == 0.0 {
        "0".to_owned()
    } else if (1e-3..1e6).contains(&x.abs()) {
        let digits = (3 - x.abs().log10().floor() as i32).clamp(0, 6) as usize;
        format!("{x:.digits$}")
    } else {
        format!("{x:.3e}")
    }
}

/// Two significant digits and an exponent, for errors and their bounds: `1.2e-7`, `2e-6`, `0`.
pub fn error(x: f64) -> String {
    if x == 0.0 { "0".to_owned() } else { format!("{x:.1e}").replace(".0e", "e") }
}

/// A share: 0.4312 → 43.1 %
pub fn percent(share: f64, digits: usize) -> String {
    format!("{:.digits$} %", 100.0 * share)
}

/// A count and its noun: `1 case`, `2 cases`.
pub fn plural(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_have_commas() {
        assert_eq!(
            [0.0, 7.0, 999.0, 1000.0, 124_439_808.0, -123_456.0].map(thousands),
            ["0", "7", "999", "1,000", "124,439,808", "-123,456"]
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 999.0, 1234.0, 61_234.0, 1e6].map(short),
            ["0", "999", "1.23k", "61.2k", "1.00M"]
        );
        assert_eq!(
            [0.4, 59.6, 3725.0, 90_000.0].map(duration),
            ["0s", "1m 00s", "1h 02m", "1d 01h"]
        );
        assert_eq!([999, 999_600, 12_345_678].map(bytes), ["999 B", "1.00 MB", "12.3 MB"]);
        assert_eq!(operations(2.5e11), "250 GFLOP");
        assert_eq!(megabytes(93_123_456), "93");
    }

    #[test]
    fn digits_that_count_are_kept() {
        assert_eq!(
            [0.0, 0.012345, 1.0, 123_456.0, 1e-7, -2.5, f64::NAN].map(significant),
            ["0", "0.01235", "1.000", "123456", "1.000e-7", "-2.500", "NaN"]
        );
        assert_eq!(
            [1.23e-7, 3.0000000000000004e-6, 0.0, f64::NAN].map(error),
            ["1.2e-7", "3e-6", "0", "NaN"]
        );
        assert_eq!((percent(0.4312, 1), plural(1, "op")), ("43.1 %".to_owned(), "1 op".to_owned()));
    }
}
