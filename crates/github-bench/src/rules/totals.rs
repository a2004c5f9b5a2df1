//! Totals in a final message, "There are 9 open issues.", which can be checked. Counts of some objects cannot, since it
//! is unknown which are meant (see `answers::compute_max_count`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

use super::requests::{RunRequests, query_pairs};
use super::words::contains_name;
use gradus_github_sim::state::{Issue, IssueState, Repository};

/// Whether a sentence states a total that matches no possible way to count: per repository or together, before or after
/// the run, with or without pull requests, or as in a list that the run read.
pub(super) fn states_wrong_total(run: &RunRequests<'_>, places: &[&Repository], sentence: &str) -> bool {
    let Some(said) = total_claim_pattern().captures(sentence) else { return false };
    let (Some(count), Some(noun)) = (said.name("count"), said.name("noun")) else { return false };
    let Ok(count) = count.as_str().parse::<usize>() else { return false };
    let state = said.name("state").map(|state| state.as_str().to_lowercase());
    let noun = noun.as_str().to_lowercase();
    let named = said.name("place").and_then(|name| run.repository(name.as_str()));
    let places: Vec<&Repository> = named.map_or_else(|| places.to_vec(), |one| vec![one]);
    let mut true_counts = BTreeSet::new();
    for kind in list_counters(&noun, state.as_deref()) {
        let here: Vec<usize> = places.iter().map(|one| kind(one)).collect();
        true_counts.insert(here.iter().sum());
        true_counts.extend(here);
        let before = places.iter().filter_map(|one| run.state_before().repository(one.id));
        true_counts.extend(before.map(kind));
    }
    !true_counts.contains(&count) && !collect_seen_totals(run).contains(&count)
}

/// Returns a pattern that is anchored at both ends: a sentence that says more than the total is not judged.
fn total_claim_pattern() -> &'static Regex {
    static PATTERN: OnceLock<Regex> = OnceLock::new();
    PATTERN.get_or_init(|| {
        let begin =
            r"(?i)^(?:in total,? )?(?:there (?:are|is)|(?:it|the repo(?:sitory)?(?: [`\w./-]+)?|[`\w-]+/[`\w.-]+) has)";
        let many = r" (?:exactly |currently |in total |a total of )?(?P<count>[0-9]{1,7})(?: (?P<state>open|closed))?";
        let noun = r" (?P<noun>issue|pull request|PR|branch|label|milestone|release)(?:s|es)?";
        let end = r"(?: (?:in|of) (?:the repo(?:sitory)?\b ?)?`?(?P<place>[\w./-]*\w)?`?)?(?: in total| altogether| overall| now)?[.!]?$";
        Regex::new(&[begin, many, noun, end].concat()).unwrap_or_else(|_| unreachable!("a constant that tests read"))
    })
}

/// Counts objects of one kind in a repository.
type RepositoryCounter = Box<dyn Fn(&Repository) -> usize>;

/// Lists the ways to count a noun. GitHub counts pull requests as issues, people do not; both are accepted.
fn list_counters(noun: &str, state: Option<&str>) -> Vec<RepositoryCounter> {
    let issues = |is_meant: fn(&Issue) -> bool, state: Option<IssueState>| -> RepositoryCounter {
        Box::new(move |one: &Repository| {
            let fits = |issue: &&Issue| is_meant(issue) && state.is_none_or(|state| issue.state == state);
            one.issues.values().filter(fits).count()
        })
    };
    let states = match state {
        Some("open") => vec![Some(IssueState::Open)],
        Some("closed") => vec![Some(IssueState::Closed)],
        _ => vec![None, Some(IssueState::Open)],
    };
    let of_issues = |is_meant: fn(&Issue) -> bool| states.iter().map(|state| issues(is_meant, *state)).collect();
    match noun {
        "branch" => vec![Box::new(|one| one.branches().count())],
        "label" => vec![Box::new(|one| one.labels.len())],
        "milestone" => vec![Box::new(|one| one.milestones.len())],
        "release" => vec![Box::new(|one| one.releases.len())],
        "issue" => {
            let all: Vec<RepositoryCounter> = of_issues(|_| true);
            all.into_iter().chain(of_issues(|issue| issue.pull.is_none())).collect()
        }
        _ => of_issues(|issue| issue.pull.is_some()),
    }
}

/// Collects totals of lists that the run read: all items, items that are not pull requests, and items with a label of
/// the request. Whether the list was complete is the subject of R17.
fn collect_seen_totals(run: &RunRequests<'_>) -> BTreeSet<usize> {
    let request = &run.evidence.record.request;
    let mut lists: BTreeMap<(String, String), BTreeMap<String, usize>> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for sent in run.sent.iter().filter(|sent| !sent.is_write() && sent.was_successful()) {
        let answer = sent.answer();
        let total = answer.get("total_count").and_then(Value::as_u64);
        found.extend(total.and_then(|total| usize::try_from(total).ok()));
        let Some(items) = answer.get("items").unwrap_or(answer).as_array() else { continue };
        let mut filters = query_pairs(&sent.exchange.query);
        filters.retain(|(name, _)| name != "page");
        let counts = lists.entry((sent.exchange.path.clone(), format!("{filters:?}"))).or_default();
        for item in items {
            *counts.entry("all".to_owned()).or_default() += 1;
            let is_issue = item.get("pull_request").is_none();
            *counts.entry("issues".to_owned()).or_default() += usize::from(is_issue);
            let labels = item.get("labels").and_then(Value::as_array).into_iter().flatten();
            let labels =
                labels.filter_map(|label| label.get("name")?.as_str()).filter(|name| contains_name(request, name));
            for label in labels {
                *counts.entry(format!("label {label}")).or_default() += 1;
                *counts.entry(format!("issues with {label}")).or_default() += usize::from(is_issue);
            }
        }
    }
    found.extend(lists.into_values().flat_map(BTreeMap::into_values));
    found
}
