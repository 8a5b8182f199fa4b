//! `hearken eval --shots`: accuracy by how many examples stand in the prompt.

use super::{Arguments, save_picture};
use crate::failure::Failure;
use crate::terminal::{Progress, Terminal, say, visible_path};
use hearken::data::labelled::{self, Ask, Fields};
use hearken::data::tokenizer::Tokenizer;
use hearken::show::table::Columns;
use hearken::tasks::OpenModel;
use hearken::tasks::config::Generated;
use hearken::tasks::few_shot::{self, Asking, Curve, Point};
use serde_json::{Value, json};
use std::io::{self, Write};

/// Questions of each point, unless told otherwise: of the embedded task, and of the user's data.
const QUESTIONS: (usize, usize) = (1000, 200);

pub(super) fn run(
    arguments: &Arguments,
    shots: &[usize],
    model: &OpenModel,
    tokenizer: &Tokenizer,
) -> Result<(), Failure> {
    let mut progress = Progress::new();
    let mut show = |share: f64| progress.show(&format!("{:.0} %", 100.0 * share));
    let paths = arguments.paths();
    let asking = |usual: usize| Asking {
        shots: shots.to_vec(),
        questions: arguments.questions.unwrap_or(usual),
        template: arguments.template.clone(),
        seed: 1,
    };
    let curve = if paths.is_empty() {
        let run = model.run_config()?;
        let learned = run.is_some_and(|run| {
            run.data.paths.is_empty() && run.data.generated == Some(Generated::Shots)
        });
        if !learned {
            return Err(Failure::input(
                "the model is not of a run that learned from examples, and no data is named",
                "name labelled rows with --data, or train one with 'hearken train --config few-shot'",
            ));
        }
        few_shot::of_shots(model, tokenizer, &asking(QUESTIONS.0), &mut show)?
    } else {
        let usual = Fields::default();
        let fields = Fields {
            text: arguments.field.clone().unwrap_or(usual.text),
            second: arguments.second.clone(),
            label: arguments.label.clone().unwrap_or(usual.label),
        };
        let ask = if arguments.second.is_some() { Ask::Pairs } else { Ask::Classes };
        let data = labelled::read(&paths, ask, &fields, None)?;
        for note in &data.notes {
            say!("note: {note}");
        }
        few_shot::of_rows(model, tokenizer, &data, &asking(QUESTIONS.1), &mut show)?
    };
    progress.clear();
    if curve.cut > 0 {
        say!("note: {} texts were cut to their share of the model's context", curve.cut);
    }
    if let Some(path) = &arguments.diagram {
        let svg = curve.chart().svg();
        save_picture(path, &svg, || Ok(svg.clone()))?;
    }
    write(arguments, model, &curve)
}

fn write(arguments: &Arguments, model: &OpenModel, curve: &Curve) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if arguments.json {
        let point = |point: &Point| {
            let mut value =
                json!({ "shots": point.shots, "accuracy": point.accuracy, "margin": point.margin });
            if let Some(f1) = point.f1 {
                value["f1"] = json!(f1);
            }
            if let Some(best) = point.best {
                value["at_most"] = json!(best);
            }
            value
        };
        let last = curve.points.iter().max_by_key(|point| point.shots);
        let report = json!({
            "model": model.directory,
            "data": arguments.paths(),
            "metrics": { "accuracy": last.map(|point| point.accuracy) },
            "questions": curve.questions,
            "majority": curve.majority,
            "shots": curve.points.iter().map(point).collect::<Vec<Value>>(),
        });
        writeln!(out, "{report:#}")?;
        return Ok(());
    }
    let terminal = Terminal::stdout();
    let has = |of: fn(&Point) -> Option<f64>| curve.points.iter().any(|point| of(point).is_some());
    let (best, f1) = (has(|point| point.best), has(|point| point.f1));
    let mut columns = Columns::new().right("examples", 8).right("accuracy", 15);
    if f1 {
        columns = columns.right("F1 of words", 11);
    }
    if best {
        columns = columns.right("best possible", 13);
    }
    writeln!(out, "{}", terminal.bold(&columns.head()))?;
    for point in &curve.points {
        let mut row =
            vec![point.shots.to_string(), format!("{:.3} ± {:.3}", point.accuracy, point.margin)];
        row.extend(point.f1.filter(|_| f1).map(|x| format!("{x:.3}")));
        row.extend(point.best.filter(|_| best).map(|x| format!("{x:.3}")));
        writeln!(out, "{}", columns.row(&row))?;
    }
    let majority = curve.majority.map(|share| format!("; always the same label: {share:.3}"));
    writeln!(out, "\n{} questions each{}\n", curve.questions, majority.unwrap_or_default())?;
    for line in curve.chart().text(terminal.width.min(80), 12) {
        writeln!(out, "{line}")?;
    }
    if let Some(path) = &arguments.diagram {
        writeln!(out, "\nthe curve is in {}", visible_path(path))?;
    }
    Ok(())
}
