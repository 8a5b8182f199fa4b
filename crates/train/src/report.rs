//! `report.html`: a run on one page that needs nothing else.

mod heat_map;

use crate::evaluation::Metric;
use crate::metrics::{Entry, Row};
use crate::plot::{self, Chart, Series, escape};
use heat_map::HeatMap;
use std::fmt::Write as _;

/// A table of text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Above it.
    pub title: String,
    /// The names of its columns; the first is aligned left, the others right.
    pub columns: Vec<String>,
    /// Its cells.
    pub rows: Vec<Vec<String>>,
}

/// What the page is made of.
pub struct Report<'a> {
    /// The name of the run.
    pub title: &'a str,
    /// Numbers at the top: what and how much.
    pub facts: &'a [(String, String)],
    /// `metrics.jsonl`
    pub rows: &'a [Row],
    /// `diagnostics.jsonl`
    pub entries: &'a [Entry],
    /// What the model wrote, and when.
    pub samples: &'a [(u64, String)],
    /// `config.toml`
    pub config: &'a str,
    /// Parameters, memory, and whatever else the caller knows.
    pub tables: &'a [Table],
    /// Written on the axis of the loss.
    pub loss_label: &'a str,
    /// The loss that no model can beat.
    pub floor: Option<f64>,
    /// Said beneath the loss if training ends above validation.
    pub why_training_is_above: Option<&'static str>,
}

