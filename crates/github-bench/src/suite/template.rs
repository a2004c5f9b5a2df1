//! Templates of scripts: values taken from earlier observations. `{{2.items.0.sha}}` is that value in the observation
//! of the second step. A string that is one template and nothing else keeps the type of the value. Filters produce
//! texts: `{{1.content | replace: "old" => "new" | append: "\n"}}`.

use std::collections::BTreeSet;

use serde_json::Value;

/// Why a template cannot be filled in. Only `Syntax` is a mistake in the file; the others depend on what a run
/// observed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScriptTemplateError {
    #[error("{template}: {reason}")]
    Syntax { template: String, reason: String },
    #[error("{template}: there is no step {step} before it")]
    NoSuchStep { template: String, step: usize },
    #[error("{template}: the observation of step {step} has no {path:?}")]
    Missing { template: String, step: usize, path: String },
    #[error("{template}: {filter:?} is not in the text, so it cannot be replaced")]
    NothingToReplace { template: String, filter: String },
}

/// Returns the value with all templates filled in, at any depth. `observations` are those of the steps so far, first
/// to last; one that is not JSON is a string.
pub fn fill_template(value: &Value, observations: &[Value]) -> Result<Value, ScriptTemplateError> {
    Ok(match value {
        Value::String(text) => match parse_template(text)?.as_slice() {
            [ScriptTemplatePiece::Taken(one)] => one.resolve(observations)?,
            pieces => Value::String(join_pieces(pieces, observations)?),
        },
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| fill_template(item, observations)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => {
            let filled = fields.iter().map(|(name, field)| Ok((name.clone(), fill_template(field, observations)?)));
            Value::Object(filled.collect::<Result<_, _>>()?)
        }
        other => other.clone(),
    })
}

/// As [`fill_template`], for a text that stays a text: values are inserted as JSON, null as nothing.
pub fn fill_text(text: &str, observations: &[Value]) -> Result<String, ScriptTemplateError> {
    join_pieces(&parse_template(text)?, observations)
}

/// Returns the numbers (from 1) of the steps whose observations a value uses. A text with a syntax error refers to
/// nothing.
pub fn list_referenced_steps(value: &Value) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    visit_strings(value, &mut |text| {
        for piece in parse_template(text).unwrap_or_default() {
            if let ScriptTemplatePiece::Taken(taken) = piece {
                found.insert(taken.step);
            }
        }
    });
    found
}

/// As [`list_referenced_steps`], for a text.
pub fn list_steps_in_text(text: &str) -> BTreeSet<usize> {
    list_referenced_steps(&Value::String(text.to_owned()))
}

/// Adapts a value after steps were inserted or removed: each step number in a template is mapped by `number`.
pub(crate) fn renumber_steps(value: &Value, number: &dyn Fn(usize) -> usize) -> Value {
    match value {
        Value::String(text) => Value::String(renumber_text(text, number)),
        Value::Array(items) => Value::Array(items.iter().map(|item| renumber_steps(item, number)).collect()),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, field)| (name.clone(), renumber_steps(field, number))).collect())
        }
        other => other.clone(),
    }
}

