//! Compares objects that texts name exactly (numbers of things, codes, addresses, `owner/name`), to find calls or
//! thoughts about another object of the same kind.

use super::date_mentions::parse_full_date;
use super::excerpt::quote_excerpt;
use super::identifiers::{IdentifierShape, TextIdentifier, classify_identifier};
use super::rule_catalog::{QUERY_OTHER_KIND, QUERY_OTHER_OBJECT, QUERY_SAME_OBJECT};
use super::tools::IndexedTool;
use super::values::{self, ValueContradiction};
use super::words::AnalyzedText;
use super::{OfflineJudge, OfflineVerdict, coding};

/// Maximum number of words of a thought that is taken literally.
const MAX_PLAIN_THOUGHT_WORDS: usize = 40;

/// The verdict of `query_to_thought`.
pub(super) fn judge_query_to_thought(offline: &OfflineJudge<'_>, at: usize) -> OfflineVerdict {
    if offline.step(at).is_none() {
        return OfflineVerdict::not_applicable("The step does not exist.");
    }
    let Some(thought) = offline.thought(at) else {
        return OfflineVerdict::not_applicable("The step has no thought.");
    };
    let Some(query) = offline.query() else {
        return OfflineVerdict::not_applicable("The trace does not hold the request.");
    };
    let evidence = || {
        vec![
            format!("request: {}", quote_excerpt(&query.source)),
            format!("thought: {}", quote_excerpt(&thought.source)),
        ]
    };
    if let Some((asked, said)) = find_other_object(offline, at, query, thought) {
        let explanation = format!(
            "The request is about {}, the thought about {}, which nothing before it mentions.",
            quote_excerpt(&asked),
            quote_excerpt(&said)
        );
        return OfflineVerdict::bad(QUERY_OTHER_OBJECT, explanation, evidence());
    }
    if let Some((asked, said)) = find_wrong_sibling_tool(offline, at, query, thought) {
        let explanation = format!(
            "The request names what {} is for, the thought only what {} is for, and that is called first.",
            quote_excerpt(asked),
            quote_excerpt(said)
        );
        return OfflineVerdict::bad(QUERY_OTHER_KIND, explanation, evidence());
    }
    if let Some(shared) = find_same_object(query, thought) {
        let explanation = format!("Request and thought are both about {}.", quote_excerpt(shared));
        return OfflineVerdict::good(QUERY_SAME_OBJECT, explanation, evidence());
    }
    OfflineVerdict::cannot_judge("Request and thought share no exact name that a rule could go by.")
}

/// Whether objects may come from where the record does not reach: sessions of coding agents leave out files that the
/// agent is given, and neither files nor branches are bound to one request.
fn has_untraceable_objects(offline: &OfflineJudge<'_>) -> bool {
    coding::is_known_coding_agent(offline)
}

/// Finds an object in the thought of the same kind as one of the request, if the thought names none of the request's
/// objects, and neither the conversation nor a result mentioned it.
fn find_other_object(
    offline: &OfflineJudge<'_>,
    at: usize,
    query: &AnalyzedText<'_>,
    thought: &AnalyzedText<'_>,
) -> Option<(String, String)> {
    if has_untraceable_objects(offline) {
        return None;
    }
    for said in &thought.identifiers {
        let is_same_kind = |asked: &&TextIdentifier| match said.shape {
            IdentifierShape::Number => {
                asked.shape == IdentifierShape::Number && asked.noun.is_some() && asked.noun == said.noun
            }
            shape => shape.is_exact() && asked.shape == shape,
        };
        let mut asked = query.identifiers.iter().filter(is_same_kind).peekable();
        let Some(first) = asked.peek().map(|asked| asked.text.clone()) else { continue };
        let is_repeated = asked.any(|asked| thought.lower.contains(&asked.text.to_lowercase()));
        // Words around a slash, codes and addresses are mentioned for many reasons. The step is about such an object
        // only if its call takes one.
        if !call_takes_object(offline, at, said) {
            continue;
        }
        if !is_repeated && !may_be_known(offline, at, &said.text) && !query.lower.contains(&said.text.to_lowercase()) {
            return Some((first, said.text.clone()));
        }
    }
    None
}

