//! What `hearken explain` found, in the terminal.

use super::Report;
use crate::failure::Failure;
use crate::terminal::{Terminal, visible};
use hearken::data::tokenizer::Pieces;
use hearken::explain::Stage;
use hearken::explain::arithmetic::{line, short, softmax};
use serde_json::Value;
use std::io::Write;

impl Report<'_> {
    /// Everything, for people.
    pub(super) fn write(&self, found: &Value, out: &mut impl Write) -> Result<(), Failure> {
        let terminal = Terminal::stdout();
        let number = |value: &Value| value.as_f64().map_or("–".to_owned(), short);
        self.write_tokens(terminal, out)?;
        for stage in self.stages() {
            self.write_stage(stage, terminal, out)?;
        }
        let list = |key: &str| found[key].as_array().cloned().unwrap_or_default();
        let heads = list("heads");
        // Linear attention and hashes have no weights of single tokens.
        if !heads.is_empty() {
            writeln!(out, "\n{}", terminal.bold("heads: where their weights go"))?;
        }
        for head in heads {
            let site = head["site"].as_str().unwrap_or_default();
            let stack = if site.starts_with("encoder.") { "encoder " } else { "" };
            let role = match head["role"].as_str() {
                Some(role) => format!("{role} {}", number(&head["score"])),
                None => "no role found".to_owned(),
            };
            writeln!(
                out,
                "  {stack}block {} head {}: {role}, entropy {}",
                head["layer"],
                head["head"],
                number(&head["entropy"])
            )?;
        }
        if let Some(first) = found["candidates"]["first"].as_array() {
            let left = &found["candidates"];
            writeln!(
                out,
                "\n{}",
                terminal.bold("choice: logit / temperature → softmax → filters")
            )?;
            for c in first.iter().take(8) {
                writeln!(
                    out,
                    "  {:<16} logit {:>8}  / temperature {:>8}  probability {}",
                    visible(&format!("{:?}", c["text"].as_str().unwrap_or_default())),
                    number(&c["logit"]),
                    number(&c["scaled"]),
                    number(&c["probability"])
                )?;
            }
            let chosen = found["chosen"]["text"].as_str().unwrap_or_default();
            writeln!(
                out,
                "  {} of {} tokens are left; drawn: {}",
                left["left"],
                left["of"],
                visible(&format!("{chosen:?}"))
            )?;
        }
        if found["lens"].is_array() {
            self.write_lens(found, terminal, out)?;
        }
        if self.target.is_some() {
            self.write_target(found, terminal, out)?;
        }
        Ok(())
    }

    fn write_tokens(&self, terminal: Terminal, out: &mut impl Write) -> Result<(), Failure> {
        let pieces = self.tokenizer.map(Pieces::of).transpose()?;
        writeln!(out, "{}", terminal.bold("tokens"))?;
        for (i, id) in self.flow.ids.iter().enumerate() {
            let text = self.text(*id);
            let found = pieces.as_ref().map_or_else(|| text.clone().into_bytes(), |p| p.bytes(*id));
            let bytes: Vec<String> = found.iter().map(|b| format!("0x{b:02x}")).collect();
            let merges = pieces.as_ref().map(|p| p.merges(*id).1).unwrap_or_default();
            let merges: Vec<String> = merges.iter().map(|m| m.pieces.join("|")).collect();
            let arrow = if merges.is_empty() { "" } else { "  merges → " };
            writeln!(
                out,
                "  {i:>3}  id {id:<6} {:<16} bytes {}{arrow}{}",
                visible(&format!("{text:?}")),
                bytes.join(" "),
                visible(&merges.join(" → "))
            )?;
        }
        Ok(())
    }

    /// The logit lens, and what each part adds to the logit.
    fn write_lens(
        &self,
        found: &Value,
        terminal: Terminal,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let number = |value: &Value| value.as_f64().map_or("–".to_owned(), short);
        let list = |key: &str| found[key].as_array().cloned().unwrap_or_default();
        writeln!(out, "\n{}", terminal.bold("logit lens: what the residual stream would predict"))?;
        for glimpse in list("lens") {
            let best = &glimpse["likeliest"][0];
            let text = format!("{:?}", best["text"].as_str().unwrap_or_default());
            writeln!(
                out,
                "  {:<28} norm {:>8}  {} {}",
                glimpse["stage"].as_str().unwrap_or_default(),
                number(&glimpse["norm"]),
                visible(&text),
                number(&best["probability"])
            )?;
        }
        let id =
            self.target.map(|(_, id)| id).or(found["chosen"]["id"].as_u64().map(|id| id as u32));
        let text = id.map_or(String::new(), |id| format!(" of {:?}", self.text(id)));
        let title = format!("what each part adds to the logit{text}");
        writeln!(out, "\n{}", terminal.bold(&visible(&title)))?;
        for part in list("contributions") {
            writeln!(
                out,
                "  {:<28} {:>9}",
                part["part"].as_str().unwrap_or_default(),
                number(&part["logit"])
            )?;
        }
        Ok(())
    }

    fn write_stage(
        &self,
        stage: &Stage,
        terminal: Terminal,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let shape: Vec<String> = stage.shape.iter().map(ToString::to_string).collect();
        writeln!(out, "\n{} ({})", terminal.bold(&stage.name), shape.join(", "))?;
        writeln!(out, "  {}  {}", stage.sentence, stage.formula)?;
        let (index, place) = stage.at(self.focus);
        let width = stage.shape.last().copied().unwrap_or(1).max(1);
        let start = index / width * width;
        let show = |data: &[f32]| {
            let row = &data[start..(start + width).min(data.len())];
            let each = |x: &f32| short(f64::from(*x));
            if row.len() <= 8 {
                return row.iter().map(each).collect::<Vec<_>>().join("  ");
            }
            let head: Vec<String> = row[..4].iter().map(each).collect();
            let tail: Vec<String> = row[row.len() - 2..].iter().map(each).collect();
            format!("{} … {}", head.join("  "), tail.join("  "))
        };
        writeln!(out, "  row: {}", show(stage.value.data()))?;
        if let Some(gradient) = &stage.gradient {
            let norm = stage.gradient_norm().unwrap_or(0.0);
            writeln!(out, "  ∂L:  {}   norm {}", show(gradient.data()), short(norm))?;
        }
        if let Some(line) = line(self.model, &self.flow, stage, self.focus) {
            let place: Vec<String> = place.iter().map(ToString::to_string).collect();
            writeln!(out, "  [{}]: {}", place.join("]["), line.text)?;
        }
        Ok(())
    }

    fn write_target(
        &self,
        found: &Value,
        terminal: Terminal,
        out: &mut impl Write,
    ) -> Result<(), Failure> {
        let number = |value: &Value| value.as_f64().map_or("–".to_owned(), short);
        let Some((place, id)) = self.target else { return Ok(()) };
        writeln!(out, "\n{}", terminal.bold("loss"))?;
        let logits = self.flow.value("logits");
        if let Some(logits) = logits.filter(|_| self.model.predicts_tokens().is_some()) {
            let width = logits.shape().width();
            let row = &logits.data()[place * width..(place + 1) * width];
            if let Some((text, p)) = softmax(row, id as usize) {
                writeln!(out, "  {} = {text}", short(p))?;
                writeln!(out, "  {} = −ln {}", number(&found["loss"]), short(p))?;
            }
        } else {
            writeln!(out, "  {}", number(&found["loss"]))?;
        }
        // Linear attention and hashes have no weights of single tokens.
        let weighed = found["effects"][0]["attention"].is_number();
        let title = if weighed {
            "each head silenced: its largest weight, and how the loss rises"
        } else {
            "each head silenced: how the loss rises"
        };
        writeln!(out, "\n{}", terminal.bold(title))?;
        for effect in found["effects"].as_array().into_iter().flatten() {
            let weight = if weighed {
                format!("weight {}, ", number(&effect["attention"]))
            } else {
                String::new()
            };
            writeln!(
                out,
                "  block {} head {}: {weight}loss {:+.4}",
                effect["layer"],
                effect["head"],
                effect["rise"].as_f64().unwrap_or(0.0)
            )?;
        }
        let update = &found["update"];
        writeln!(out, "\n{}", terminal.bold("one step of AdamW (taken back)"))?;
        if let Some(refused) = update["refused"].as_str() {
            writeln!(out, "  refused: {refused}")?;
            return Ok(());
        }
        writeln!(
            out,
            "  {}[{}]: {} → {}   m {}  v {}  clip factor {}  lr {}",
            update["weight"].as_str().unwrap_or_default(),
            update["index"],
            number(&update["before"]),
            number(&update["after"]),
            number(&update["m"]),
            number(&update["v"]),
            number(&update["clip_factor"]),
            number(&update["lr"])
        )?;
        writeln!(
            out,
            "  loss {} → {}",
            number(&update["loss_before"]),
            number(&update["loss_after"])
        )?;
        Ok(())
    }
}
