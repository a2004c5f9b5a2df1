//! Traces each argument of a call to where the agent could have taken it from. A value that nothing explains was
//! invented.

use serde_json::Value as Json;

use super::date_mentions::{DateOrigin, parse_full_date, swapped_date};
use super::evidence_index::{EvidenceIndex, EvidenceSource};
use super::excerpt::{quote_excerpt, quote_name, take_prefix, take_suffix};
use super::identifiers::{IdentifierShape, classify_identifier};
use super::number_text::parse_number;
use super::repetition::ComparedCall;
use super::rule_catalog::{PROVENANCE_EXPLAINED, PROVENANCE_UNEXPLAINED};
use super::words::split_words;
use super::{OfflineJudge, OfflineVerdict, coding};

/// Maximum number of traced values of one call.
const MAX_VALUES: usize = 200;
/// Maximum number of values in a verdict.
const MAX_EVIDENCE: usize = 12;
/// Maximum bytes and words of a phrase. Longer texts are written by the agent, not copied.
const MAX_PHRASE_BYTES: usize = 80;
const MAX_PHRASE_WORDS: usize = 6;
/// Numbers up to this are mostly defaults, positions and counts, so they are not traced.
const MAX_TRIVIAL_NUMBER: f64 = 1.0;

/// Maximum number of steps after a result that are searched for a newer one, so that long runs stay linear.
const MAX_NEWER_RESULT_STEPS: usize = 50;

/// The kind of a value, by its spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Email,
    Url,
    Date,
    Number,
    /// Letters with digits, or digits too long to be an amount.
    Identifier,
    /// A text of the agent's own, or a word: not traced.
    FreeText,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ValueOrigin {
    Found(EvidenceSource),
    /// A default, an enum member or a constant of the tool's schema.
    Schema,
    /// Computed from known values; the text says how.
    Derived(String),
    /// Needs no source: a flag, a count, a text that the agent writes.
    OwnText,
    Unexplained,
}

/// One traced value.
#[derive(Debug)]
pub(super) struct TracedValue<'t> {
    pub parameter: &'t str,
    pub value: String,
    pub origin: ValueOrigin,
}

/// Traces the values of a call.
pub(super) fn trace_values<'t>(offline: &OfflineJudge<'t>, at: usize) -> Vec<TracedValue<'t>> {
    let Some(step) = offline.step(at) else { return Vec::new() };
    let schema = offline.find_tool(step).and_then(|(_, tool)| tool.schema.as_ref());
    let mut tracer = ValueTracer { index: offline.evidence(), at, traced: Vec::new() };
    if let Some(Json::Object(arguments)) = &step.arguments {
        for (name, value) in arguments {
            let schema = schema.and_then(|schema| schema.get("properties")?.get(name));
            let first = tracer.traced.len();
            tracer.trace_json(name, value, schema, 1);
            if is_own_choice(name) {
                for traced in &mut tracer.traced[first..] {
                    if traced.origin == ValueOrigin::Unexplained {
                        traced.origin = ValueOrigin::OwnText;
                    }
                }
            }
        }
    } else if let Some(arguments) = &step.arguments {
        tracer.trace_json("", arguments, schema, 0);
    }
    tracer.traced
}

struct ValueTracer<'o, 't> {
    index: &'o EvidenceIndex<'o>,
    at: usize,
    traced: Vec<TracedValue<'t>>,
}

