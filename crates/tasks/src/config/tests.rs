use super::*;

const TEXT: &str = "[model]\nkind = \"decoder\"\ncontext = 8\nlayers = 1\nwidth = 8\nheads = 2\n";

fn parse(text: &str, name: &str, sets: &[&str]) -> Result<RunConfig> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let config = RunConfig::parse(text, name, &sets)?;
    config.validate()?;
    Ok(config)
}

fn with(sets: &[&str]) -> Result<RunConfig> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    RunConfig::parse(TEXT, "test.toml", &sets)
}

#[test]
fn settings_go_over_the_file() {
    let config = with(&["train.lr=3e-4", "model.width=16", "data.tokenizer=byte"]).unwrap();
    let ModelConfig::Decoder(model) = &config.model else { panic!("not a decoder") };
    assert_eq!((config.train.lr, model.stack.width), (3e-4, 16));
    assert_eq!(config.data.tokenizer, TokenizerKind::Byte);
    let again = RunConfig::parse(&config.to_toml().unwrap(), "again", &[]).unwrap();
    assert_eq!(again.train, config.train);
    assert_eq!(again.model, config.model);
}

#[test]
fn one_number_sets_all_chances_of_dropping() {
    let ModelConfig::Decoder(model) = with(&["model.dropout=0.1"]).unwrap().model else {
        panic!("not a decoder")
    };
    let d = model.stack.dropout;
    assert_eq!([d.embedding, d.attention, d.feed_forward, d.residual], [0.1; 4]);
    let ModelConfig::Decoder(model) = with(&["model.dropout.attention=0.2"]).unwrap().model else {
        panic!("not a decoder")
    };
    assert_eq!((model.stack.dropout.attention, model.stack.dropout.residual), (0.2, 0.0));
    // The short form and one of its keys.
    let sets = ["model.dropout=0.1", "model.dropout.attention=0.2", "model.bias=true"];
    let sets = [&sets[..], &["model.bias.norm=false"]].concat();
    let ModelConfig::Decoder(model) = with(&sets).unwrap().model else { panic!("not a decoder") };
    assert_eq!((model.stack.dropout.attention, model.stack.dropout.residual), (0.2, 0.1));
    assert!(model.stack.bias.attention_in && !model.stack.bias.norm);
}

#[test]
fn a_part_of_a_choice_is_set_where_the_file_leaves_the_choice_to_its_default() {
    let config = with(&["train.schedule.warmup=7", "train.optimizer.beta2=0.99"]).unwrap();
    let default = TrainConfig::default();
    assert_eq!(config.train.schedule.warmup(), 7);
    let last = |train: &TrainConfig| train.schedule.factor(2000, 2000);
    assert_eq!(last(&config.train), last(&default)); // the same kind and floor
    let config = with(&["train.schedule.kind=constant"]).unwrap();
    assert_eq!(config.train.schedule.factor(1999, 2000), 1.0);
    for kind in ["constant", "linear", "inverse-sqrt", "wsd"] {
        let config = with(&[&format!("train.schedule.kind={kind}")]).unwrap();
        assert_eq!(config.train.schedule.warmup(), default.schedule.warmup(), "{kind}");
    }
    let lion = with(&["train.optimizer.kind=lion"]).unwrap().train.optimizer;
    let whole = with(&["train.optimizer={kind='lion'}"]).unwrap().train.optimizer;
    let name = with(&["train.optimizer=lion"]).unwrap().train.optimizer;
    assert_eq!((lion, name), (whole, whole)); // not the betas of AdamW
    with(&["model.position.kind=rope", "model.position.base=5.0"]).unwrap();
    with(&["model.position=rope", "model.position.base=5.0"]).unwrap();
}

#[test]
fn a_schedule_that_the_file_names_has_no_warm_up_but_its_own() {
    let schedule =
        |text: &str| parse(&format!("{TEXT}{text}"), "mine.toml", &[]).unwrap().train.schedule;
    assert_eq!(schedule("").warmup(), 100);
    assert_eq!(schedule("[train]\nschedule = { kind = \"constant\" }\n").warmup(), 0);
    assert_eq!(schedule("[train]\nschedule = { kind = \"cosine\" }\n").factor(2000, 2000), 0.0);
    assert_eq!(schedule("[train]\nschedule = { warmup = 7 }\n").warmup(), 7);
}

#[test]
fn only_a_warm_up_that_nobody_chose_is_shortened() {
    let warmup = |text: &str, name: &str, sets: &[&str]| {
        let mut config = parse(text, name, sets).unwrap();
        config.train.steps = 40;
        config.fit_warmup();
        config.train.schedule.warmup()
    };
    let preset = presets::find("nanogpt-cpu").unwrap();
    let mine = format!("{TEXT}[train.schedule]\nkind = \"cosine\"\nwarmup = 30\n");
    assert_eq!(warmup(TEXT, "mine.toml", &[]), 4);
    assert_eq!(warmup(preset, "nanogpt-cpu", &[]), 4);
    assert_eq!(warmup(preset, "nanogpt-cpu", &["train.schedule.kind=constant"]), 4);
    assert_eq!(warmup(&mine, "mine.toml", &[]), 30);
    assert_eq!(warmup(preset, "nanogpt-cpu", &["train.schedule.warmup=60"]), 60);
    let whole = "train.schedule={kind='linear', warmup=50}";
    assert_eq!(warmup(TEXT, "mine.toml", &[whole]), 50);
    // At its own number of steps a preset is as it is written.
    for (name, text) in presets::ALL {
        let mut config = parse(text, name, &[]).unwrap();
        let before = config.train.schedule;
        config.fit_warmup();
        assert_eq!(config.train.schedule, before, "{name}");
    }
}