impl Report<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
             <h1>{title}</h1>\n",
            title = escape(self.title)
        );
        self.facts(&mut out);
        self.warnings(&mut out);
        self.curves(&mut out);
        self.layers(&mut out);
        self.samples(&mut out);
        for table in self.tables {
            write_table(&mut out, table);
        }
        let _ = writeln!(
            out,
            "<section>\n<h2>Configuration</h2>\n<details open><summary>config.toml</summary>\
             <pre>{}</pre></details>\n</section>",
            escape(self.config)
        );
        out + "<footer>written by hearken</footer>\n</main>\n</body>\n</html>\n"
    }

    fn facts(&self, out: &mut String) {
        out.push_str("<dl class=\"facts\">\n");
        for (name, value) in self.facts {
            let _ = writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
        }
        out.push_str("</dl>\n");
    }

    fn warnings(&self, out: &mut String) {
        let warnings: Vec<_> = self
            .entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Warning { step, message, hint, .. } => Some((step, message, hint)),
                Entry::Layers { .. } => None,
            })
            .collect();
        if warnings.is_empty() {
            return;
        }
        out.push_str("<section>\n<h2>Warnings</h2>\n<ul class=\"warnings\">\n");
        for (step, message, hint) in warnings {
            let _ = writeln!(
                out,
                "<li><b>step {step}</b> {}<br><span>{}</span></li>",
                escape(message),
                escape(hint)
            );
        }
        out.push_str("</ul>\n</section>\n");
    }

    fn curves(&self, out: &mut String) {
        out.push_str("<section>\n<h2>Curves</h2>\n<div class=\"wide\">\n");
        let mut loss = plot::loss_chart(self.rows, self.floor);
        loss.size = (1080.0, 440.0);
        self.loss_label.clone_into(&mut loss.y_label);
        out.push_str(&loss.svg());
        out.push_str("</div>\n");
        if let Some(why) = self.why_training_is_above.filter(|_| self.training_is_above()) {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", escape(why));
        }
        out.push_str("<div class=\"grid\">\n");
        let small = |title: &str, unit: &str, y: fn(&Row) -> Option<f64>| {
            let points =
                self.rows.iter().filter_map(|row| Some((row.step as f64, y(row)?))).collect();
            let series = Series {
                name: title.to_owned(),
                color: plot::TRAIN,
                points,
                mark: plot::Mark::Line,
            };
            let mut chart = Chart::new(title, "step", unit).with(series);
            chart.size = (530.0, 300.0);
            chart
        };
        out.push_str(&small("Learning rate", "per step", |row| Some(row.lr)).svg());
        let mut norm = small("Gradient norm", "before clipping", |row| row.grad_norm);
        norm.logarithmic = true;
        out.push_str(&norm.svg());
        out.push_str(&small("Speed", "tokens per second", |row| Some(row.tokens_per_second)).svg());
        let time = small("Time", "seconds since the start", |row| Some(row.elapsed_seconds));
        out.push_str(&time.svg());
        for name in self.further_metrics() {
            out.push_str(&self.metric_chart(name).svg());
        }
        out.push_str("</div>\n</section>\n");
    }

    /// The names of all validation metrics but the loss, in order of first appearance.
    fn further_metrics(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for score in self.rows.iter().flat_map(|row| &row.validation) {
            if score.name != Metric::LOSS && !names.contains(&score.name.as_str()) {
                names.push(&score.name);
            }
        }
        names
    }

    fn metric_chart(&self, name: &str) -> Chart {
        let point = |row: &Row| Some((row.step as f64, row.value(name)?));
        let points: Vec<(f64, f64)> = self.rows.iter().filter_map(point).collect();
        let last = points.last().map_or(String::new(), |last| format!(" {:.4}", last.1));
        let series = Series {
            name: format!("validation{last}"),
            color: plot::VALIDATION,
            points,
            mark: plot::Mark::Dots,
        };
        let mut chart = Chart::new(&format!("Validation {name}"), "step", name).with(series);
        chart.size = (530.0, 300.0);
        chart
    }

    /// Does the training loss, as a mean over the last tenth of the steps, lie above the last
    /// validation loss?
    fn training_is_above(&self) -> bool {
        let last = &self.rows[self.rows.len() - self.rows.len().div_ceil(10)..];
        let losses: Vec<f64> = last.iter().filter_map(|row| row.train_loss).collect();
        let mean = losses.iter().sum::<f64>() / losses.len() as f64;
        self.rows
            .iter()
            .rev()
            .find_map(|row| row.value(Metric::LOSS))
            .is_some_and(|loss| mean > loss)
    }

    fn layers(&self, out: &mut String) {
        let (mut norms, mut ratios, mut entropies) = (Vec::new(), Vec::new(), Vec::new());
        for entry in self.entries {
            if let Entry::Layers {
                step,
                layers,
                gradient_norm,
                update_ratio,
                attention_layers,
                attention_entropy,
            } = entry
            {
                norms.push((*step, layers.as_slice(), gradient_norm.as_slice()));
                ratios.push((*step, layers.as_slice(), update_ratio.as_slice()));
                entropies.push((*step, attention_layers.as_slice(), attention_entropy.as_slice()));
            }
        }
        let maps = [
            HeatMap {
                title: "Gradient norm per layer",
                unit: "",
                logarithmic: true,
                columns: norms,
            },
            HeatMap {
                title: "Update / weight per layer",
                unit: "",
                logarithmic: true,
                columns: ratios,
            },
            HeatMap {
                title: "Attention entropy per layer",
                unit: " nats",
                logarithmic: false,
                columns: entropies,
            },
        ];
        let maps: Vec<String> = maps.iter().filter_map(HeatMap::svg).collect();
        if maps.is_empty() {
            return;
        }
        out.push_str("<section>\n<h2>Inside the layers</h2>\n<div class=\"wide\">\n");
        for map in &maps {
            *out += map;
        }
        out.push_str("</div>\n</section>\n");
    }

    fn samples(&self, out: &mut String) {
        if self.samples.is_empty() {
            return;
        }
        out.push_str("<section>\n<h2>What it wrote</h2>\n");
        // All of a long run would be too much: the first few show the way, the last the end.
        let (first, last) = (3, 5);
        let skipped = self.samples.len().saturating_sub(first + last);
        for (i, (step, sample)) in self.samples.iter().enumerate() {
            if skipped > 0 && i == first {
                let _ = writeln!(out, "<p class=\"more\">… {skipped} more in samples.txt</p>");
            }
            if i < first || i >= first + skipped {
                let _ = writeln!(
                    out,
                    "<figure><figcaption>step {step}</figcaption><pre>{}</pre></figure>",
                    escape(sample)
                );
            }
        }
        out.push_str("</section>\n");
    }
}