/// Rewrites only the numbers, so that spacing and filters of a template stay as written.
pub(crate) fn renumber_text(text: &str, number: &dyn Fn(usize) -> usize) -> String {
    let Ok(pieces) = parse_template(text) else { return text.to_owned() };
    pieces
        .iter()
        .map(|piece| match piece {
            ScriptTemplatePiece::Text(text) => (*text).to_owned(),
            ScriptTemplatePiece::Taken(taken) => {
                let behind = taken.template.trim_start_matches("{{").trim_start();
                let behind = behind.trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{{{{{}{behind}", number(taken.step))
            }
        })
        .collect()
}

fn visit_strings(value: &Value, see: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().for_each(|item| visit_strings(item, see)),
        Value::Object(fields) => fields.values().for_each(|field| visit_strings(field, see)),
        _ => {}
    }
}

/// A text is cut into literal pieces and references.
enum ScriptTemplatePiece<'t> {
    Text(&'t str),
    Taken(ObservationReference<'t>),
}

/// A parsed `{{...}}`.
struct ObservationReference<'t> {
    /// The source text, for error messages and renumbering.
    template: &'t str,
    /// Number of the step, from 1.
    step: usize,
    /// Names and indexes below the observation; empty for the whole observation.
    path: Vec<&'t str>,
    filters: Vec<ReferenceFilter>,
}

/// Filters apply from left to right. All but `count` turn the value into a text first.
enum ReferenceFilter {
    Replace {
        old: String,
        new: String,
    },
    Append(String),
    Prepend(String),
    /// The first characters of a text, such as a short SHA.
    First(usize),
    /// Number of elements of a list; 0 for anything else.
    Count,
}

/// Cuts a text into pieces. Linear: each reference is parsed once and the search continues after it.
fn parse_template(text: &str) -> Result<Vec<ScriptTemplatePiece<'_>>, ScriptTemplateError> {
    let mut found = Vec::new();
    let (mut begin, mut from) = (0, 0);
    while let Some(open) = text[from..].find("{{").map(|at| at + from) {
        // Only braces followed by a digit are templates. `${{ ... }}` of GitHub workflows stays text.
        let is_ours = text[open + 2..].trim_start().starts_with(|c: char| c.is_ascii_digit());
        if !is_ours {
            from = open + 2;
            continue;
        }
        let (taken, end) = ReferenceParser { text, at: open + 2, open }.parse_reference()?;
        if begin < open {
            found.push(ScriptTemplatePiece::Text(&text[begin..open]));
        }
        found.push(ScriptTemplatePiece::Taken(taken));
        (begin, from) = (end, end);
    }
    if begin < text.len() || found.is_empty() {
        found.push(ScriptTemplatePiece::Text(&text[begin..]));
    }
    Ok(found)
}

/// Joins literal pieces and resolved references to one text.
fn join_pieces(pieces: &[ScriptTemplatePiece<'_>], observations: &[Value]) -> Result<String, ScriptTemplateError> {
    let mut joined = String::new();
    for piece in pieces {
        match piece {
            ScriptTemplatePiece::Text(text) => joined.push_str(text),
            ScriptTemplatePiece::Taken(taken) => joined.push_str(&format_template_value(&taken.resolve(observations)?)),
        }
    }
    Ok(joined)
}

fn format_template_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

impl ObservationReference<'_> {
    /// Returns the referenced value after all filters. A `replace` whose text does not occur is an error: the script
    /// would write the file back unchanged without notice.
    fn resolve(&self, observations: &[Value]) -> Result<Value, ScriptTemplateError> {
        let template = || self.template.to_owned();
        let observation = self.step.checked_sub(1).and_then(|at| observations.get(at));
        let observation =
            observation.ok_or_else(|| ScriptTemplateError::NoSuchStep { template: template(), step: self.step })?;
        let mut value = observation;
        for name in &self.path {
            let below = match value {
                Value::Array(items) => name.parse::<usize>().ok().and_then(|at| items.get(at)),
                Value::Object(fields) => fields.get(*name),
                _ => None,
            };
            value = below.ok_or_else(|| ScriptTemplateError::Missing {
                template: template(),
                step: self.step,
                path: self.path.join("."),
            })?;
        }
        let mut value = value.clone();
        for filter in &self.filters {
            value = match filter {
                ReferenceFilter::Count => Value::from(value.as_array().map_or(0, Vec::len)),
                ReferenceFilter::Append(text) => Value::String(format_template_value(&value) + text),
                ReferenceFilter::Prepend(text) => Value::String(format!("{text}{}", format_template_value(&value))),
                ReferenceFilter::First(count) => {
                    Value::String(format_template_value(&value).chars().take(*count).collect())
                }
                ReferenceFilter::Replace { old, new } => {
                    let text = format_template_value(&value);
                    if !text.contains(old.as_str()) {
                        return Err(ScriptTemplateError::NothingToReplace {
                            template: template(),
                            filter: old.clone(),
                        });
                    }
                    Value::String(text.replace(old.as_str(), new))
                }
            };
        }
        Ok(value)
    }
}

/// A recursive-descent parser over one reference. `open` is where its braces begin, `at` the position.
struct ReferenceParser<'t> {
    text: &'t str,
    at: usize,
    open: usize,
}

impl<'t> ReferenceParser<'t> {
    /// Returns the reference and the offset after its closing braces.
    fn parse_reference(mut self) -> Result<(ObservationReference<'t>, usize), ScriptTemplateError> {
        self.skip_whitespace();
        let step = self.parse_word();
        let step = step.parse().map_err(|_| self.syntax_error("it begins with the number of a step"))?;
        let mut path = Vec::new();
        while self.consume(".") {
            let name = self.parse_word();
            if name.is_empty() {
                return Err(self.syntax_error("a name or a number follows each dot"));
            }
            path.push(name);
        }
        let mut filters = Vec::new();
        loop {
            self.skip_whitespace();
            if self.consume("}}") {
                break;
            }
            if !self.consume("|") {
                return Err(self.syntax_error("after the path comes | and a filter, or }}"));
            }
            filters.push(self.parse_filter()?);
        }
        let template = &self.text[self.open..self.at];
        Ok((ObservationReference { template, step, path, filters }, self.at))
    }

    /// Parses a filter name, an optional colon, and its argument.
    fn parse_filter(&mut self) -> Result<ReferenceFilter, ScriptTemplateError> {
        self.skip_whitespace();
        let name = self.parse_word();
        self.skip_whitespace();
        self.consume(":");
        Ok(match name {
            "count" => ReferenceFilter::Count,
            "append" => ReferenceFilter::Append(self.parse_quoted()?),
            "prepend" => ReferenceFilter::Prepend(self.parse_quoted()?),
            "first" => {
                self.skip_whitespace();
                let count = self.parse_word().parse();
                ReferenceFilter::First(count.map_err(|_| self.syntax_error("`first` takes a number: first: 7"))?)
            }
            "replace" => {
                let old = self.parse_quoted()?;
                self.skip_whitespace();
                if !self.consume("=>") {
                    return Err(self.syntax_error("`replace` is written replace: \"old\" => \"new\""));
                }
                ReferenceFilter::Replace { old, new: self.parse_quoted()? }
            }
            _ => {
                return Err(self.syntax_error("there are the filters replace, append, prepend, first and count"));
            }
        })
    }

    /// Parses a text in quotation marks, with JSON's escapes.
    fn parse_quoted(&mut self) -> Result<String, ScriptTemplateError> {
        self.skip_whitespace();
        let rest = &self.text[self.at..];
        let mut read = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        match (rest.starts_with('"'), read.next()) {
            (true, Some(Ok(text))) => {
                self.at += read.byte_offset();
                Ok(text)
            }
            _ => Err(self.syntax_error("texts stand in double quotation marks, with JSON's escapes")),
        }
    }

    /// Parses letters, digits, `_` and `-`; may be empty.
    fn parse_word(&mut self) -> &'t str {
        let rest = &self.text[self.at..];
        let is_in = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let end = rest.find(|c| !is_in(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn skip_whitespace(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn consume(&mut self, sign: &str) -> bool {
        // Advances only on a match.
        let is_there = self.text[self.at..].starts_with(sign);
        self.at += if is_there { sign.len() } else { 0 };
        is_there
    }

    /// Builds an error that shows the first 60 characters from the opening braces on.
    fn syntax_error(&self, reason: &str) -> ScriptTemplateError {
        let shown: String = self.text[self.open..].chars().take(60).collect();
        ScriptTemplateError::Syntax { template: shown, reason: reason.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen() -> Vec<Value> {
        vec![
            json!({"sha": "abc123def", "content": "one \"two\" three\n", "items": [{"number": 7}, {"number": 9}]}),
            json!({"number": 3}),
        ]
    }

    #[test]
    fn values_keep_their_type_and_texts_are_joined() {
        let value = json!({"n": "{{1.items.1.number}}", "t": "Fixes #{{2.number}} in {{ 1.sha | first: 3 }}.", "k": [1, "{{1.items | count}}"]});
        let filled = fill_template(&value, &seen()).expect("filled");
        assert_eq!(filled, json!({"n": 9, "t": "Fixes #3 in abc.", "k": [1, 2]}));
    }

    #[test]
    fn filters_change_texts() {
        let text = r##"{{1.content | replace: "\"two\"" => "}} 2" | append: "four\n" | prepend: "# "}}"##;
        assert_eq!(fill_text(text, &seen()).expect("filled"), "# one }} 2 three\nfour\n");
        let missing = fill_text(r#"{{1.content | replace: "five" => "5"}}"#, &seen());
        assert!(matches!(missing, Err(ScriptTemplateError::NothingToReplace { .. })), "{missing:?}");
    }

    #[test]
    fn other_braces_are_text() {
        let text = "run: ${{ github.sha }} and {{name}}";
        assert_eq!(fill_text(text, &[]).expect("text"), text);
        assert_eq!(fill_text("", &[]).expect("text"), "");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, says) in [
            ("{{3.sha}}", "there is no step 3"),
            ("{{1.shah}}", "has no \"shah\""),
            ("{{0.sha}}", "there is no step 0"),
            ("{{1.sha", "or }}"),
            ("{{1.sha | upper}}", "filters"),
            ("{{1..sha}}", "each dot"),
            ("{{1.sha | replace: 'a' => 'b'}}", "quotation marks"),
        ] {
            let error = fill_text(text, &seen()).expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn steps_get_other_numbers() {
        let value = json!(["{{1.sha}} {{ 12.a.0 | replace: \"1\" => \"2\" }}", {"x": "{{2.number}}"}]);
        assert_eq!(list_referenced_steps(&value).into_iter().collect::<Vec<_>>(), [1, 2, 12]);
        let moved = renumber_steps(&value, &|step| if step > 1 { step + 1 } else { step });
        assert_eq!(moved, json!(["{{1.sha}} {{13.a.0 | replace: \"1\" => \"2\" }}", {"x": "{{3.number}}"}]));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_filled_or_refused(text in "[{}|:.0-9a-z\"=> ]{0,40}", other in ".{0,40}") {
            let _ = fill_text(&text, &seen());
            let _ = fill_text(&format!("{{{{1.sha {other}"), &seen());
            let same = renumber_text(&text, &|step| step);
            proptest::prop_assert_eq!(fill_text(&same, &seen()).ok(), fill_text(&text, &seen()).ok());
        }
    }
}
