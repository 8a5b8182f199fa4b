//! Where a step's time goes, as a picture: one bar per operation, forward beside backward.

use super::train::Share;
use hearken::show::svg::{BLUE, ORANGE};
use hearken::show::{Bar, Bars};

/// An SVG of bars as long as the time they stand for.
pub(super) fn draw(title: &str, shares: &[Share]) -> String {
    let both = |share: &Share| share.forward_ms + share.backward_ms;
    let total: f64 = shares.iter().map(both).sum();
    let bar = |share: &Share| Bar {
        name: share.op.to_owned(),
        lengths: vec![share.forward_ms, share.backward_ms],
        note: format!("{:.2} ms, {:.1} %", both(share), 100.0 * both(share) / total.max(1e-9)),
    };
    let parts = vec![("forward".to_owned(), BLUE), ("backward".to_owned(), ORANGE)];
    Bars { title: title.to_owned(), parts, bars: shares.iter().map(bar).collect() }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_say_how_much_of_a_step_they_are() {
        let share = |op, forward_ms, backward_ms| Share { op, forward_ms, backward_ms };
        let svg = draw("a < b", &[share("linear", 3.0, 1.0), share("add", 1.0, 1.0)]);
        assert!(svg.contains("a &lt; b") && svg.contains("4.00 ms, 66.7 %"));
    }
}
