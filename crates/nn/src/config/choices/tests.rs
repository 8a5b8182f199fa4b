use super::*;
use crate::config::ModelConfig;
use hearken_base::settings::Settings;

fn read(text: &str) -> Result<ModelConfig> {
    let sizes = "kind = \"decoder\"\ncontext = 8\nlayers = 1\nwidth = 8\nheads = 2\n";
    Settings::parse(&format!("{sizes}{text}"), "m.toml")?.read()
}

#[test]
fn shorthands_mean_what_their_tables_mean() {
    for (short, long) in [
        ("norm = \"rms\"", "norm = { kind = \"rms\", placement = \"pre\" }"),
        ("position = \"rope\"", "position = { kind = \"rope\", base = 10000 }"),
        ("feed_forward = \"swiglu\"", "feed_forward = { kind = \"swiglu\" }"),
        (
            "bias = true",
            "bias = { attention_in = true, attention_out = true, feed_forward = true, norm = true }",
        ),
        (
            "dropout = 0.1",
            "dropout = { embedding = 0.1, attention = 0.1, feed_forward = 0.1, residual = 0.1 }",
        ),
        ("init = \"xavier\"", "init = { kind = \"xavier\" }"),
        (
            "experts = 8",
            "experts = { count = 8, top = 2, normalised = true, balance = 0.01, z_loss = 0.001 }",
        ),
        ("", "tied = true"),
    ] {
        assert_eq!(read(short).unwrap(), read(long).unwrap(), "{short}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    for text in [
        "",
        "position = { kind = \"rope\", scaling = { kind = \"yarn\", factor = 2, original_context = 8 } }",
        "bias = { attention_in = true }\nattention = { kind = \"sparse\", window = 3, global = 1 }",
        "experts = { count = 4, top = 1, capacity = 1.25 }\nprefix = true",
        "softmax = { top = 3, temperature = 0.5 }\nshared_projections = \"key-value\"",
        "dropout = 0.2\nfeed_forward = { kind = \"geglu-tanh\", width = 9 }\nvalue_width = 3",
    ] {
        let config = read(text).unwrap();
        let written = toml::to_string_pretty(&config).unwrap();
        let back: ModelConfig = Settings::parse(&written, "back").unwrap().read().unwrap();
        assert_eq!(back, config, "{written}");
        let json = serde_json::to_value(&config).unwrap();
        let back: ModelConfig = Settings::from_json(&json, "json").unwrap().read().unwrap();
        assert_eq!(back, config, "{json}");
    }
}

#[test]
fn a_stray_key_inside_a_choice_is_an_error_that_names_the_nearest() {
    for (bad, hint) in [
        ("position = { kind = \"rope\", bsae = 3.0 }", "did you mean base?"),
        ("attention = { kind = \"full\", size = 3 }", "there are kind"),
        ("norm = { kind = \"rms\", epsilon = 1e-5 }", "did you mean eps?"),
        ("position = \"roep\"", "did you mean rope?"),
    ] {
        let error = read(bad).unwrap_err();
        assert!(error.hint().is_some_and(|given| given.contains(hint)), "{bad}: {error}");
    }
}
