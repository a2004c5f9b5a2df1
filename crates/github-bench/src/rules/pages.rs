//! R17: a statement about all of something requires that all pages of the list were read.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{RuleDecision, ViolationCollector};
use super::requests::{RunRequests, StepRequest, query_pairs};
use super::scope::list_searched_repositories;
use super::words::{split_lowercase_words, to_singular};

/// Checks R17. Only if the request asks for all of something: a search for one object may stop when it is found. A
/// search with a total count in the same repository is as good as the list.
pub(super) fn check_pagination(run: &RunRequests<'_>) -> RuleDecision {
    let request = split_lowercase_words(&run.evidence.record.request);
    if !asks_for_all(&request) {
        return RuleDecision::not_applicable("the request does not ask for all of something");
    }
    let mut lists: BTreeMap<(String, String), ListCoverage> = BTreeMap::new();
    for sent in run.sent.iter().filter(|sent| !sent.is_write() && sent.exchange.status == 200) {
        let Some(kind) = classify_list(sent) else { continue };
        let mut filters = query_pairs(&sent.exchange.query);
        filters.retain(|(name, _)| name != "page" && name != "per_page");
        filters.sort();
        let list = lists.entry((sent.exchange.path.to_lowercase(), format!("{filters:?}"))).or_default();
        list.kind = kind;
        list.repository = sent.repository();
        list.is_sorted |= filters.iter().any(|(name, _)| name == "sort");
        list.items += sent.answer().as_array().map_or(0, Vec::len);
        list.steps.extend(sent.step);
        let per_page = sent.query_value("per_page").unwrap_or_default();
        let page = sent.query_value("page").and_then(|page| page.parse().ok()).unwrap_or(1);
        let has_next = sent.header("link").is_some_and(|link| link.contains("rel=\"next\""));
        list.pages.entry(per_page).or_default().insert(page, has_next);
    }
    let searches: Vec<(&str, Vec<String>)> = run.sent.iter().filter_map(read_complete_search).collect();
    // "how many" needs every element, whatever the order.
    let counts = request.windows(2).any(|pair| pair[0] == "how" && pair[1] == "many")
        || request.iter().any(|word| matches!(word.as_str(), "count" | "total" | "number"));
    let mut faults = ViolationCollector::default();
    let mut is_applicable = false;
    for ((path, _), list) in &lists {
        if !is_kind_requested(&request, list.kind) || list.pages.values().all(|pages| pages.values().all(|next| !next))
        {
            continue;
        }
        is_applicable = true;
        // If the agent asked for an order, later pages may not matter, except for a count.
        let is_enough = list.has_all_pages()
            || searches.iter().any(|(kind, places)| list.is_answered_by(kind, places))
            || (list.is_sorted && !counts)
            || parse_requested_count(&request).is_some_and(|wanted| list.items >= wanted);
        if !is_enough {
            let step = list.steps.last().copied();
            faults.add_failure(step, format!("{path} has more pages than were read"));
        }
    }
    faults.into_decision(|| match is_applicable {
        true => RuleDecision::pass("lists were read to their end"),
        false => RuleDecision::not_applicable("no list that matters had a second page"),
    })
}

/// What was read of one list, identified by path and filters.
#[derive(Default)]
struct ListCoverage {
    kind: &'static str,
    repository: Option<String>,
    /// Whether the agent asked for an order of its own.
    is_sorted: bool,
    /// Items of all pages that were read, including repetitions.
    items: usize,
    steps: BTreeSet<usize>,
    /// By page size: page number, and whether the response had a next page.
    pages: BTreeMap<String, BTreeMap<u64, bool>>,
}

impl ListCoverage {
    /// Whether a search for this kind, in this repository or everywhere, gives the total. GitHub's issue search covers
    /// pull requests.
    fn is_answered_by(&self, kind: &str, places: &[String]) -> bool {
        let is_here = places.is_empty() || self.repository.as_ref().is_some_and(|one| places.contains(one));
        is_here && (kind == self.kind || (kind == "issue" && self.kind == "pull"))
    }

