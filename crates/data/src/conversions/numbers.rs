//! Numbers in English words, up to 999 quadrillion.

use super::pieces;
use hearken_tensor::rng::Rng;
use std::ops::RangeInclusive;

const SMALL: [&str; 20] = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
];
const TENS: [&str; 10] =
    ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];
const SCALES: [&str; 6] = ["", "thousand", "million", "billion", "trillion", "quadrillion"];

/// Tokens of a number in words that is drawn.
pub(super) const TOKENS: RangeInclusive<usize> = 5..=40;
/// Digits of the largest number.
pub(super) const DIGITS: usize = 3 * SCALES.len();
/// Tokens of any number: six of each group ("nine hundred and ninety-nine"), its scale, and no
/// scale of the last.
pub(super) const LONGEST: usize = 7 * SCALES.len() - 1;

/// How a number is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// One hundred and two, rather than one hundred two.
    pub(super) and: bool,
    /// Twenty-one, rather than twenty one.
    pub(super) hyphen: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self { and: true, hyphen: true }
    }
}

/// A number below 10¹⁸ in words.
pub(super) fn words(number: u64, style: Style) -> String {
    if number == 0 {
        return SMALL[0].to_owned();
    }
    let mut parts: Vec<String> = Vec::new();
    for (place, scale) in SCALES.iter().enumerate().rev() {
        let group = number / 1000_u64.pow(place as u32) % 1000;
        if group == 0 {
            continue;
        }
        // "one million and five"
        let last = place == 0 && group < 100 && !parts.is_empty() && style.and;
        parts.extend(last.then(|| "and".to_owned()));
        parts.push(below_thousand(group as usize, style));
        parts.extend((place > 0).then(|| (*scale).to_owned()));
    }
    parts.join(" ")
}

fn below_thousand(number: usize, style: Style) -> String {
    let (hundreds, rest) = (number / 100, number % 100);
    let mut parts = Vec::new();
    if hundreds > 0 {
        parts.push(format!("{} hundred", SMALL[hundreds]));
        parts.extend((rest > 0 && style.and).then(|| "and".to_owned()));
    }
    if rest > 0 {
        parts.push(below_hundred(rest, style.hyphen));
    }
    parts.join(" ")
}

/// A number from 1 to 99.
pub(super) fn below_hundred(number: usize, hyphen: bool) -> String {
    match (number / 10, number % 10) {
        (0 | 1, _) => SMALL[number].to_owned(),
        (tens, 0) => TENS[tens].to_owned(),
        (tens, ones) => {
            format!("{}{}{}", TENS[tens], if hyphen { "-" } else { " " }, SMALL[ones])
        }
    }
}

/// A number and its words, [`TOKENS`] of them: of every size about as many, with zeros in all
/// places.
pub(super) fn draw(rng: &mut Rng) -> (u64, String) {
    loop {
        let groups = 1 + rng.below(SCALES.len());
        let mut number = 0;
        for place in 0..groups {
            let below = [1, 10, 100, 1000, 1000, 1000, 1000, 1000][rng.below(8)];
            let group = rng.below(below) as u64;
            number = 1000 * number + if place == 0 { group.max(1) } else { group };
        }
        let style = Style { and: rng.below(4) > 0, hyphen: rng.below(4) > 0 };
        let words = words(number, style);
        if TOKENS.contains(&pieces(&words).count()) {
            return (number, words);
        }
    }
}

/// Every word that numbers are written with.
pub(super) fn fragments(add: &mut dyn FnMut(&str)) {
    let all = SMALL.iter().chain(&TENS).chain(&SCALES).chain(&["hundred", "and"]);
    all.for_each(|word| add(word));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_people_say_them() {
        let plain = Style { and: false, hyphen: false };
        for (number, long, short) in [
            (0, "zero", "zero"),
            (19, "nineteen", "nineteen"),
            (40, "forty", "forty"),
            (101, "one hundred and one", "one hundred one"),
            (321, "three hundred and twenty-one", "three hundred twenty one"),
            (1005, "one thousand and five", "one thousand five"),
            (2_000_300, "two million three hundred", "two million three hundred"),
            (
                999_000_021_000_000_110,
                "nine hundred and ninety-nine quadrillion twenty-one billion one hundred and ten",
                "nine hundred ninety nine quadrillion twenty one billion one hundred ten",
            ),
        ] {
            assert_eq!(words(number, Style::default()), long);
            assert_eq!(words(number, plain), short);
        }
        let largest = words(10_u64.pow(DIGITS as u32) - 1, Style::default());
        assert_eq!(pieces(&largest).count(), LONGEST);
    }

    #[test]
    fn lengths_reach_from_end_to_end() {
        let mut rng = Rng::new(3);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..20_000 {
            let (number, words) = draw(&mut rng);
            assert!(number < 10_u64.pow(DIGITS as u32));
            *seen.entry(pieces(&words).count()).or_insert(0) += 1;
        }
        // Groups have 1, 2, 3, 4 or 6 tokens: five of 6 with their scales have 35, the last 4 or 6
        // more, so that no number has exactly 40.
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), (5..40).collect::<Vec<_>>());
    }
}