/// Whether the call of a step takes an object like this: a value of the same shape, or for `owner/name` and numbers a
/// parameter for one.
fn call_takes_object(offline: &OfflineJudge<'_>, at: usize, said: &TextIdentifier) -> bool {
    offline.scalar_arguments(at).iter().any(|scalar| match said.shape {
        IdentifierShape::Pair => {
            // For a coding agent `a/b` is a folder or two words, unless the call takes one half as a value.
            let is_half = || said.text.split('/').any(|half| half.eq_ignore_ascii_case(&scalar.value));
            match coding::is_coding_agent(offline) {
                true => values::names_repository(scalar.parameter) && is_half(),
                false => {
                    values::names_repository(scalar.parameter)
                        || classify_identifier(&scalar.value) == Some(IdentifierShape::Pair)
                }
            }
        }
        IdentifierShape::Number => values::names_number(scalar.parameter, said.noun.as_deref()),
        shape => classify_identifier(&scalar.value) == Some(shape) && !coding::is_coding_agent(offline),
    })
}

/// Finds a call of the wrong one of two tools that differ only in the kind of object (`list_orders`,
/// `list_invoices`): the request names one kind, the first thought only the other, and the other tool is called.
fn find_wrong_sibling_tool<'o>(
    offline: &'o OfflineJudge<'_>,
    at: usize,
    query: &AnalyzedText<'_>,
    thought: &AnalyzedText<'_>,
) -> Option<(&'o str, &'o str)> {
    let step = offline.step(at)?;
    // Later thoughts follow from results, and long thoughts consider several options.
    if at > 0 || !offline.trajectory.earlier_turns.is_empty() || thought.words.len() > MAX_PLAIN_THOUGHT_WORDS {
        return None;
    }
    let (_, called) = offline.find_tool(step)?;
    let names_all = |text: &AnalyzedText<'_>, nouns: &[Box<str>]| {
        !nouns.is_empty() && nouns.iter().all(|noun| text.words.iter().any(|word| word.stem() == &**noun))
    };
    let names_any = |text: &AnalyzedText<'_>, nouns: &[Box<str>]| {
        nouns.iter().any(|noun| text.words.iter().any(|word| word.stem() == &**noun))
    };
    if !names_all(thought, &called.nouns) || names_any(query, &called.nouns) {
        return None;
    }
    let is_sibling = |other: &&IndexedTool| {
        let shares_noun = other.nouns.iter().any(|noun| called.nouns.contains(noun));
        // A tool with other arguments may be an intermediate step.
        let needs = required_parameters(called);
        let takes_same = needs.is_some() && required_parameters(other) == needs;
        other.verb == called.verb && called.verb.is_some() && !shares_noun && takes_same
    };
    let mut named = offline.index.tools.iter().filter(is_sibling).filter(|other| names_all(query, &other.nouns));
    let asked = named.next()?;
    // If the request names several kinds, any may come first.
    if named.next().is_some() || names_any(thought, &asked.nouns) {
        return None;
    }
    Some((asked.name.as_str(), called.name.as_str()))
}

fn required_parameters(tool: &IndexedTool) -> Option<Vec<&str>> {
    let required = tool.schema.as_ref()?.get("required")?.as_array()?;
    let mut names: Vec<&str> = required.iter().filter_map(|name| name.as_str()).collect();
    names.sort_unstable();
    (!names.is_empty()).then_some(names)
}

/// Finds an exact name of the request that the thought repeats. The repository (`owner/name`) does not count: most
/// objects of a run share it.
fn find_same_object<'q>(query: &'q AnalyzedText<'_>, thought: &AnalyzedText<'_>) -> Option<&'q str> {
    let names = |asked: &&TextIdentifier| {
        let is_number = asked.shape == IdentifierShape::Number && (asked.is_numbered || asked.noun.is_some());
        let is_exact = asked.shape.is_exact() && asked.shape != IdentifierShape::Pair;
        (is_exact || is_number)
            && thought
                .identifiers
                .iter()
                .any(|said| said.shape == asked.shape && said.text.eq_ignore_ascii_case(&asked.text))
    };
    query.identifiers.iter().find(names).map(|asked| asked.text.as_str())
}