impl<'t> ValueTracer<'_, 't> {
    fn trace_json(&mut self, parameter: &'t str, json: &'t Json, schema: Option<&Json>, depth: usize) {
        if self.traced.len() >= MAX_VALUES || depth > 6 {
            return;
        }
        match json {
            Json::Object(fields) => {
                let properties = schema.and_then(|schema| schema.get("properties"));
                for (name, value) in fields {
                    let schema = properties.and_then(|properties| properties.get(name));
                    self.trace_json(name, value, schema, depth + 1);
                }
            }
            Json::Array(items) => {
                let schema = schema.and_then(|schema| schema.get("items"));
                items.iter().for_each(|item| self.trace_json(parameter, item, schema, depth + 1));
            }
            Json::String(text) => self.trace_text(parameter, text, json, schema),
            Json::Number(number) => {
                let value = number.to_string();
                let origin = match number.as_f64() {
                    _ if is_in_schema(json, schema) => ValueOrigin::Schema,
                    Some(number) => self.explain_number(parameter, number),
                    None => ValueOrigin::OwnText,
                };
                self.traced.push(TracedValue { parameter, value, origin });
            }
            Json::Bool(_) | Json::Null => {}
        }
    }

    fn trace_text(&mut self, parameter: &'t str, text: &'t str, json: &Json, schema: Option<&Json>) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        let origin = match is_in_schema(json, schema) {
            true => ValueOrigin::Schema,
            false => self.explain_text(parameter, text),
        };
        self.traced.push(TracedValue { parameter, value: text.to_owned(), origin });
    }

    fn explain_text(&self, parameter: &str, text: &str) -> ValueOrigin {
        if let Some(source) = self.index.find(text, self.at) {
            return ValueOrigin::Found(source);
        }
        match classify_text(text) {
            ValueKind::FreeText => self.explain_phrase(text),
            ValueKind::Number => {
                parse_number(text).map_or(ValueOrigin::OwnText, |number| self.explain_number(parameter, number))
            }
            ValueKind::Date => match parse_full_date(text) {
                Some(date) => match self.explain_date(text, date) {
                    Some(DateOrigin::Mentioned) => ValueOrigin::Derived("a date that is mentioned".to_owned()),
                    Some(DateOrigin::Derived) => ValueOrigin::Derived("from a date that is mentioned".to_owned()),
                    // Without a known date, "tomorrow" can be any day.
                    None if !self.index.dates().has_anchor() => ValueOrigin::OwnText,
                    None => ValueOrigin::Unexplained,
                },
                None => ValueOrigin::OwnText,
            },
            ValueKind::Email | ValueKind::Url | ValueKind::Identifier => self.explain_parts(text),
        }
    }

    fn explain_date(&self, text: &str, date: jiff::civil::Date) -> Option<DateOrigin> {
        let dates = self.index.dates();
        let swapped = || swapped_date(text, date).and_then(|date| dates.explain(date, self.at));
        dates.explain(date, self.at).or_else(swapped)
    }

    /// Explains a list in one string ("a@x.org, b@x.org"), or a value made of known parts: `T9-blue`.
    fn explain_parts(&self, text: &str) -> ValueOrigin {
        let mut parts =
            text.split([',', ';', '/', '-', '_', ':', ' ', '?', '&', '=', '#', '.']).filter(|part| !part.is_empty());
        let is_list = text.contains([',', ';', ' ']);
        if is_list {
            let mut items = text.split([',', ';', ' ']).map(str::trim).filter(|item| !item.is_empty());
            return match items.all(|item| self.index.find(item, self.at).is_some()) {
                true => ValueOrigin::Derived("a list of known values".to_owned()),
                false => ValueOrigin::Unexplained,
            };
        }
        if text.contains('@') {
            return ValueOrigin::Unexplained;
        }
        let known = |part: &str| self.index.find(part, self.at).is_some();
        match text.contains(['/', '-', '_', ':', '.']) && parts.all(known) {
            true => ValueOrigin::Derived("joined from known parts".to_owned()),
            false => ValueOrigin::Unexplained,
        }
    }

    fn explain_number(&self, parameter: &str, number: f64) -> ValueOrigin {
        if let Some(source) = self.index.find_number(number, self.at) {
            return ValueOrigin::Found(source);
        }
        if number.abs() <= MAX_TRIVIAL_NUMBER {
            return ValueOrigin::OwnText;
        }
        // Units: 25 % as 0.25, hours as minutes, and the like.
        for factor in [0.01, 100.0, 60.0, 1.0 / 60.0, 24.0, 1000.0, 0.001] {
            let other = number * factor;
            let other = (other * 1e6).round() / 1e6;
            if self.index.find_number(other, self.at).is_some() {
                return ValueOrigin::Derived(format!("{other} in another unit"));
            }
        }
        let turns = number / std::f64::consts::FRAC_PI_2;
        if (turns - turns.round()).abs() < 1e-3 && turns.abs() < 20.0 {
            return ValueOrigin::Derived("a multiple of pi".to_owned());
        }
        // The number of an issue is never a sum; an amount may be one.
        if number.fract() == 0.0 && !is_amount(parameter) {
            return ValueOrigin::Unexplained;
        }
        match self.index.find_arithmetic(number, self.at) {
            Some((one, sign, other)) => ValueOrigin::Derived(format!("{one} {sign} {other}")),
            None => ValueOrigin::Unexplained,
        }
    }

    /// Explains a short phrase: it is the agent's own text, except for addresses and identifiers in it.
    fn explain_phrase(&self, text: &str) -> ValueOrigin {
        if text.len() <= MAX_PHRASE_BYTES && text.split_whitespace().count() <= MAX_PHRASE_WORDS {
            for word in text.split_whitespace() {
                let word = word.trim_matches(|letter: char| !letter.is_alphanumeric());
                if classify_text(word) == ValueKind::Email && self.index.find(word, self.at).is_none() {
                    return ValueOrigin::Unexplained;
                }
            }
            if let Some(source) = self.index.find_phrase(text, self.at) {
                return ValueOrigin::Found(source);
            }
        }
        ValueOrigin::OwnText
    }
}

