//! HTML from templates in the language of Jinja.
//!
//! Everything that a template inserts is escaped, as [`svg::escape`] does it, except for what was
//! made [`markup`]. A name that is not there is an error rather than nothing.

use crate::svg;
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior};

pub use minijinja::{Value, context};

/// Text that is inserted as it is: a picture that was drawn here.
pub fn markup(text: String) -> Value {
    Value::from_safe_string(text)
}

/// The template with these values. Fails only if the template is wrong.
pub fn render(template: &str, values: Value) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
    environment.set_syntax(syntax.build()?);
    environment.set_formatter(|out, _, value| {
        let text = value.to_string();
        let text = if value.is_safe() { text } else { svg::escape(&text) };
        out.write_str(&text).map_err(Error::from)
    });
    environment.render_str(template, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_markup_is_not() {
        let values = context! { text => "<b>'\u{0}", picture => markup("<svg/>".to_owned()) };
        let page = render("<p title=\"{{ text }}\">{{ picture }}</p>\n", values).unwrap();
        assert_eq!(page, "<p title=\"&lt;b&gt;&#39;\u{fffd}\"><svg/></p>\n");
    }

    #[test]
    fn lists_are_gone_through_and_misspelt_names_are_errors() {
        let list: Vec<Value> = ["a", "b"].map(|name| context! { name => name }).to_vec();
        let template = "<ul>\n{% for item in list %}\n  <li>{{ item.name }}\n{% endfor %}\n</ul>\n";
        let page = render(template, context! { list => list }).unwrap();
        assert_eq!(page, "<ul>\n  <li>a\n  <li>b\n</ul>\n");
        assert!(render("{{ nothing }}", context! {}).is_err());
    }
}