/// Finds an argument that contradicts an exact name in the thought.
pub(super) fn find_thought_contradiction(
    offline: &OfflineJudge<'_>,
    at: usize,
    thought: &AnalyzedText<'_>,
) -> Option<ValueContradiction> {
    if has_untraceable_objects(offline) {
        return None;
    }
    let (_, tool) = offline.find_tool(offline.step(at)?)?;
    let found = values::find_value_contradiction(thought, offline.scalar_arguments(at), &tool.nouns)?;
    // A thought mentions dates for reference, which need not be those of the call.
    let is_date = found.shape == Some(IdentifierShape::Date);
    // A coding agent reports, compares and plans before a call: what it mentions need not be what it works on next.
    // Only a parameter for `owner/name` shows that the call is about such an object.
    let names_container = found.shape == Some(IdentifierShape::Pair) && values::names_repository(&found.parameter);
    // Only a pair that was seen before is a repository: "branding/UX" is two words.
    if coding::is_coding_agent(offline) && !(names_container && is_known(offline, at, &found.named_instead)) {
        return None;
    }
    if is_date || found.is_doubtful && is_known(offline, at, &found.value) {
        return None;
    }
    // A thought may report on the object of the previous step, while the call continues with another known one.
    let reports_previous =
        at > 0 && offline.scalar_arguments(at - 1).iter().any(|scalar| scalar.value.contains(&found.named_instead));
    if reports_previous && is_known(offline, at, &found.value) {
        return None;
    }
    // Another call of the same reply may be the one that the thought means.
    let elsewhere =
        |other| offline.scalar_arguments(other).iter().any(|scalar| scalar.value.contains(&found.named_instead));
    let is_shared = offline.reply_calls(at).any(|(other, _)| other != at && elsewhere(other));
    (!is_shared).then_some(found)
}

/// Finds an argument that differs from the only object of its kind in the request, and that nothing mentioned.
pub(super) fn find_unrequested_object(
    offline: &OfflineJudge<'_>,
    at: usize,
    query: &AnalyzedText<'_>,
) -> Option<ValueContradiction> {
    if has_untraceable_objects(offline) {
        return None;
    }
    let found = values::find_value_contradiction(query, offline.scalar_arguments(at), &[])?;
    let is_exact = found.shape.is_some_and(|shape| {
        matches!(shape, IdentifierShape::Pair | IdentifierShape::Email | IdentifierShape::Code) || found.is_doubtful
    });
    (is_exact && !is_ambiguous_pair(offline, &found) && !may_be_known(offline, at, &found.value)).then_some(found)
}

/// Whether `a/b` may be a folder or two words instead of `owner/name`: coding agents use many of them, and the
/// parameter does not take a repository.
fn is_ambiguous_pair(offline: &OfflineJudge<'_>, found: &ValueContradiction) -> bool {
    found.shape == Some(IdentifierShape::Pair)
        && !values::names_repository(&found.parameter)
        && coding::is_coding_agent(offline)
}

/// Whether the value is known, or may have been in a result that the trace lost.
fn may_be_known(offline: &OfflineJudge<'_>, at: usize, value: &str) -> bool {
    offline.has_lost_result(at) || is_known(offline, at, value)
}

/// Whether the conversation, the instructions or an earlier result contains the value. Also true if the index was
/// cut, since absence proves nothing then.
fn is_known(offline: &OfflineJudge<'_>, at: usize, value: &str) -> bool {
    let index = offline.evidence();
    index.is_cut
        || index.find(value, at).is_some()
        || parse_full_date(value).is_some_and(|date| index.dates().explain(date, at).is_some())
        || value.parse::<f64>().is_ok_and(|number| index.find_number(number, at).is_some())
}
