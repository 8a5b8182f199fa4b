//! `report.html`: a run on one page that needs nothing else.

use crate::compare::STYLE;
use crate::evaluation::Metric;
use crate::exhibit::Exhibit;
use crate::metrics::{Entry, Row, final_training_loss};
use crate::plot::{self, Chart, Series, thousands};
use hearken_show::heat_map::{Column, HeatMap};
use hearken_show::page::{self, Value, context, markup};

pub use hearken_show::Table;

/// The page, with places for what this module fills in.
const TEMPLATE: &str = include_str!("report/report.html");

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
    /// Beneath the title: data, machine, date, version.
    pub about: &'a [String],
    /// What the task shows of its model.
    pub exhibits: &'a [Exhibit],
}

impl Report<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let facts = self.facts.iter();
        let facts: Vec<Value> = facts.map(|(name, value)| context! { name, value }).collect();
        let why = self.why_training_is_above.filter(|_| self.training_is_above());
        let exhibits = self.exhibits.iter();
        let exhibits: Vec<Value> = exhibits
            .map(|Exhibit { title, about, body }| context! { title, about, body => markup(body.clone()) })
            .collect();
        let values = context! {
            title => self.title,
            style => markup(STYLE.to_owned()),
            about => self.about.join(" · "),
            facts,
            warnings => self.warnings(),
            loss => self.loss((1080.0, 440.0)),
            small_loss => self.loss((530.0, 380.0)),
            loss_about => self.loss_about(),
            exhibits,
            note => why,
            curves => self.curves(),
            maps => self.maps(),
            samples => self.samples(),
            tables => self.tables(),
            config => self.config,
        };
        page::render(TEMPLATE, values).expect("the template is ours, and tested")
    }

    fn warnings(&self) -> Vec<Value> {
        let warning = |entry: &Entry| match entry {
            Entry::Warning { step, message, hint, .. } => Some(context! { step, message, hint }),
            Entry::Layers { .. } => None,
        };
        self.entries.iter().filter_map(warning).collect()
    }

    fn loss(&self, size: (f64, f64)) -> Value {
        let mut loss = plot::loss_chart(self.rows, self.floor);
        loss.size = size;
        self.loss_label.clone_into(&mut loss.y_label);
        markup(loss.svg())
    }

    fn loss_about(&self) -> &'static str {
        if self.floor.is_some() {
            "How far off the predictions are, on the batches of training and on what is held out. \
             Both should fall and come to rest just above the green line, which no model can beat."
        } else {
            "How far off the predictions are, on the batches of training and on what is held out. \
             Both should fall; validation that turns upwards while training goes on falling means \
             that the text is learned by heart."
        }
    }

    fn curves(&self) -> Vec<Value> {
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
        let mut norm = small("Gradient norm", "before clipping", |row| row.grad_norm);
        norm.logarithmic = true;
        let charts = [
            (
                "How large the steps are: it rises while the model warms up and falls as the \
                 schedule says.",
                small("Learning rate", "per step", |row| Some(row.lr)),
            ),
            (
                "The size of all gradients together: it should settle; spikes that come again and \
                 again ask for a lower learning rate or a longer warm-up.",
                norm,
            ),
            (
                "Tokens per second of each step: level, unless something else uses the machine.",
                small("Speed", "tokens per second", |row| Some(row.tokens_per_second)),
            ),
            (
                "Seconds since the start: a straight line, with a rise at evaluations and \
                 checkpoints.",
                small("Time", "seconds since the start", |row| Some(row.elapsed_seconds)),
            ),
        ];
        let about = "On what is held out, at each evaluation.";
        let further =
            self.further_metrics().into_iter().map(|name| (about, self.metric_chart(name)));
        charts
            .into_iter()
            .chain(further)
            .map(|(about, chart)| context! { about, svg => markup(chart.svg()) })
            .collect()
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

    /// Does the [training loss at the end](final_training_loss) lie above the last validation loss?
    fn training_is_above(&self) -> bool {
        let validation = self.rows.iter().rev().find_map(|row| row.value(Metric::LOSS));
        match (final_training_loss(self.rows), validation) {
            (Some((_, training)), Some(validation)) => training > validation,
            _ => false,
        }
    }

    fn maps(&self) -> Vec<Value> {
        let map = |title: &str, unit: &str, logarithmic| HeatMap {
            title: title.to_owned(),
            x_label: "step".to_owned(),
            unit: unit.to_owned(),
            logarithmic,
            ..HeatMap::default()
        };
        let mut norms = map("Gradient norm per layer", "", true);
        let mut ratios = map("Update / weight per layer", "", true);
        let mut entropies = map("Attention entropy per layer", " nats", false);
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
                for (map, rows, cells) in [
                    (&mut norms, layers, gradient_norm),
                    (&mut ratios, layers, update_ratio),
                    (&mut entropies, attention_layers, attention_entropy),
                ] {
                    if map.columns.is_empty() {
                        map.rows.clone_from(rows);
                    }
                    let label = thousands(*step as f64);
                    map.columns.push(Column { label, cells: cells.clone() });
                }
            }
        }
        let about = [
            "The size of the gradients of each layer. Blocks should be of the same order; those of \
             norms and embeddings are usually smaller. A block thousands of times below the others \
             learns nothing.",
            "How far a step moves each layer, as a share of its weights: about 1e-3 is usual for \
             AdamW, more for Muon; it falls with the learning rate.",
            "How widely the heads of each layer look, from 0 (one token) up: it falls as heads find \
             what to look for; a layer at 0 has collapsed.",
        ];
        let maps = [norms, ratios, entropies].into_iter().zip(about);
        maps.filter_map(|(map, about)| {
            let wide = markup(map.svg()?);
            let narrow = markup(HeatMap { narrow: true, ..map }.svg()?);
            Some(context! { about, wide, narrow })
        })
        .collect()
    }

    /// All of a long run would be too much: the first few show the way, the last the end.
    fn samples(&self) -> Vec<Value> {
        let (first, last) = (3, 5);
        let skipped = self.samples.len().saturating_sub(first + last);
        let shown = |i: usize| i < first || i >= first + skipped;
        let samples = self.samples.iter().enumerate().filter(|(i, _)| shown(*i));
        samples
            .map(|(i, (step, text))| {
                let before = if i == first + skipped { skipped } else { 0 };
                context! { before, step, text }
            })
            .collect()
    }

    fn tables(&self) -> Vec<Value> {
        let table = |table: &Table| {
            let Table { title, columns, rows } = table.clone();
            context! { title, columns, rows }
        };
        self.tables.iter().map(table).collect()
    }
}

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
            about: &[text.to_owned(), "0.1".to_owned()],
            exhibits: &[Exhibit {
                title: text.to_owned(),
                about: text.to_owned(),
                body: "<p class=\"passage\">made by us</p>".to_owned(),
            }],
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
                about: &[],
                exhibits: &[],
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
            about: &[],
            exhibits: &[],
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
        assert!(html.contains("<p class=\"passage\">made by us</p>"));
        assert!(html.contains("<p class=\"subtitle\">plain · 0.1</p>"));
        assert!(html.contains("prefers-color-scheme: dark"));
        assert!(html.contains("… 12 more in samples.txt"));
        assert!(html.contains("Gradient norm per layer"));
        assert!(!html.contains("Attention entropy per layer"), "there was none");
    }
}
