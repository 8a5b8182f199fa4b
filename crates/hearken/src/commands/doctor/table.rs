//! The table of `hearken doctor`: one line per operation, in as many columns as fit.

use super::check::{CaseReport, OpReport};
use hearken::show::number::error as short;
use hearken::show::{Columns, Terminal, table};
use hearken::tensor::gradcheck::Case;
use std::io::{self, Write};

/// Columns after the name: heading and width.
const CASES: (&str, usize) = ("cases", 5);
const ERROR: usize = "backward".len();
const ADDS: (&str, usize) = ("adds", 4);
const BITS: (&str, usize) = ("bits", 4);
const RESULT: (&str, usize) = ("", "FAILED".len());
/// Names are cut below this only if nothing else can go.
const NAME_LEAST: usize = 12;

/// How the table is laid out.
pub(super) struct Table {
    terminal: Terminal,
    verbose: bool,
    detail: Detail,
    columns: Columns,
}

/// What a line shows besides name and result, from all to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    Nothing,
    Errors,
    ErrorsAndBounds,
    All,
}

impl Detail {
    /// The columns between name and result.
    fn columns(self, with_bound: usize) -> Vec<(&'static str, usize)> {
        match self {
            Detail::Nothing => vec![],
            Detail::Errors => vec![("forward", ERROR), ("backward", ERROR)],
            Detail::ErrorsAndBounds => vec![("forward", with_bound), ("backward", with_bound)],
            Detail::All => {
                vec![CASES, ("forward", with_bound), ("backward", with_bound), ADDS, BITS]
            }
        }
    }

    /// Characters from the end of the name to the end of the line.
    fn width(self, with_bound: usize) -> usize {
        self.columns(with_bound).iter().chain([&RESULT]).map(|(_, width)| table::GAP + width).sum()
    }
}

/// One line, of an operation or of one of its cases.
struct Line<'a> {
    name: String,
    cases: String,
    forward: (f64, f64),
    backward: (f64, f64),
    accumulates: bool,
    same_bits: bool,
    ok: bool,
    faults: Vec<(&'a CaseReport, &'a str)>,
}

impl Table {
    /// A table for these operations.
    pub(super) fn new(
        terminal: Terminal,
        chosen: &[(&'static str, Vec<Case>)],
        verbose: bool,
    ) -> Self {
        let cases = || chosen.iter().flat_map(|(_, cases)| cases);
        let names = chosen.iter().map(|(op, _)| op.chars().count());
        let case_names = cases().filter(|_| verbose).map(|case| 2 + case.name.chars().count());
        let longest = names.chain(case_names).max().unwrap_or(0).max("op".len());
        let bounds = cases().flat_map(|case| [case.tolerance.forward, case.tolerance.backward]);
        let bound = bounds.map(|bound| short(bound).len()).max().unwrap_or(0);
        let with_bound = ("1.2e-7".len() + 3 + bound).max(ERROR);
        let detail = [Detail::All, Detail::ErrorsAndBounds, Detail::Errors]
            .into_iter()
            .find(|detail| detail.width(with_bound) + longest.min(NAME_LEAST) <= terminal.width)
            .unwrap_or(Detail::Nothing);
        let room = terminal.width.saturating_sub(detail.width(with_bound)).max(1);
        let columns = detail
            .columns(with_bound)
            .into_iter()
            .fold(Columns::new().left("op", longest.min(room)), |columns, (heading, width)| {
                columns.right(heading, width)
            });
        Self { terminal, verbose, detail, columns: columns.left(RESULT.0, RESULT.1) }
    }

    /// The headings.
    pub(super) fn write_head(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.terminal.bold(&self.columns.head()))
    }

    /// One operation: its line, its cases if asked for, and what is wrong with it.
    pub(super) fn write_row(&self, out: &mut impl Write, report: &OpReport) -> io::Result<()> {
        let faults = report
            .cases
            .iter()
            .flat_map(|case| case.faults.iter().map(move |fault| (case, fault.as_str())));
        self.write_line(
            out,
            &Line {
                name: report.op.to_owned(),
                cases: report.cases.len().to_string(),
                forward: (report.forward.error, report.forward.bound),
                backward: (report.backward.error, report.backward.bound),
                accumulates: report.accumulates,
                same_bits: report.same_bits,
                ok: report.ok,
                faults: if self.verbose { Vec::new() } else { faults.collect() },
            },
        )?;
        for case in report.cases.iter().filter(|_| self.verbose) {
            self.write_line(
                out,
                &Line {
                    name: format!("  {}", case.case),
                    cases: String::new(),
                    forward: (case.forward, case.forward_bound),
                    backward: (case.worst_backward(), case.backward_bound),
                    accumulates: case.accumulates,
                    same_bits: case.same_bits,
                    ok: case.ok,
                    faults: case.faults.iter().map(|fault| (case, fault.as_str())).collect(),
                },
            )?;
        }
        Ok(())
    }

    fn write_line(&self, out: &mut impl Write, line: &Line<'_>) -> io::Result<()> {
        let with_bound = self.detail >= Detail::ErrorsAndBounds;
        let error = |(error, bound): (f64, f64)| {
            let sign = if error <= bound { '≤' } else { '>' };
            if with_bound {
                format!("{} {sign} {}", short(error), short(bound))
            } else {
                short(error)
            }
        };
        let mut cells = vec![line.name.clone()];
        if self.detail > Detail::Nothing {
            cells.extend([error(line.forward), error(line.backward)]);
        }
        if self.detail == Detail::All {
            cells.insert(1, line.cases.clone());
            cells.push(if line.accumulates { "yes" } else { "NO" }.to_owned());
            cells.push(if line.same_bits { "same" } else { "DIFF" }.to_owned());
        }
        let terminal = self.terminal;
        let verdict = if line.ok { terminal.green("ok") } else { terminal.red("FAILED") };
        writeln!(out, "{}", self.columns.row_ending(&cells, &verdict))?;
        for (case, fault) in &line.faults {
            writeln!(out, "    {}: {fault}", case.case)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::{check, tests::case};
    use super::*;

    fn table(width: usize, verbose: bool) -> String {
        let terminal = Terminal { width, colour: false };
        let chosen = [("double", vec![case("right", 2.0)]), ("other", vec![case("wrong", 1.5)])];
        let table = Table::new(terminal, &chosen, verbose);
        let mut out = Vec::new();
        table.write_head(&mut out).unwrap();
        for (op, cases) in &chosen {
            table.write_row(&mut out, &check(op, cases)).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_width_shows_names_and_results_within_it() {
        for width in 20..120 {
            let text = table(width, false);
            let rows: Vec<&str> = text.lines().filter(|line| !line.starts_with("    ")).collect();
            assert_eq!(rows.len(), 3, "{text}");
            assert!(rows.iter().all(|row| row.chars().count() <= width), "{width}:\n{text}");
            assert!(rows[1].starts_with("double") && rows[1].ends_with("  ok"), "{text}");
            assert!(rows[2].starts_with("other") && rows[2].ends_with("  FAILED"), "{text}");
        }
    }

    #[test]
    fn eighty_columns_show_everything() {
        let text = table(80, false);
        for word in ["op", "cases", "forward", "backward", "adds", "bits", "≤ 1e-6", "> 1e-6"] {
            assert!(text.contains(word), "no '{word}' in\n{text}");
        }
        assert!(text.contains("    wrong: gradient of x is off by"), "{text}");
    }

    #[test]
    fn verbose_lists_the_cases() {
        let text = table(80, true);
        assert!(text.contains("\n  right ") && text.contains("\n  wrong "), "{text}");
    }
}
