//! What all pictures share: their colours, their beginning, and text in them.

use std::fmt::Write as _;

/// Blue, for what comes first.
pub const BLUE: &str = "#2563eb";
/// Orange, for what is compared with it.
pub const ORANGE: &str = "#ea580c";
/// Green, for a level that both are seen against.
pub const GREEN: &str = "#059669";
/// Grey, for axes and their numbers.
pub const GREY: &str = "#64748b";
/// Dark, for labels.
pub const INK: &str = "#334155";

/// For curves beside each other, in this order: neighbours differ in brightness too, so that they can be
/// told apart without seeing colours.
pub const PALETTE: [&str; 10] =
    [BLUE, ORANGE, GREEN, "#9333ea", "#dc2626", "#0891b2", "#a16207", "#db2777", "#4d7c0f", GREY];

/// An SVG document up to and including its title, on white. `</svg>` closes it.
pub fn open(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', sans-serif\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"600\" \
         fill=\"#0f172a\">{title}</text>\n",
        title = escape(title)
    )
}

/// Adds text at (x, y); `anchor` is `start`, `middle` or `end`.
pub fn text(out: &mut String, x: f64, y: f64, anchor: &str, color: &str, size: f64, what: &str) {
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" \
         fill=\"{color}\">{}</text>",
        escape(what)
    );
}

/// Text that is safe inside XML and HTML, in content and in quoted attributes. Control characters
/// that XML does not allow become �.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_escapes_from_text() {
        assert_eq!(escape("<a b='c'>&\"\u{0}\n"), "&lt;a b=&#39;c&#39;&gt;&amp;&quot;\u{fffd}\n");
        assert!(open(1.0, 1.0, "a\"b").contains("aria-label=\"a&quot;b\""));
    }
}
