//! Lessons as a page that needs no other file: light and dark, wide and narrow.

use crate::lesson::{Answer, Block, Lesson, Sheet};
use crate::maths::cells;
use crate::text::{code_lines, formula_lines};
use hearken_show::page::{Value, context, markup, render};
use std::fmt::Write as _;

/// Characters of a line of code that fit the page.
const CODE_WIDTH: usize = 80;
/// Characters of a line of a formula.
const FORMULA_WIDTH: usize = 74;

const TEMPLATE: &str = include_str!("page.html");

/// A page of lessons, in order. Fails only if the template is wrong.
pub fn html(title: &str, lessons: &[&Lesson]) -> Result<String, String> {
    let lessons: Vec<Value> = lessons.iter().map(|lesson| value(lesson, &lesson.run())).collect();
    render(TEMPLATE, context! { title => title, lessons => lessons })
        .map_err(|error| error.to_string())
}

fn value(lesson: &Lesson, sheet: &Sheet) -> Value {
    let steps = sheet.steps.iter().map(|step| {
        let blocks: Vec<Value> = step.blocks.iter().map(block).collect();
        context! { title => step.title.clone(), blocks => blocks }
    });
    let answer = |answer: &Answer| {
        context! { text => answer.text.clone(), right => answer.is_right, because => answer.because.clone() }
    };
    let errata = sheet
        .errata
        .iter()
        .map(|e| context! { id => e.id, document => e.document(), says => e.says.clone(), truth => e.truth.clone() });
    context! {
        name => lesson.name,
        title => lesson.title,
        line => lesson.line,
        code => code_lines(lesson.code, CODE_WIDTH).join("\n"),
        about => lesson.next.0,
        guide => lesson.next.1,
        steps => steps.collect::<Vec<_>>(),
        question => sheet.question.text.clone(),
        answers => sheet.question.answers.iter().map(answer).collect::<Vec<_>>(),
        errata => errata.collect::<Vec<_>>(),
    }
}

fn block(block: &Block) -> Value {
    match block {
        Block::Text(text) => context! { kind => "text", text => text.clone() },
        Block::Formula(text) => {
            let lines = text.lines().flat_map(|line| formula_lines(line, FORMULA_WIDTH));
            context! { kind => "formula", text => lines.collect::<Vec<_>>().join("\n") }
        }
        Block::Numbers { name, rows } => numbers(name, rows),
        Block::Table(table) => {
            context! { kind => "table", columns => table.columns.clone(), rows => table.rows.clone() }
        }
        Block::Chart(chart) => context! { kind => "chart", svg => markup(chart.svg()) },
        Block::Bars(bars) => {
            let total = |lengths: &[f64]| lengths.iter().sum::<f64>().max(0.0);
            let longest = bars.bars.iter().map(|bar| total(&bar.lengths)).fold(1e-12, f64::max);
            let bar = |bar: &hearken_show::Bar| {
                let share = format!("{:.1}", 100.0 * total(&bar.lengths) / longest);
                context! { name => bar.name.clone(), note => bar.note.clone(), share => share }
            };
            let each: Vec<Value> = bars.bars.iter().map(bar).collect();
            context! { kind => "bars", title => bars.title.clone(), bars => each }
        }
    }
}

/// Numbers as a table whose cells are the darker, the larger their number.
fn numbers(name: &str, rows: &[Vec<f64>]) -> Value {
    let finite = rows.iter().flatten().filter(|x| x.is_finite());
    let largest = finite.fold(0.0, |most: f64, x| most.max(x.abs()));
    let mut html = String::new();
    for (row, texts) in rows.iter().zip(cells(rows)) {
        html.push_str("<tr>");
        for (x, text) in row.iter().zip(texts) {
            let share = if largest > 0.0 && x.is_finite() { x.abs() / largest } else { 0.0 };
            let shade = if rows.len() > 1 { 0.32 * share } else { 0.0 };
            let color = if *x < 0.0 { "234,88,12" } else { "37,99,235" };
            let _ = write!(html, "<td style=\"background:rgba({color},{shade:.2})\">{text}</td>");
        }
        html.push_str("</tr>");
    }
    let single = matches!(rows, [row] if row.len() == 1);
    context! { kind => "numbers", name => name, single => single, cells => markup(html) }
}
