//! One file that holds the page and the answers that it asks for at the start, for one prompt.

use crate::{Session, Subject, assets};
use hearken_base::{Error, Result};
use serde_json::{Map, Value, json};

/// The page with recorded answers. What was not recorded needs the engine, and the page says so.
pub fn export(subject: &Subject) -> Result<String> {
    let answers = record(subject)?;
    let script = format!("globalThis.RECORDED = {};\n{}", answers, assets::bundle());
    // Within a script, only this ends it.
    let script = script.replace("</", "<\\/");
    let page = assets::INDEX
        .replace(
            "<link rel=\"stylesheet\" href=\"style.css\">",
            &format!("<style>\n{}</style>", assets::STYLE),
        )
        .replace(
            "<script type=\"module\" src=\"main.js\"></script>",
            &format!("<script type=\"module\">\n{script}</script>"),
        );
    if page.contains("src=\"main.js\"") || page.contains("href=\"style.css\"") {
        return Err(Error::new("the page could not be put together", "please report it"));
    }
    Ok(page)
}

/// Answers by question: the name and the fields in the order of their names.
struct Recorder<'a> {
    session: Session<'a>,
    answers: Map<String, Value>,
}

impl Recorder<'_> {
    fn key(name: &str, body: &Value) -> String {
        // In the order of their names, whatever the features of serde_json.
        let fields: std::collections::BTreeMap<&String, &Value> =
            body.as_object().into_iter().flatten().collect();
        format!("{name} {}", json!(fields))
    }

    /// Records an answer, and gives it.
    fn ask(&mut self, name: &str, body: &Value) -> Result<Value> {
        let answer = self.session.answer(name, body)?;
        self.answers.insert(Self::key(name, body), answer.clone());
        Ok(answer)
    }

    /// Records an answer, if this model has one: an encoder has no cache.
    fn try_ask(&mut self, name: &str, body: &Value) {
        if let Err(error) = self.ask(name, body) {
            let refused = json!({ "error": error.message(), "hint": error.hint() });
            self.answers.insert(Self::key(name, body), refused);
        }
    }
}

/// What the page asks for in every view, at the start and after a click on a token, a stage or a head.
fn record(subject: &Subject) -> Result<Value> {
    let mut recorder = Recorder { session: subject.session()?, answers: Map::new() };
    let ids = &subject.ids;
    let model = recorder.ask("model", &json!({}))?;
    recorder.ask("tokens", &json!({ "ids": ids }))?;
    let plain = recorder.ask("run", &json!({ "ids": ids }))?;
    let target = subject.target.map(|(place, id)| json!([place, id])).or_else(|| {
        let best = plain["next"][0]["id"].as_u64()?;
        let learns = model["can"]["learn"].as_bool().unwrap_or(false);
        learns.then(|| json!([ids.len() - 1, best]))
    });
    let own = target.as_ref().and_then(|target| target[1].as_u64());
    if let Some(source) = model["source"]["ids"].as_array().filter(|ids| !ids.is_empty()) {
        recorder.ask("tokens", &json!({ "ids": source }))?;
    }
    for id in ids.iter().map(|id| u64::from(*id)).chain(own) {
        recorder.try_ask("tokens", &json!({ "ids": [id] }));
    }
    if let Some(target) = &target {
        recorder.try_ask("run", &json!({ "ids": ids, "target": target }));
    }
    for stage in model["stages"].as_array().into_iter().flatten() {
        record_stage(&mut recorder, ids, target.as_ref(), stage);
    }
    let has_table = model["vocabulary"].as_u64().unwrap_or(0) > 0;
    for place in 0..ids.len() {
        recorder.try_ask("stream", &json!({ "ids": ids, "place": place }));
        if has_table {
            let sum = json!([[1, ids[place]]]);
            recorder.try_ask("nearest", &json!({ "sum": sum, "count": 12 }));
        }
    }
    if let Some(token) = target.as_ref().map(|target| &target[1]) {
        let place = ids.len() - 1;
        recorder.try_ask("stream", &json!({ "ids": ids, "place": place, "token": token }));
    }
    for name in ["lens", "logits", "cache", "plane"] {
        recorder.try_ask(name, &json!({ "ids": ids }));
    }
    for stage in model["stages"].as_array().into_iter().flatten() {
        if let Some(name) = stage["name"].as_str().filter(|n| n.ends_with("feed_forward.active")) {
            recorder.try_ask("neurons", &json!({ "ids": ids, "stage": name }));
        }
    }
    if let Some(target) = &target {
        let body = json!({ "ids": ids, "target": target, "changes": [] });
        recorder.try_ask("intervene", &body);
        for layer in 0..model["stack"]["layers"].as_u64().unwrap_or(0) {
            recorder.try_ask("effects", &json!({ "ids": ids, "target": target, "layer": layer }));
        }
    }
    Ok(json!({ "answers": recorder.answers, "target": target }))
}

fn record_stage(recorder: &mut Recorder<'_>, ids: &[u32], target: Option<&Value>, stage: &Value) {
    let name = stage["name"].as_str().unwrap_or_default();
    if let Some(site) = name.strip_suffix(".weights").filter(|site| site.ends_with("attention")) {
        recorder.try_ask("heads", &json!({ "ids": ids, "site": site }));
    }
    let body = |head: u64| {
        let mut body = json!({ "ids": ids, "name": name, "head": head });
        if let Some(target) = target {
            body["target"] = target.clone();
        }
        body
    };
    // The row that the page looks at first.
    let of_source = name.starts_with("encoder.")
        || name.ends_with("cross_attention.keys")
        || name.ends_with("cross_attention.values");
    let last = if of_source { 0 } else { ids.len() - 1 };
    let mut heads = 1;
    let mut head = 0;
    while head < heads {
        let plain = json!({ "ids": ids, "name": name, "head": head });
        if let Ok(answer) = recorder.ask("tensor", &plain) {
            heads = answer["heads"].as_u64().unwrap_or(1);
        }
        if target.is_some() {
            let mut gradient = body(head);
            gradient["gradient"] = json!(true);
            recorder.try_ask("tensor", &gradient);
        }
        for mut number in [plain, body(head)] {
            number["row"] = json!(last);
            number["column"] = json!(0);
            recorder.try_ask("number", &number);
        }
        head += 1;
    }
}
