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

/// A count and its noun: `1 case`, `2,000 cases`.
pub fn plural(n: usize, thing: &str) -> String {
    format!("{} {thing}{}", thousands(n as f64), if n == 1 { "" } else { "s" })
}

/// A day in UTC, from seconds since 1970: "18 November 2026".
///
/// Days are counted in eras of 400 years from 1 March of the year 0, so that a leap day is the last
/// of its year (Howard Hinnant, "chrono-compatible low-level date algorithms").
pub fn date(seconds: u64) -> String {
    const MONTHS: [&str; 12] = [
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
        "January",
        "February",
    ];
    let days = seconds / 86_400 + 719_468; // from 1 March of the year 0 to 1 January 1970
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = 400 * era + year + u64::from(month >= 10);
    format!("{day} {} {year}", MONTHS[month as usize % 12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, want) in [
            (0, "1 January 1970"),
            (68_169_600, "29 February 1972"),
            (951_782_400, "29 February 2000"),
            (951_868_800, "1 March 2000"),
            (1_794_960_000, "18 November 2026"),
            (4_107_542_399, "28 February 2100"),
            (4_107_542_400, "1 March 2100"),
        ] {
            assert_eq!(date(seconds), want);
        }
    }

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
        assert_eq!([0, 2, 12_345].map(|n| plural(n, "op")), ["0 ops", "2 ops", "12,345 ops"]);
    }
}
