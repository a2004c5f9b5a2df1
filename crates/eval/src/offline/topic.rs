//! Judges whether a thought is about the request: it names the same things, has the same subject, or refers to earlier
//! results.

use gradus_core::trajectory::TrajectoryStep;
use serde_json::Value as Json;

use super::excerpt::{quote_excerpt, take_prefix};
use super::identifiers::{IdentifierShape, TextIdentifier};
use super::tools::IndexedTool;
use super::values::ScalarArgument;
use super::vocabulary::{
    ActionFlags, CANCEL, CLOSE, CREATE, DELETE, MAKES_ROOM, MERGE, MOVE, TELLS_OF_WORK, are_actions_compatible,
    is_noun_too,
};
use super::words::{AnalyzedText, AnalyzedWord, is_abbreviation_pair, split_words, stem_word};
use super::{OfflineJudge, OfflineVerdict};

/// The verdict of `query_to_thought`. Contradictions are checked first, then common ground; without either, the thought
/// may be off topic.
pub(super) fn judge_topic(offline: &OfflineJudge<'_>, at: usize) -> OfflineVerdict {
    if offline.step(at).is_none() {
        return OfflineVerdict::not_applicable("There is no such step.");
    }
    let Some(thought) = offline.thought(at) else {
        return OfflineVerdict::not_applicable("The step has no thought.");
    };
    let Some(query) = offline.query() else {
        return OfflineVerdict::not_applicable("The trace does not hold the request.");
    };
    let notes = vec![
        format!("request: {}", quote_excerpt(&query.source)),
        format!("thought: {}", quote_excerpt(&thought.source)),
    ];
    if let Some((asked, said)) = other_thing(offline, at, query, thought) {
        let explanation =
            format!("The request is about {}, the thought about {}.", quote_excerpt(&asked), quote_excerpt(&said));
        return OfflineVerdict::bad(explanation, notes);
    }
    if let Some((asked, said)) = other_subject(offline, at, query, thought) {
        let explanation = format!(
            "The request asks for what {} does; the thought turns to what {} does.",
            quote_excerpt(&asked),
            quote_excerpt(&said)
        );
        return OfflineVerdict::bad(explanation, notes);
    }
    if let Some(explanation) = find_unrequested_removal(offline, at, query, thought) {
        return OfflineVerdict::bad(explanation, notes);
    }
    if let Some(shared) = find_shared_subject(offline, query, thought) {
        return OfflineVerdict::good(format!("Request and thought both speak of {}.", quote_excerpt(&shared)), notes);
    }
    if let Some(bridge) = find_indirect_link(offline, at, query, thought) {
        return OfflineVerdict::good(bridge, notes);
    }
    judge_off_topic(offline, at, query, thought, notes)
}

/// The thought names another thing of the same kind than the request, and neither the request nor an earlier step
/// mentioned it.
fn other_thing(
    offline: &OfflineJudge<'_>,
    at: usize,
    query: &AnalyzedText<'_>,
    thought: &AnalyzedText<'_>,
) -> Option<(String, String)> {
    let (asked_in, said_in) = (&query.lower, &thought.lower);
    let known =
        |said: &TextIdentifier| asked_in.contains(&said.text.to_lowercase()) || offline.seen_before(at, &said.text);
    for said in &thought.identifiers {
        let same_kind = |asked: &&TextIdentifier| match said.shape {
            IdentifierShape::Number => {
                asked.shape == IdentifierShape::Number && asked.noun.is_some() && asked.noun == said.noun
            }
            shape => shape.is_exact() && asked.shape == shape,
        };
        let mut asked = query.identifiers.iter().filter(same_kind).peekable();
        let Some(first) = asked.peek().map(|asked| asked.text.clone()) else { continue };
        let repeats = asked.any(|asked| said_in.contains(&asked.text.to_lowercase()));
        if !repeats && !known(said) {
            return Some((first, said.text.clone()));
        }
    }
    None
}

