//! A lesson in the terminal, as lines.

use crate::lesson::{Answer, Block, Lesson, Sheet};
use crate::maths::cells;
use hearken_show::terminal::wrap;
use hearken_show::{Bars, Columns, Table, Terminal};

/// Longer lines are hard to read.
const WIDEST: usize = 88;
/// The rows of a chart's points.
const HEIGHT: usize = 13;

/// The heading of a lesson, and what it is about.
pub fn opening(lesson: &Lesson, terminal: Terminal) -> Vec<String> {
    let rule = "─".repeat(lesson.title.chars().count());
    let mut lines = vec![terminal.bold(lesson.title), rule];
    lines.extend(wrap(lesson.line, width(terminal)));
    lines
}

/// The parts of a lesson that are read one by one: its steps, its question aside, what is wrong in the
/// documents, and the code.
pub fn parts(lesson: &Lesson, sheet: &Sheet, terminal: Terminal) -> Vec<Vec<String>> {
    let count = sheet.steps.len();
    let mut parts = Vec::new();
    for (i, step) in sheet.steps.iter().enumerate() {
        let heading = format!("{}/{count}  {}", i + 1, step.title);
        let mut lines = vec![terminal.bold(&heading)];
        let mut after_number = false;
        for block in &step.blocks {
            // Numbers that follow each other stand together.
            let is_number = matches!(block, Block::Numbers { rows, .. } if rows.len() == 1);
            if !(after_number && is_number) {
                lines.push(String::new());
            }
            after_number = is_number;
            lines.extend(block_lines(block, width(terminal)));
        }
        parts.push(lines);
    }
    parts.push(closing(lesson, sheet, terminal));
    parts
}

/// Where documents are wrong, the code, and what to read next.
fn closing(lesson: &Lesson, sheet: &Sheet, terminal: Terminal) -> Vec<String> {
    let width = width(terminal);
    let mut lines = Vec::new();
    if !sheet.errata.is_empty() {
        lines.push(terminal.bold("Where a document is wrong"));
        for erratum in &sheet.errata {
            lines.push(String::new());
            let (document, says, truth) = (erratum.document(), &erratum.says, &erratum.truth);
            let text = format!(
                "• Document {document} says: {says} True: {truth} (docs/ERRATA.md, {})",
                erratum.id
            );
            lines.extend(indented(&text, width));
        }
        lines.push(String::new());
    }
    lines.push(terminal.bold("In Rust"));
    lines.push(String::new());
    let code = code_lines(lesson.code, width.saturating_sub(4));
    lines.extend(code.iter().map(|line| format!("    {line}").trim_end().to_owned()));
    lines.push(String::new());
    let (about, file) = lesson.next;
    lines.extend(wrap(&format!("Read next: {about}, docs/guide/{file}"), width));
    lines
}

/// The question and its answers, a, b, c.
pub fn question(sheet: &Sheet, terminal: Terminal) -> Vec<String> {
    let mut lines = vec![terminal.bold("Question"), String::new()];
    lines.extend(wrap(&sheet.question.text, width(terminal)));
    for (letter, answer) in ('a'..).zip(&sheet.question.answers) {
        lines.extend(indented(&format!("{letter}) {}", answer.text), width(terminal)));
    }
    lines
}

/// What is said of an answer that was chosen.
pub fn verdict(answer: &Answer, terminal: Terminal) -> Vec<String> {
    let (word, painted) = if answer.is_right {
        ("Right.", terminal.green("Right."))
    } else {
        ("No.", terminal.red("No."))
    };
    let mut lines = wrap(&format!("{word} {}", answer.because), width(terminal));
    if let Some(first) = lines.first_mut() {
        *first = first.replacen(word, &painted, 1);
    }
    lines
}

/// All answers with what is said of them, for those who do not choose.
pub fn answers(sheet: &Sheet, terminal: Terminal) -> Vec<String> {
    let mut lines = Vec::new();
    for (letter, answer) in ('a'..).zip(&sheet.question.answers) {
        let mark = if answer.is_right { "right" } else { "wrong" };
        let text = format!("{letter}) {mark}: {}", answer.because);
        lines.extend(indented(&text, width(terminal)));
    }
    lines
}

fn width(terminal: Terminal) -> usize {
    terminal.width.clamp(30, WIDEST)
}