fn classify_text(text: &str) -> ValueKind {
    if parse_full_date(text).is_some() {
        return ValueKind::Date;
    }
    let is_list = text.contains([',', ';'])
        && text.split([',', ';']).all(|item| !item.trim().is_empty() && !item.trim().contains(' '));
    if is_list && text.len() <= 2_000 {
        let first = text.split([',', ';']).next().unwrap_or_default().trim();
        return match classify_text(first) {
            kind @ (ValueKind::Email | ValueKind::Identifier) => kind,
            _ => ValueKind::FreeText,
        };
    }
    if text.contains(char::is_whitespace) {
        return ValueKind::FreeText;
    }
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let is_numeric = parse_number(text).is_some()
        && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b',' | b'-' | b'$' | b'%'));
    match classify_identifier(text) {
        Some(IdentifierShape::Email) => ValueKind::Email,
        Some(IdentifierShape::Url) => ValueKind::Url,
        _ if is_numeric
            && (digits >= 6 && !text.contains('.') || text.starts_with('0') && digits > 1 && !text.contains('.')) =>
        {
            ValueKind::Identifier
        }
        _ if is_numeric => ValueKind::Number,
        Some(IdentifierShape::Path | IdentifierShape::File | IdentifierShape::Pair) => ValueKind::FreeText,
        Some(IdentifierShape::Code | IdentifierShape::Snake) if digits > 0 => ValueKind::Identifier,
        _ if digits > 0 && is_booking_code(text) => ValueKind::Identifier,
        _ if digits >= 3
            && text.len() <= 64
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'#')) =>
        {
            ValueKind::Identifier
        }
        _ => ValueKind::FreeText,
    }
}