/// The request clearly asks for one tool and could be served at once, but the thought is only about another tool's
/// subject.
fn other_subject(
    offline: &OfflineJudge<'_>,
    at: usize,
    query: &AnalyzedText<'_>,
    thought: &AnalyzedText<'_>,
) -> Option<(String, String)> {
    let asked_verbs = query.announced.iter().fold(0, |all, (_, deeds)| all | deeds);
    let staged = thought
        .words
        .iter()
        .any(|word| matches!(&*word.plain, "first" | "before" | "then" | "because" | "since" | "also"));
    if staged || offline.steps_before(at).any(|(before, _)| offline.failure(before).is_some()) {
        return None;
    }
    // A thought that repeats a name of the request, or continues an earlier step, stays on the subject.
    let names = |asked: &TextIdentifier| {
        matches!(asked.shape, IdentifierShape::Quoted | IdentifierShape::File | IdentifierShape::Path)
            && asked.text.len() > 2
            && thought.lower.contains(&asked.text.to_lowercase())
    };
    let goes_on = |step: &TrajectoryStep| step.tool.contains('_') && thought.source.contains(&step.tool);
    if query.identifiers.iter().any(names) || offline.steps_before(at).take(3).any(|(_, step)| goes_on(step)) {
        return None;
    }
    let asked: Vec<&IndexedTool> = offline.asked_tools().take(50).collect();
    let ready = asked.iter().find(|tool| {
        (asked_verbs == 0 || are_actions_compatible(asked_verbs, tool.deeds))
            && (can_be_called(tool, query) || was_called_so(offline, at, tool, query))
    })?;
    // Once the request's own tool has been used, what follows builds on it.
    if offline.steps_before(at).any(|(_, step)| asked.iter().any(|tool| tool.name == step.tool)) {
        return None;
    }
    if asked.iter().any(|tool| tool.named_nouns(thought) > 0.0) {
        return None;
    }
    let mut others = offline.index.tools.iter().filter(|tool| !tool.serves_any());
    let said = others.find(|tool| tool.named_nouns(thought) > 0.99 && tool.named_nouns(query) < 0.5)?;
    Some((ready.name.clone(), said.name.clone()))
}

/// The thought wants to remove something that the request neither mentions nor implies.
fn find_unrequested_removal(
    offline: &OfflineJudge<'_>,
    at: usize,
    query: &AnalyzedText<'_>,
    thought: &AnalyzedText<'_>,
) -> Option<String> {
    const TAKES_AWAY: ActionFlags = DELETE | CANCEL;
    let step = offline.step(at)?;
    let (_, tool) = offline.find_tool(step)?;
    let takes_away = |deeds: ActionFlags| deeds & TAKES_AWAY != 0 && deeds & !TAKES_AWAY == 0;
    if !takes_away(tool.deeds) || thought.deeds & TAKES_AWAY == 0 || query.is_foreign() {
        return None;
    }
    // A request to move, replace, undo or tidy up may imply a removal.
    let allows = query.deeds & (TAKES_AWAY | CLOSE | MOVE | MERGE) != 0
        || query.words.iter().any(|word| MAKES_ROOM.contains(&&*word.plain));
    let values = || offline.scalar_arguments(at).iter().filter(|scalar| scalar.value.chars().nth(1).is_some());
    // The place is mostly the request's; what is taken away is the rest.
    let named = values().filter(|scalar| query.lower.contains(&*scalar.lower)).count();
    let all = values().count();
    let own = |other: usize| {
        offline
            .scalar_arguments(other)
            .iter()
            .any(|made| values().any(|one| one.lower == made.lower && !query.lower.contains(&*one.lower)))
    };
    let made_here = offline
        .steps_before(at)
        .any(|(other, step)| own(other) && offline.find_tool(step).is_some_and(|(_, tool)| tool.deeds & CREATE != 0));
    (!allows && all > named && !made_here).then(|| {
        format!(
            "The request asks for nothing that {} does, and the thought takes something away.",
            quote_excerpt(&step.tool)
        )
    })
}

/// Whether the request seems to contain everything that the tool requires: no numbers or ids must be looked up first.
fn can_be_called(tool: &IndexedTool, query: &AnalyzedText<'_>) -> bool {
    let Some(schema) = &tool.schema else { return true };
    let required = schema.get("required").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let names =
        query.words.windows(2).filter(|pair| pair[0].sentence == pair[1].sentence && pair[1].capital && !pair[1].stop);
    if required.len() > query.identifiers.len() + names.count() {
        return false;
    }
    required.iter().filter_map(Json::as_str).all(|name| {
        let kind = schema.pointer(&format!("/properties/{name}/type")).and_then(Json::as_str).unwrap_or_default();
        let id = name == "id" || name.ends_with("_id") || name.ends_with("Id") || name.contains("number");
        let has = |shape| query.identifiers.iter().any(|asked| asked.shape == shape);
        !(matches!(kind, "integer" | "number") || id) || has(IdentifierShape::Number) || has(IdentifierShape::Code)
    })
}

/// Whether a later step calls it with values of the request only, so that it could have been called at once.
fn was_called_so(offline: &OfflineJudge<'_>, at: usize, tool: &IndexedTool, query: &AnalyzedText<'_>) -> bool {
    let asked_in = &query.lower;
    let later = offline.trajectory.steps.iter().enumerate().skip(at + 1).take(20);
    later.filter(|(_, step)| step.tool == tool.name).any(|(later, _)| {
        let values = offline.scalar_arguments(later);
        !values.is_empty() && values.iter().all(|ScalarArgument { lower, .. }| asked_in.contains(&**lower))
    })
}