/// Wrapped, two blanks in.
fn indented(text: &str, width: usize) -> Vec<String> {
    wrap(text, width - 2).into_iter().map(|line| format!("  {line}")).collect()
}

fn block_lines(block: &Block, width: usize) -> Vec<String> {
    match block {
        Block::Text(text) => wrap(text, width),
        Block::Formula(text) => text.lines().flat_map(|line| formula(line, width)).collect(),
        Block::Numbers { name, rows } => numbers(name, rows, width),
        Block::Table(table) => table_lines(table),
        Block::Chart(chart) => chart.text(width, HEIGHT),
        Block::Bars(bars) => bar_lines(bars, width),
    }
}

fn formula(line: &str, width: usize) -> Vec<String> {
    formula_lines(line, width - 4).into_iter().map(|line| format!("    {line}")).collect()
}

/// A line of a formula; if it is too long, cut where it has wide gaps.
pub(crate) fn formula_lines(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let parts = line.split("    ").map(str::trim).filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// A program in lines of at most `width` characters: longer ones go on, further in, where they have a
/// blank. A comment goes on as a comment.
pub(crate) fn code_lines(code: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in code.trim_end().lines() {
        let indent = line.len() - line.trim_start().len();
        let mut rest = line.to_owned();
        while rest.chars().count() > width {
            let end = rest.char_indices().nth(width).map_or(rest.len(), |(at, _)| at);
            let room = rest.get(..end).unwrap_or(&rest);
            let least = rest.len() - rest.trim_start().len() + 1;
            let Some(cut) = room.rfind(' ').filter(|cut| *cut > least) else { break };
            let (head, tail) = rest.split_at(cut);
            let mark = if head.contains("//") { "// " } else { "" };
            let next = format!("{}{mark}{}", " ".repeat(indent + 8), tail.trim_start());
            lines.push(head.trim_end().to_owned());
            rest = next;
        }
        lines.push(rest);
    }
    lines
}

fn numbers(name: &str, rows: &[Vec<f64>], width: usize) -> Vec<String> {
    let cells = cells(rows);
    let widest = cells.iter().flatten().map(|cell| cell.chars().count()).max().unwrap_or(0);
    let row = |cells: &[String]| {
        let padded = cells.iter().map(|cell| format!("{cell:>widest$}"));
        padded.collect::<Vec<_>>().join("  ")
    };
    if let [only] = &cells[..] {
        let line = format!("  {name} = {}", only.join("  "));
        if line.chars().count() <= width {
            return vec![line];
        }
        let mut lines = vec![format!("  {name} =")];
        let per_line = (width.saturating_sub(6) / (widest + 2)).max(1);
        lines.extend(only.chunks(per_line).map(|cells| format!("      {}", row(cells))));
        return lines;
    }
    let mut lines = vec![format!("  {name} =")];
    lines.extend(cells.iter().map(|cells| format!("      {}", row(cells))));
    lines
}

fn table_lines(table: &Table) -> Vec<String> {
    let mut columns = Columns::new().indented(2);
    for (i, heading) in table.columns.iter().enumerate() {
        columns = if i == 0 { columns.left(heading, 0) } else { columns.right(heading, 0) };
    }
    let columns = columns.holding(&table.rows);
    let rows = table.rows.iter().map(|row| columns.row(row));
    [columns.head()].into_iter().chain(rows).collect()
}

fn bar_lines(bars: &Bars, width: usize) -> Vec<String> {
    let total = |lengths: &[f64]| lengths.iter().sum::<f64>();
    let longest = bars.bars.iter().map(|bar| total(&bar.lengths)).fold(1e-12, f64::max);
    let count = |text: &String| text.chars().count();
    let name = bars.bars.iter().map(|bar| count(&bar.name)).max().unwrap_or(0);
    let note = bars.bars.iter().map(|bar| count(&bar.note)).max().unwrap_or(0);
    let room = width.saturating_sub(name + note + 6).clamp(8, 44) as f64;
    let mut lines = vec![format!("  {}", bars.title)];
    for bar in &bars.bars {
        let length = (room * total(&bar.lengths) / longest).round().max(0.0) as usize;
        let blanks = " ".repeat(name - count(&bar.name));
        lines.push(format!("  {}{blanks}  {} {}", bar.name, "█".repeat(length), bar.note));
    }
    lines
}