/// Whether a text consists of capital letters and digits, as in `XE4HMB`.
fn is_booking_code(text: &str) -> bool {
    (5..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// Whether the agent itself decides the value: the size of a result, a waiting time, or the items of its own task
/// list.
fn is_own_choice(parameter: &str) -> bool {
    const CHOICES: [&str; 14] = [
        "limit",
        "offset",
        "page",
        "per_page",
        "page_size",
        "head_limit",
        "view_range",
        "yield_time_ms",
        "todos",
        "todo_list",
        "todolist",
        "timeout_ms",
        "timeout_seconds",
        "insert_line",
    ];
    let name = parameter.to_ascii_lowercase();
    CHOICES.contains(&name.as_str())
        || name.starts_with("timeout")
        || name.ends_with("timeout")
        || name.starts_with("max_")
            && ["tokens", "results", "lines", "chars", "bytes", "length", "depth", "items"]
                .iter()
                .any(|unit| name.ends_with(unit))
}

/// Whether the parameter is a quantity, which may be computed from others.
fn is_amount(parameter: &str) -> bool {
    const AMOUNTS: &str = "amount price cost total sum fee payment refund balance quantity qty count duration minute \
        hour second day night week month percent percentage rate budget size length width height weight distance value \
        temperature score age limit number_of num baggage bag item guest people person seat unit";
    let mut is_amount = false;
    split_words(parameter, |word| {
        let word = word.to_lowercase();
        let word = word.strip_suffix('s').unwrap_or(&word);
        is_amount |= AMOUNTS.split_whitespace().any(|amount| amount == word);
    });
    is_amount
}

/// Whether the schema itself offers the value.
fn is_in_schema(value: &Json, schema: Option<&Json>) -> bool {
    let Some(schema) = schema else { return false };
    let is_default = schema.get("default") == Some(value) || schema.get("const") == Some(value);
    let is_member = schema.get("enum").and_then(Json::as_array).is_some_and(|members| members.contains(value));
    is_default || is_member || names_default(value, schema)
}

/// Whether the description states the value as the default: "Defaults to 30".
fn names_default(value: &Json, schema: &Json) -> bool {
    let Some(about) = schema.get("description").and_then(Json::as_str) else { return false };
    let about = take_prefix(about, 2_000).to_lowercase();
    let wanted = match value {
        Json::String(text) => text.to_lowercase(),
        other => other.to_string(),
    };
    about.match_indices("default").any(|(at, _)| {
        let words = about[at..].split(|letter: char| !(letter.is_alphanumeric() || matches!(letter, '-' | '.' | '_')));
        words.take(8).any(|word| word.trim_matches('.') == wanted)
    })
}

/// The verdict of `argument_provenance`.
pub(super) fn judge_provenance(offline: &OfflineJudge<'_>, at: usize) -> OfflineVerdict {
    let Some(step) = offline.step(at) else {
        return OfflineVerdict::not_applicable("The step does not exist.");
    };
    if step.arguments.is_none() {
        return OfflineVerdict::not_applicable("The trace does not hold the arguments of this call.");
    }
    let traced = trace_values(offline, at);
    let explained: Vec<&TracedValue<'_>> = traced
        .iter()
        .filter(|value| !matches!(value.origin, ValueOrigin::OwnText | ValueOrigin::Unexplained))
        .collect();
    let unexplained: Vec<&TracedValue<'_>> =
        traced.iter().filter(|value| value.origin == ValueOrigin::Unexplained).collect();
    let Some(first) = unexplained.first() else {
        let evidence = explained.iter().take(MAX_EVIDENCE).map(|value| describe_value(offline, at, value)).collect();
        let explanation = match explained.len() {
            0 => return OfflineVerdict::not_applicable("The call has no value that could be traced."),
            1 => format!("The value of {} can be traced.", quote_name(explained[0].parameter)),
            count => format!("All {count} values that can be traced are explained."),
        };
        return OfflineVerdict::good(PROVENANCE_EXPLAINED, explanation, evidence);
    };
    if let Some(gap) = explain_record_gap(offline, at) {
        return OfflineVerdict::cannot_judge(gap);
    }
    if coding::edits_files(step) || coding::asks_person(step) {
        return OfflineVerdict::cannot_judge("A value has no source, but it is part of a text that the agent writes.");
    }
    let changes = offline.find_tool(step).is_some_and(|(_, tool)| tool.names_change());
    if !changes {
        return OfflineVerdict::cannot_judge("A value has no source, but the call changes nothing: it may be a guess.");
    }
    // In sessions that were read by hand, none of 22 such flags was right.
    if coding::is_known_coding_agent(offline) {
        let reason = "A value has no source in the record, but a coding agent knows more than its session holds.";
        return OfflineVerdict::cannot_judge(reason);
    }
    let evidence = unexplained.iter().take(MAX_EVIDENCE).map(|value| describe_value(offline, at, value)).collect();
    let explanation = format!(
        "{} is {}, which is neither in the request, nor in the instructions, the conversation or a result, and does not \
         follow from them.",
        quote_name(first.parameter),
        quote_excerpt(&first.value)
    );
    OfflineVerdict::bad(PROVENANCE_UNEXPLAINED, explanation, evidence)
}

/// Returns why the trace cannot prove that a value has no source; `None` if it can.
fn explain_record_gap(offline: &OfflineJudge<'_>, at: usize) -> Option<&'static str> {
    let trajectory = offline.trajectory;
    if trajectory.query.as_deref().is_none_or(|query| query.trim().is_empty()) {
        return Some("A value has no source in the trace, but the request is not recorded.");
    }
    let has_gap = match trajectory.turn_index {
        Some(turn) => turn as usize > trajectory.earlier_turns.len() + 1,
        // Other traces of the session may hold earlier turns.
        None => trajectory.session_id.is_some() && trajectory.earlier_turns.is_empty(),
    };
    if has_gap || offline.lacks_earlier_turn() {
        return Some("A value has no source in the trace, but earlier turns of the conversation may be missing.");
    }
    if trajectory.steps[..at].iter().any(|step| step.observation.is_none()) {
        return Some("A value has no source in the trace, but the result of an earlier step is not recorded.");
    }
    if offline.evidence().is_cut {
        return Some("A value has no source in the part of the trace that is searched.");
    }
    if offline.has_lost_result(at) {
        return Some("A value has no source in the trace, but the result of an earlier call is missing.");
    }
    None
}

/// Describes a value with its origin and the surrounding words.
fn describe_value(offline: &OfflineJudge<'_>, at: usize, traced: &TracedValue<'_>) -> String {
    let origin = match &traced.origin {
        ValueOrigin::Found(source) => match find_newer_result(offline, at, *source, &traced.value) {
            Some(newer) => format!(
                "{}; superseded: step {newer} made the same call, and its result lacks it",
                describe_source(offline, *source, &traced.value)
            ),
            None => describe_source(offline, *source, &traced.value),
        },
        ValueOrigin::Schema => "given by the tool's schema".to_owned(),
        ValueOrigin::Derived(how) => format!("derived: {how}"),
        ValueOrigin::OwnText => "written by the agent".to_owned(),
        ValueOrigin::Unexplained => "no source".to_owned(),
    };
    format!("{} = {}: {origin}", quote_name(traced.parameter), quote_excerpt(&traced.value))
}

/// Finds a step before `at` that repeated the call which returned the value and whose result no longer contains it.
/// Returns its number.
fn find_newer_result(offline: &OfflineJudge<'_>, at: usize, source: EvidenceSource, value: &str) -> Option<u32> {
    let EvidenceSource::Observation(first) = source else { return None };
    let steps = &offline.trajectory.steps;
    let origin = steps.get(first as usize)?;
    let fingerprint = ComparedCall::from(origin).fingerprint()?;
    let until = at.min(steps.len()).min(first as usize + 1 + MAX_NEWER_RESULT_STEPS);
    let later = steps.get(first as usize + 1..until)?.iter().rev();
    later
        .filter(|step| step.tool == origin.tool && ComparedCall::from(*step).fingerprint() == Some(fingerprint))
        .find(|step| step.observation.as_deref().is_some_and(|text| !text.contains(value)))
        .map(|step| step.index)
}

fn describe_source(offline: &OfflineJudge<'_>, source: EvidenceSource, value: &str) -> String {
    let trajectory = offline.trajectory;
    let (place, text) = match source {
        EvidenceSource::SystemPrompt => ("system prompt".to_owned(), trajectory.system_prompt.as_deref()),
        EvidenceSource::Request => ("request".to_owned(), trajectory.query.as_deref()),
        EvidenceSource::Observation(at) => {
            let step = trajectory.steps.get(at as usize);
            let number = step.map_or(at + 1, |step| step.index);
            (format!("result of step {number}"), step.and_then(|step| step.observation.as_deref()))
        }
        EvidenceSource::EarlierTurn(turn) => (format!("earlier turn {turn}"), None),
        EvidenceSource::EarlierAnswer(turn) => (format!("the agent's answer in earlier turn {turn}"), None),
    };
    match text.and_then(|text| find_value_context(text, value)) {
        Some(span) => format!("{place}, {}", quote_excerpt(span)),
        None => place,
    }
}

/// Returns the value with a few words around it.
fn find_value_context<'t>(text: &'t str, value: &str) -> Option<&'t str> {
    let at = text.find(value)?;
    let from = at - take_suffix(&text[..at], 30).len();
    let end = at + value.len();
    Some(&text[from..end + take_prefix(&text[end..], 20).len()])
}