fn write_table(out: &mut String, table: &Table) {
    let _ = writeln!(out, "<section>\n<h2>{}</h2>\n<table>\n<thead><tr>", escape(&table.title));
    for column in &table.columns {
        let _ = write!(out, "<th>{}</th>", escape(column));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

const STYLE: &str = "
:root { color-scheme: light; }
body { margin: 0; background: #f1f5f9; color: #0f172a; line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 26px; margin: 8px 0 18px; }
h2 { font-size: 18px; margin: 0 0 12px; }
section { background: #fff; border: 1px solid #e2e8f0; border-radius: 10px; padding: 18px 20px;
  margin: 18px 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 0; }
.facts div { background: #fff; border: 1px solid #e2e8f0; border-radius: 10px; padding: 10px 14px; }
.facts dt { color: #64748b; font-size: 13px; }
.facts dd { margin: 0; font-size: 19px; font-weight: 600; font-variant-numeric: tabular-nums; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr));
  gap: 8px; }
svg { max-width: 100%; height: auto; display: block; }
.wide { overflow-x: auto; } .wide svg { min-width: 620px; }
.warnings { margin: 0; padding-left: 18px; }
.warnings li { margin: 6px 0; } .warnings span { color: #475569; }
figure { margin: 0 0 14px; } figcaption { color: #64748b; font-size: 13px; margin-bottom: 4px; }
pre { margin: 0; padding: 12px 14px; background: #f8fafc; border: 1px solid #e2e8f0;
  border-radius: 8px; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere;
  font: 13px/1.5 ui-monospace, 'SF Mono', Menlo, Consolas, monospace; }
summary { cursor: pointer; color: #64748b; font-size: 13px; margin-bottom: 6px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 5px 10px; border-bottom: 1px solid #e2e8f0; }
th { color: #64748b; font-weight: 500; font-size: 13px; }
th:first-child, td:first-child { text-align: left; }
.note { color: #475569; font-size: 14px; margin: 6px 0 16px 16px; max-width: 80ch; }
.more, footer { color: #64748b; font-size: 13px; }
@media print { body { background: #fff; } section { break-inside: avoid; } }
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::Kind;
    use crate::evaluation::Better;
    use crate::metrics::Score;

    fn page(text: &str) -> String {
        let entries = [
            Entry::Layers {
                step: 50,
                layers: vec![format!("layers.0{text}")],
                gradient_norm: vec![Some(0.5)],
                update_ratio: vec![None],
                attention_layers: vec![],
                attention_entropy: vec![],
            },
            Entry::Warning {
                step: 60,
                about: Kind::LossSpike,
                message: text.to_owned(),
                hint: text.to_owned(),
            },
        ];
        let table = Table {
            title: text.to_owned(),
            columns: vec![text.to_owned()],
            rows: vec![vec![text.to_owned()]],
        };
        let samples: Vec<_> = (0..20).map(|i| (i, format!("{text} {i}"))).collect();
        Report {
            title: text,
            facts: &[(text.to_owned(), text.to_owned())],
            rows: &[],
            entries: &entries,
            samples: &samples,
            config: text,
            tables: &[table],
            loss_label: "loss",
            floor: Some(1.0),
            why_training_is_above: None,
        }
        .html()
    }

    #[test]
    fn nothing_a_model_writes_becomes_markup() {
        let html = page("<script>alert('x')</script>\" onload=\"x&\u{0}");
        assert!(!html.contains("<script") && !html.contains("\" onload"), "{html}");
        assert!(html.contains("&lt;script&gt;"));
        assert!(!html.contains('\u{0}'));
    }

    #[test]
    fn a_training_loss_above_the_validation_loss_is_explained() {
        let page = |train_loss: f64, val_loss: Option<f64>| {
            let row = |step, val_loss: Option<f64>| Row {
                step,
                train_loss: Some(train_loss),
                validation: val_loss
                    .and_then(|loss| Score::of(&Metric::loss(loss)))
                    .into_iter()
                    .collect(),
                lr: 0.0,
                grad_norm: None,
                tokens_per_second: 0.0,
                elapsed_seconds: 0.0,
            };
            Report {
                title: "run",
                facts: &[],
                rows: &[row(1, None), row(2, val_loss)],
                entries: &[],
                samples: &[],
                config: "",
                tables: &[],
                loss_label: "loss",
                floor: None,
                why_training_is_above: Some("rows are <cut>"),
            }
            .html()
        };
        let note = "<p class=\"note\">rows are &lt;cut&gt;</p>";
        assert!(page(0.2, Some(0.1)).contains(note));
        assert!(!page(0.1, Some(0.2)).contains(note) && !page(0.2, None).contains(note));
    }

    #[test]
    fn every_further_metric_has_a_curve() {
        let metrics = [Metric::loss(2.0), Metric::new("accuracy", Better::Higher, 0.25)];
        let row = Row {
            step: 5,
            train_loss: Some(1.0),
            validation: metrics.iter().filter_map(Score::of).collect(),
            lr: 0.0,
            grad_norm: None,
            tokens_per_second: 0.0,
            elapsed_seconds: 0.0,
        };
        let html = Report {
            title: "run",
            facts: &[],
            rows: &[row],
            entries: &[],
            samples: &[],
            config: "",
            tables: &[],
            loss_label: "loss, nats per token",
            floor: None,
            why_training_is_above: None,
        }
        .html();
        assert!(
            html.contains("Validation accuracy") && html.contains("validation 0.2500"),
            "{html}"
        );
        assert!(!html.contains("Validation loss") && html.contains("loss, nats per token"));
    }

    #[test]
    fn the_page_stands_alone() {
        let html = page("plain");
        for outside in ["src=", "href=", "@import", "url("] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert!(html.contains("… 12 more in samples.txt"));
        assert!(html.contains("Gradient norm per layer"));
        assert!(!html.contains("Attention entropy per layer"), "there was none");
    }
}
