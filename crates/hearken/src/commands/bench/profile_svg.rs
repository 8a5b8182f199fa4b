//! Where a step's time goes, as a picture: one bar per operation, forward beside backward.

use super::train::Share;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const LABEL: f64 = 170.0;
const ROW: f64 = 26.0;

/// An SVG of bars as long as the time they stand for.
pub(super) fn draw(title: &str, shares: &[Share]) -> String {
    let total: f64 = shares.iter().map(|s| s.forward_ms + s.backward_ms).sum();
    let longest = shares.iter().map(|s| s.forward_ms + s.backward_ms).fold(1e-9, f64::max);
    let scale = (WIDTH - LABEL - 150.0) / longest;
    let height = 78.0 + ROW * shares.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"600\">{}</text>\n\
         <rect x=\"16\" y=\"40\" width=\"12\" height=\"12\" fill=\"#2f6db3\"/>\
         <text x=\"34\" y=\"51\">forward</text>\
         <rect x=\"104\" y=\"40\" width=\"12\" height=\"12\" fill=\"#e08a2e\"/>\
         <text x=\"122\" y=\"51\">backward</text>\n",
        escape(title)
    );
    for (i, share) in shares.iter().enumerate() {
        let y = 66.0 + ROW * i as f64;
        let (forward, backward) = (share.forward_ms * scale, share.backward_ms * scale);
        let both = share.forward_ms + share.backward_ms;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABEL}\" y=\"{y:.1}\" width=\"{forward:.1}\" height=\"18\" fill=\"#2f6db3\"/>\
             <rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{backward:.1}\" height=\"18\" fill=\"#e08a2e\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#444444\">{both:.2} ms, {:.1} %</text>",
            LABEL - 10.0,
            y + 13.5,
            escape(share.op),
            LABEL + forward,
            LABEL + forward + backward + 8.0,
            y + 13.5,
            100.0 * both / total.max(1e-9)
        );
    }
    svg + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_time() {
        let share = |op, forward_ms, backward_ms| Share { op, forward_ms, backward_ms };
        let svg = draw("a < b", &[share("linear", 3.0, 1.0), share("add", 1.0, 1.0)]);
        assert!(svg.contains("a &lt; b") && svg.contains("4.00 ms, 66.7 %"));
        assert!(svg.contains("width=\"405.0\"") && svg.contains("width=\"135.0\"")); // 540 for 4 ms
    }
}
