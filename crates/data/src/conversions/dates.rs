//! Dates from 1600 to 2399, in many ways of writing.

use super::numbers::{Style, below_hundred, words};
use hearken_tensor::rng::Rng;
use std::ops::RangeInclusive;

const MONTHS: [&str; 12] = [
    "January",
    "February",
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
];
const WEEKDAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
/// Of 1 to 19, and of the tens.
const ORDINALS: [&str; 20] = [
    "",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
];
const YEARS: RangeInclusive<u64> = 1600..=2399;

/// Tokens of the longest: "Wednesday, the twenty-third of September one thousand seven hundred and
/// seventy-three".
pub(super) const LONGEST: usize = 17;

/// A day of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    year: u64,
    /// From 1.
    month: usize,
    /// From 1.
    day: usize,
}

impl Date {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let year = YEARS.start() + rng.below((YEARS.end() - YEARS.start() + 1) as usize) as u64;
        let month = 1 + rng.below(12);
        Self { year, month, day: 1 + rng.below(days_in(year, month)) }
    }

    /// A number of its own.
    pub(super) fn number(self) -> u64 {
        self.year * 10_000 + (self.month * 100 + self.day) as u64
    }

    /// 2021-03-03
    pub(super) fn iso(self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }

    /// The third of March 2021
    pub(super) fn plainly(self) -> String {
        format!("the {} of {} {}", ordinal(self.day), MONTHS[self.month - 1], self.year)
    }

    /// In one of many ways.
    pub(super) fn written(self, rng: &mut Rng) -> String {
        let Self { year, month, day } = self;
        let (month, ordinal) = (MONTHS[month - 1], ordinal(day));
        let year = match rng.below(4) {
            0 => in_pairs(year),
            1 => words(year, Style { and: rng.below(2) > 0, hyphen: true }),
            _ => year.to_string(),
        };
        let date = match rng.below(7) {
            0 => format!("the {ordinal} of {month} {year}"),
            1 => format!("{month} the {ordinal}, {year}"),
            2 => format!("{ordinal} {month} {year}"),
            3 => format!("{day} {month} {year}"),
            4 => format!("{month} {day}, {year}"),
            5 => format!("the {day}{} of {month} {year}", ending(day)),
            _ => format!("{month} {day}{}, {year}", ending(day)),
        };
        if rng.below(4) == 0 { format!("{}, {date}", self.weekday()) } else { date }
    }

    fn weekday(self) -> &'static str {
        // Days since 1600-01-01, a Saturday.
        let years = self.year - YEARS.start();
        let leap = years.div_ceil(4) - years.div_ceil(100) + years.div_ceil(400);
        let months: usize = (1..self.month).map(|month| days_in(self.year, month)).sum();
        let days = (365 * years + leap) as usize + months + self.day - 1;
        WEEKDAYS[(days + 5) % 7]
    }
}

fn days_in(year: u64, month: usize) -> usize {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + usize::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Nineteen ninety-nine, nineteen oh five, nineteen hundred, two thousand and five.
fn in_pairs(year: u64) -> String {
    let (centuries, rest) = ((year / 100) as usize, (year % 100) as usize);
    if year % 1000 < 10 {
        return words(year, Style::default());
    }
    let centuries = below_hundred(centuries, true);
    match rest {
        0 => format!("{centuries} hundred"),
        1..10 => format!("{centuries} oh {}", below_hundred(rest, true)),
        _ => format!("{centuries} {}", below_hundred(rest, true)),
    }
}

/// Of 1 to 31.
fn ordinal(day: usize) -> String {
    match (day / 10, day % 10) {
        (0 | 1, _) => ORDINALS[day].to_owned(),
        (2, 0) => "twentieth".to_owned(),
        (3, 0) => "thirtieth".to_owned(),
        (tens, ones) => format!("{}-{}", below_hundred(10 * tens, true), ORDINALS[ones]),
    }
}

/// 1st, 2nd, 3rd, 4th, 11th, 21st
fn ending(day: usize) -> &'static str {
    match (day / 10, day % 10) {
        (1, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

/// Every word that dates are written with, beside those of numbers.
pub(super) fn fragments(add: &mut dyn FnMut(&str)) {
    let others = ["the", "of", "oh", "twentieth", "thirtieth", "st", "nd", "rd", "th"];
    let all = MONTHS.iter().chain(&WEEKDAYS).chain(&ORDINALS).chain(&others);
    all.for_each(|word| add(word));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn date(year: u64, month: usize, day: usize) -> Date {
        Date { year, month, day }
    }

    #[test]
    fn days_of_the_week_are_right() {
        let known = [
            (date(1600, 1, 1), "Saturday"),
            (date(1789, 7, 14), "Tuesday"),
            (date(1900, 3, 1), "Thursday"),
            (date(2000, 2, 29), "Tuesday"),
            (date(2021, 3, 3), "Wednesday"),
            (date(2399, 12, 31), "Friday"),
        ];
        for (date, weekday) in known {
            assert_eq!(date.weekday(), weekday, "{date:?}");
        }
        assert_eq!([1900, 2000, 2023, 2024].map(|year| days_in(year, 2)), [28, 29, 28, 29]);
    }

    #[test]
    fn years_and_days_are_written_as_people_say_them() {
        let years = [
            (1999, "nineteen ninety-nine"),
            (1905, "nineteen oh five"),
            (1900, "nineteen hundred"),
            (2000, "two thousand"),
            (2005, "two thousand and five"),
            (2021, "twenty twenty-one"),
            (2010, "twenty ten"),
        ];
        for (year, words) in years {
            assert_eq!(in_pairs(year), words);
        }
        assert_eq!(
            [3, 12, 20, 21, 30, 31].map(ordinal),
            ["third", "twelfth", "twentieth", "twenty-first", "thirtieth", "thirty-first"]
        );
        let endings = [1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30].map(ending);
        assert_eq!(endings, ["st", "nd", "rd", "th", "th", "th", "th", "st", "nd", "rd", "th"]);
        assert_eq!(date(2021, 3, 3).plainly(), "the third of March 2021");
        assert_eq!(date(2021, 3, 3).iso(), "2021-03-03");
        // No words stand for two years.
        let mut years = HashMap::new();
        for year in YEARS {
            let plain = Style { and: false, hyphen: true };
            for said in [in_pairs(year), words(year, Style::default()), words(year, plain)] {
                assert_eq!(*years.entry(said.clone()).or_insert(year), year, "{said}");
            }
        }
    }
}