#[test]
fn another_kind_keeps_the_keys_that_it_knows() {
    let schedule = "[train.schedule]\nkind = \"cosine\"\nwarmup = 30\nfloor = 0.5\n";
    let text = format!("{TEXT}{schedule}");
    let parse = |sets: &[&str]| parse(&text, "test.toml", sets);
    let constant = parse(&["train.schedule.kind=constant"]).unwrap().train.schedule;
    assert_eq!(constant.warmup(), 30);
    assert_eq!(constant.factor(1999, 2000), 1.0);
    let linear = parse(&["train.schedule.kind=linear"]).unwrap().train.schedule;
    assert_eq!(linear.factor(2000, 2000), 0.5);
    // What was set by hand must fit.
    assert!(parse(&["train.schedule.kind=constant", "train.schedule.floor=0.1"]).is_err());
    assert!(parse(&["train.schedule.kind=konstant"]).is_err());
}

#[test]
fn what_is_wrong_in_the_file_is_told_from_what_is_set() {
    let bad = TEXT.replace("heads", "haeds");
    let error = parse(&bad, "test.toml", &["train.steps=5"]).unwrap_err();
    assert!(error.message().starts_with("test.toml, line 6"), "{error}");
    let error = with(&["model.width=16", "data.tokenizer=bpee", "train.lr=1"]).unwrap_err();
    let start = "--set data.tokenizer=bpee: data.tokenizer is \"bpee\"";
    assert!(error.message().starts_with(start), "{error}");
    assert_eq!(error.hint(), Some("did you mean bpe?"));
    let error = with(&["train.stpes=5"]).unwrap_err();
    assert_eq!(error.message(), "--set train.stpes=5: there is no setting train.stpes");
    assert_eq!(error.hint(), Some("did you mean steps?"));
}

#[test]
fn bad_settings_are_named_and_no_rust_type_is_shown() {
    for (set, named) in [
        ("train.lrr=1", "lrr"),
        ("train", "key=value"),
        ("width=8", "did you mean model.width?"),
        ("lr=0.1", "did you mean train.lr?"),
        ("model.width.x=1", "--set model.width.x=1: model.width is a table"),
        ("train.steps=many", "--set train.steps=many: train.steps is \"many\""),
        ("train.lr=fast", "--set train.lr=fast: train.lr is \"fast\", expected a number"),
        ("train.precision=fp8", "train.precision is \"fp8\", expected one of f32, bf16, f16"),
        ("train.gradient_checkpointing=yes", "expected true or false"),
        ("train.schedule.warmup=x", "train.schedule.warmup is \"x\""),
        ("train.optimizer.beta1=x", "train.optimizer.beta1 is \"x\""),
        ("model.dropout=much", "model.dropout is \"much\", expected a number"),
        ("data.validation=2", "validation"),
        ("data.stories=100000000000", "at most 1000000"),
        ("train.schedule=3", "a table with its kind"),
        ("train.steps=-1", "a whole number"),
    ] {
        let error = parse(TEXT, "test.toml", &[set]).unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("hint: "), "{error}");
        for rust in ["usize", "f64", "f32 ", "struct", "enum", "variant", "DropoutConfig"] {
            assert!(!error.contains(rust), "{error}");
        }
    }
}

#[test]
fn what_nothing_would_read_is_refused_for_new_runs_and_goes_on_in_old_ones() {
    for (preset, set, named) in [
        ("lstm-small", "train.gradient_checkpointing=true", "no blocks to compute again"),
        ("stories", "task.denoise=true", "the model is no encoder-decoder"),
        ("stories", "data.targets=[\"a.es\"]", "it would not read them"),
        ("dates", "data.most_tokens=4", "for texts of your own"),
        ("stories", "data.prefix={kind=\"separator\",text=\".\"}", "the model has no prefix"),
        ("dates", "task.translations=0", "nothing would be judged"),
        ("lstm-small", "model.init.query_key_scale=2.0", "this model has none"),
        ("convolution-small", "model.init.query_key_scale=2.0", "this model has none"),
    ] {
        let config = RunConfig::read(preset, &[set.to_owned()]).unwrap();
        config.validate().unwrap_or_else(|error| panic!("{set} is refused: {error}"));
        let error = config.check_that_all_is_read().unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("hint: "), "{set}: {error}");
        RunConfig::read(preset, &[]).unwrap().check_that_all_is_read().unwrap();
    }
}