/// A thing or a subject that both mention. Verbs do not count: any request may "create" something.
fn find_shared_subject(
    offline: &OfflineJudge<'_>,
    query: &AnalyzedText<'_>,
    thought: &AnalyzedText<'_>,
) -> Option<String> {
    let asked_in = &query.lower;
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_lowercase();
    for said in
        thought.identifiers.iter().filter(|said| said.text.chars().count() > 1 || said.shape == IdentifierShape::Number)
    {
        let same = match said.shape {
            IdentifierShape::Number => {
                query.identifiers.iter().any(|asked| asked.shape == IdentifierShape::Number && asked.text == said.text)
            }
            IdentifierShape::Path | IdentifierShape::File => {
                asked_in.contains(&last(&said.text)) && last(&said.text).len() > 2
            }
            _ => asked_in.contains(&said.text.to_lowercase()),
        };
        if same {
            return Some(said.text.clone());
        }
    }
    let asked = offline.asked_stems();
    let tells = |word: &&AnalyzedWord<'_>| {
        (word.deeds == 0 || is_noun_too(word.stem())) && word.stem().chars().nth(1).is_some()
    };
    let word = thought.subject_words().filter(tells).find(|word| asked.has_matching_stem(word.stem()));
    word.map(|word| word.plain.to_string())
}

/// Sorted stems of the subject words of a request.
#[derive(Debug, Default)]
pub(super) struct AskedStems(Vec<Box<str>>);

impl AskedStems {
    pub(super) fn from_query(query: &AnalyzedText<'_>) -> AskedStems {
        let mut stems: Vec<Box<str>> = query.subject_words().map(|word| word.stem().into()).collect();
        // "the report" is report.txt.
        let files = query
            .identifiers
            .iter()
            .filter(|asked| matches!(asked.shape, IdentifierShape::File | IdentifierShape::Path));
        stems.extend(files.flat_map(name_words).map(String::into_boxed_str));
        stems.sort_unstable();
        stems.dedup();
        AskedStems(stems)
    }

    /// Whether a stem equals or abbreviates this one, or the other way round. Such stems share their first letter,
    /// which makes the search short.
    fn has_matching_stem(&self, stem: &str) -> bool {
        let first = |stem: &str| stem.as_bytes().first().copied();
        let from = self.0.partition_point(|asked| first(asked) < first(stem));
        let alike = self.0[from..].iter().take_while(|asked| first(asked) == first(stem));
        alike.into_iter().any(|asked| **asked == *stem || is_abbreviation_pair(stem, asked))
    }
}

fn name_words(file: &TextIdentifier) -> Vec<String> {
    let mut words = Vec::new();
    let name = file.text.rsplit('/').next().unwrap_or_default();
    split_words(name.split('.').next().unwrap_or_default(), |word| words.push(stem_word(&word.to_lowercase())));
    words.retain(|word| word.len() > 2);
    words
}

/// Request and thought share no words, but the trajectory connects them.
fn find_indirect_link(
    offline: &OfflineJudge<'_>,
    at: usize,
    query: &AnalyzedText<'_>,
    thought: &AnalyzedText<'_>,
) -> Option<String> {
    let step = offline.step(at)?;
    let fits_query = offline.query_fits();
    let fits_thought = offline.thought_fits(at);
    let best = |fits: &[f32]| {
        fits.iter().copied().enumerate().max_by(|one, other| one.1.total_cmp(&other.1)).filter(|(_, fit)| *fit > 0.5)
    };
    if let (Some((asked, _)), Some((said, _))) = (best(fits_query), best(fits_thought))
        && asked == said
    {
        return Some(format!("Request and thought both fit {}.", quote_excerpt(&offline.index.tools[asked].name)));
    }
    if at > 0 && refers_back(offline, at, thought) {
        return Some("The thought goes on from the steps before it.".to_owned());
    }
    // The call takes its values from the request, and the thought is about that call.
    let (index, tool) = offline.find_tool(step)?;
    let asked_in = &query.lower;
    let from_query = offline
        .scalar_arguments(at)
        .iter()
        .any(|ScalarArgument { value, lower, .. }| value.chars().nth(2).is_some() && asked_in.contains(&**lower));
    let about_call =
        tool.named_nouns(thought) > 0.0 || tool.hands_over || fits_thought.get(index).is_some_and(|fit| *fit > 0.8);
    let other_asked = best(fits_query).is_some_and(|(asked, fit)| {
        asked != index && fit > 3.0 * fits_query.get(index).copied().unwrap_or_default() + 1.0
    });
    (from_query && about_call && !other_asked)
        .then(|| format!("The thought is about calling {} with what the request names.", quote_excerpt(&step.tool)))
}

