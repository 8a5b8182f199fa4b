use super::*;

#[derive(Debug, PartialEq)]
struct Model {
    width: usize,
    tied: bool,
    way: Way,
    sizes: Vec<u32>,
}

#[derive(Debug, PartialEq)]
enum Way {
    Walk,
    Ride { speed: f32 },
    Fly { speed: f32, height: f64 },
}

impl Setting for Way {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.choice(&["walk", "ride", "fly"], |kind, t| {
            Ok(match kind {
                "ride" => Self::Ride { speed: t.or("speed", 1.0)? },
                "fly" => Self::Fly { speed: t.or("speed", 2.0)?, height: t.required("height")? },
                _ => Self::Walk,
            })
        })
    }
}

impl Setting for Model {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(|t| {
            Ok(Self {
                width: t.required("width")?,
                tied: t.or("tied", true)?,
                way: t.or("way", Way::Walk)?,
                sizes: t.or("sizes", Vec::new())?,
            })
        })
    }
}

#[derive(Debug, PartialEq)]
struct File {
    model: Model,
    seed: u64,
}

impl Setting for File {
    fn read(value: &Value<'_>) -> Result<Self> {
        value.table(|t| Ok(Self { model: t.required("model")?, seed: t.or("seed", 1)? }))
    }
}

const GOOD: &str = "seed = 3\n[model]\nwidth = 8\ntied = false\n";

fn read(text: &str, sets: &[&str]) -> Result<File> {
    let mut settings = Settings::parse(text, "m.toml")?;
    for set in sets {
        settings.set(set)?;
    }
    settings.read()
}