    /// Whether pages of one size were read without a gap from the first to the last.
    fn has_all_pages(&self) -> bool {
        self.pages.values().any(|pages| {
            let mut number = 1;
            while let Some(has_next) = pages.get(&number) {
                if !has_next {
                    return true;
                }
                number += 1;
            }
            false
        })
    }
}

/// Returns kind and repositories of a search that gave a complete total.
fn read_complete_search<'s>(sent: &'s StepRequest<'_>) -> Option<(&'s str, Vec<String>)> {
    let [first, kind, ..] = &sent.segments[..] else { return None };
    let is_told = sent.was_successful()
        && sent.answer().get("total_count").is_some()
        && sent.answer().get("incomplete_results") != Some(&true.into());
    if first != "search" || !is_told {
        return None;
    }
    let kind = match kind.as_str() {
        "issues" => "issue",
        "repositories" => "repository",
        "commits" => "commit",
        "labels" => "label",
        _ => return None,
    };
    Some((kind, list_searched_repositories(sent)))
}

/// Returns the kind of a list as requests name it; none for responses that are not a list.
fn classify_list(sent: &StepRequest<'_>) -> Option<&'static str> {
    if !sent.answer().is_array() {
        return None;
    }
    let below = sent.subpath_segments();
    Some(match &below[..] {
        [] => match sent.operation() {
            operation if operation.starts_with("repos/list") => "repository",
            operation if operation.contains("starred") => "star",
            "issues/list" => "issue",
            _ => return None,
        },
        ["issues", _, "comments"] | ["issues", "comments"] | ["pulls", _, "comments"] => "comment",
        ["issues"] => "issue",
        ["pulls"] => "pull",
        ["pulls", _, "files"] => "file",
        ["pulls", _, "commits"] | ["commits"] => "commit",
        ["branches"] | ["git", ..] => "branch",
        ["labels"] | ["issues", _, "labels"] => "label",
        ["milestones"] => "milestone",
        ["releases"] => "release",
        ["tags"] => "tag",
        _ => return None,
    })
}

/// Whether a request has a word that asks for completeness, or "which"/"what" with a plural.
fn asks_for_all(request: &[String]) -> bool {
    const ALL: [&str; 17] = [
        "all",
        "every",
        "each",
        "everywhere",
        "everything",
        "total",
        "count",
        "number",
        "complete",
        "entire",
        "whole",
        "list",
        "table",
        "most",
        "many",
        "any",
        "both",
    ];
    let plural = |word: &String| word.ends_with('s') && word.len() > 3 && !word.ends_with("ss");
    request.iter().any(|word| ALL.contains(&word.as_str()))
        || request
            .windows(2)
            .any(|pair| (pair[0] == "which" || pair[0] == "what") && plural(&pair[1]) && pair[1] != "does")
}

/// Whether the request names this kind, or none at all.
fn is_kind_requested(request: &[String], kind: &str) -> bool {
    // Words of requests and the kind of list that they mean.
    const KINDS: [(&str, &str); 14] = [
        ("issue", "issue"),
        ("bug", "issue"),
        ("pull", "pull"),
        ("pr", "pull"),
        ("repository", "repository"),
        ("repo", "repository"),
        ("commit", "commit"),
        ("author", "commit"),
        ("contributor", "commit"),
        ("branch", "branch"),
        ("label", "label"),
        ("comment", "comment"),
        ("release", "release"),
        ("milestone", "milestone"),
    ];
    // If a request names two kinds, one may only say where the other is. Both must be complete.
    let named: BTreeSet<&str> = KINDS
        .iter()
        .filter(|(word, _)| request.iter().any(|one| to_singular(one) == *word))
        .map(|(_, kind)| *kind)
        .collect();
    named.is_empty() || named.contains(kind)
}

/// Parses the number in "the last 100 commits".
fn parse_requested_count(request: &[String]) -> Option<usize> {
    let is_limit = |word: &str| matches!(word, "last" | "first" | "latest" | "newest" | "oldest" | "recent" | "top");
    request.windows(2).filter(|pair| is_limit(&pair[0])).find_map(|pair| pair[1].parse().ok())
}