/// Whether the thought speaks of earlier steps: their tools, their results, or doing something again.
fn refers_back(offline: &OfflineJudge<'_>, at: usize, thought: &AnalyzedText<'_>) -> bool {
    let said = thought.stems();
    let again =
        ["again", "retry", "instead", "now", "still", "already", "continue", "next", "previous", "result", "results"];
    let pointing = thought.words.iter().any(|word| {
        again.contains(&&*word.plain)
            || matches!(&*word.plain, "it" | "that" | "this" | "those" | "these" | "them" | "there" | "call")
    });
    let trouble = ["error", "fail", "miss", "lack", "invalid", "valid", "wrong", "support", "empty"];
    if pointing && trouble.iter().any(|word| said.contains(word)) {
        return true;
    }
    for (_, step) in offline.steps_before(at).take(8) {
        let observation = looked_at(step);
        if thought.identifiers.iter().any(|said| said.text.len() > 1 && observation.contains(&said.text)) {
            return true;
        }
    }
    let brought_up = |word: &&&str| {
        let print = offline.fingerprint_stem(word);
        offline.steps_before(at).take(8).any(|(before, _)| offline.brought_up(before).binary_search(&print).is_ok())
    };
    let shared = said.iter().filter(brought_up).count();
    shared >= 2 || shared == 1 && pointing
}

/// The part of a result that is searched.
fn looked_at(step: &TrajectoryStep) -> &str {
    take_prefix(step.observation.as_deref().unwrap_or_default(), 3_000)
}

/// Sorted fingerprints of the subject words in a step's tool name and result.
pub(super) fn brought_up(step: &TrajectoryStep, print: impl Fn(&str) -> u64) -> Vec<u64> {
    let of_tool = AnalyzedText::parse_words(&step.tool);
    let of_result = AnalyzedText::parse_words(looked_at(step));
    let words = of_tool.iter().chain(of_result.iter().filter(|word| word.deeds == 0));
    let mut prints: Vec<u64> = words.filter(|word| !word.stop).map(|word| print(word.stem())).collect();
    prints.sort_unstable();
    prints.dedup();
    prints
}

/// No connection was found. The thought is off topic if it has a subject of its own.
fn judge_off_topic(
    offline: &OfflineJudge<'_>,
    at: usize,
    query: &AnalyzedText<'_>,
    thought: &AnalyzedText<'_>,
    notes: Vec<String>,
) -> OfflineVerdict {
    if query.is_foreign() || thought.is_foreign() {
        return OfflineVerdict::cannot_judge(
            "Request and thought share no name, and the rules do not know the language of one of them.",
        );
    }
    // Words of the tools are not a subject of their own: a thought may speak of tools without repeating the request.
    let own: Vec<&str> = thought
        .subject_words()
        .filter(|word| {
            word.deeds == 0
                && word.plain.len() > 2
                && !offline.index.has_stem(word.stem())
                && !word.traits.has(TELLS_OF_WORK)
        })
        .map(|word| &*word.plain)
        .collect();
    let fits = offline.thought_fits(at);
    let step = offline.step(at);
    let about_own_call =
        step.and_then(|step| offline.find_tool(step)).is_some_and(|(_, tool)| tool.named_nouns(thought) > 0.0);
    let asked = query.subject_words().filter(|word| word.deeds == 0).count();
    let strange = own.len() >= 2 || own.len() == 1 && thought.identifiers.iter().any(|said| said.shape.is_exact());
    // Synonyms look like another subject. If the call fits the request, they are the likelier explanation.
    let call_is_tied = step.is_some_and(|step| {
        offline
            .scalar_arguments(at)
            .iter()
            .any(|ScalarArgument { value, .. }| value.chars().nth(2).is_some() && query.source.contains(&**value))
            || offline.find_tool(step).is_some_and(|(_, tool)| tool.named_nouns(query) > 0.0)
    });
    if strange && (asked > 0 || !query.identifiers.is_empty()) && (at == 0 || own.len() >= 3) {
        if call_is_tied {
            return OfflineVerdict::cannot_judge(
                "Thought and request share no word, but the call fits the request: other words for the same, or another subject.",
            );
        }
        let explanation =
            format!("The thought shares nothing with the request; it is about {}.", quote_excerpt(&own.join(", ")));
        return OfflineVerdict::bad(explanation, notes);
    }
    if about_own_call || at > 0 || fits.iter().any(|fit| *fit > 1.0) && own.len() < 2 {
        return OfflineVerdict::good("Nothing in the thought leads away from the request.", notes);
    }
    OfflineVerdict::cannot_judge("The thought is too short to tell what it is about.")
}