#[test]
fn defaults_fill_what_is_missing() {
    let file = read(GOOD, &[]).unwrap();
    let model = Model { width: 8, tied: false, way: Way::Walk, sizes: Vec::new() };
    assert_eq!(file, File { model, seed: 3 });
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_in_plain_words() {
    for (right, wrong, message, hint) in [
        (
            "width",
            "wdith",
            "m.toml, line 3: there is no setting model.wdith",
            "did you mean width?",
        ),
        ("tied", "teid", "m.toml, line 4: there is no setting model.teid", "did you mean tied?"),
        (
            "width = 8",
            "width = -8",
            "m.toml, line 3: model.width is -8, expected a whole number",
            "",
        ),
        ("width = 8", "width = \"x\"", "model.width is \"x\", expected a whole number", ""),
        ("width = 8", "width = 1.5", "model.width is 1.5, expected a whole number", ""),
        ("= false", "= 1", "m.toml, line 4: model.tied is 1, expected true or false", ""),
        ("width = 8\n", "", "model.width is missing", "add it"),
        ("width = 8", "width = 8 8", "m.toml, line 3: ", ""),
        ("[model]", "[[model]]", "model is a list, expected a table", ""),
        ("tied = false", "way = \"wlak\"", "line 4: model.way is \"wlak\"", "did you mean walk?"),
        ("tied = false", "way = { kind = 3 }", "model.way.kind is 3, expected one of walk", ""),
        ("tied = false", "way = 3", "model.way is 3, expected a table with its kind", ""),
        ("tied = false", "way = { kind = \"fly\" }", "model.way.height is missing", ""),
        ("tied = false", "\nway = { kind = \"ride\", sped = 1 }", "line 5: there is no", "speed?"),
        ("tied = false", "way = { kind = \"walk\", speed = 1 }", "no setting model.way.speed", ""),
        ("tied = false", "sizes = [1, -1]", "model.sizes is -1, expected a whole", ""),
    ] {
        let error = read(&GOOD.replacen(right, wrong, 1), &[]).unwrap_err();
        assert!(error.message().contains(message), "{error}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{error}");
    }
}

#[test]
fn a_choice_is_a_table_or_its_name_and_has_a_default_kind() {
    let way = |text: &str| read(&format!("{GOOD}way = {text}"), &[]).unwrap().model.way;
    assert_eq!(way("\"ride\""), Way::Ride { speed: 1.0 });
    assert_eq!(way("{ kind = \"ride\", speed = 3 }"), Way::Ride { speed: 3.0 });
    assert_eq!(way("{}"), Way::Walk);
}

#[test]
fn sets_go_over_the_file_and_are_named_in_errors() {
    let file = read(GOOD, &["model.width=16", "model.way=fly", "model.way.height=2"]).unwrap();
    assert_eq!((file.model.width, file.model.way), (16, Way::Fly { speed: 2.0, height: 2.0 }));
    for (set, message, hint) in [
        ("model.width=x", "--set model.width=x: model.width is \"x\", expected a whole", ""),
        ("width=3", "--set width=3: there is no setting width", "did you mean model.width?"),
        ("model.teid=true", "--set model.teid=true: there is no setting", "did you mean tied?"),
        ("model.width", "expected key=value", "--set train.lr"),
        ("model..width=3", "a key is missing", ""),
        ("=3", "a key is missing", ""),
        ("seed.x=3", "--set seed.x=3: seed is a table, expected a whole number", ""),
    ] {
        let error = read(GOOD, &[set]).unwrap_err();
        assert!(error.message().contains(message), "{error}");
        assert!(error.hint().unwrap_or_default().contains(hint), "{error}");
    }
}

#[test]
fn another_kind_keeps_the_keys_that_it_knows_and_drops_the_others_of_the_file() {
    let text = format!("{GOOD}way = {{ kind = \"fly\", speed = 5, height = 9 }}");
    let way = |sets: &[&str]| read(&text, sets).map(|file| file.model.way);
    assert_eq!(way(&["model.way.kind=ride"]).unwrap(), Way::Ride { speed: 5.0 });
    assert_eq!(way(&["model.way=ride"]).unwrap(), Way::Ride { speed: 1.0 });
    // What was set for a kind that does not have it is an error still.
    assert!(way(&["model.way.kind=ride", "model.way.height=3"]).is_err());
}

#[test]
fn json_is_read_in_the_same_way() {
    let json =
        serde_json::json!({ "model": { "width": 4, "tied": null, "way": "ride" }, "seed": 2 });
    let file: File = Settings::from_json(&json, "config.json").unwrap().read().unwrap();
    assert_eq!((file.seed, file.model.tied), (2, true));
    assert!(Settings::from_json(&serde_json::json!(3), "config.json").is_err());
}

#[test]
fn one_table_can_be_read_by_itself() {
    let settings = Settings::parse(&format!("{GOOD}[other]\nx = 1"), "m.toml").unwrap();
    assert_eq!(settings.read_only::<Model>("model").unwrap().unwrap().width, 8);
    assert!(settings.read_only::<Model>("none").unwrap().is_none());
    assert!(settings.has(&["model", "width"]) && !settings.has(&["model", "way"]));
}

#[test]
fn a_kind_that_is_set_excuses_only_keys_of_the_kind_that_the_file_chose() {
    let text = format!("{GOOD}way = {{ kind = \"fly\", sped = 5, height = 9 }}");
    for kind in ["fly", "ride", "walk"] {
        let error = read(&text, &[&format!("model.way.kind={kind}")]).unwrap_err();
        assert!(error.message().contains("there is no setting model.way.sped"), "{kind}: {error}");
    }
}

#[test]
fn a_table_that_was_made_by_a_set_is_blamed_on_it() {
    for (set, message) in [
        ("modle.width=3", "--set modle.width=3: there is no setting modle"),
        (
            "model.way.pace.slow=3",
            "--set model.way.pace.slow=3: there is no setting model.way.pace",
        ),
        ("a.b.c=3", "--set a.b.c=3: there is no setting a"),
    ] {
        let error = read(GOOD, &[set]).unwrap_err();
        assert_eq!(error.message(), message);
    }
}

#[test]
fn an_unknown_key_that_is_near_none_lists_what_there_is() {
    let error = read(GOOD, &["model.colour=3"]).unwrap_err();
    assert_eq!(error.hint(), Some("there are sizes, tied, way, width"));
}
