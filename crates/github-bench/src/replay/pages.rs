//! Paginated lists: which steps read pages of the same list. A statement about a list is a statement about all its
//! pages, so that a search keeps or leaves out all of them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::record::TrialRecord;
use crate::replay::step_selection::StepSet;
use gradus_github_agent::agent::RunStep;
use gradus_github_sim::item_range_of_page;

/// Parameters that select a part of a list, not the list.
const PAGING_PARAMETERS: [&str; 5] = ["page", "per_page", "cursor", "after", "before"];

/// The part of a list that one step read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ListPageRange {
    /// Index of the first item, and one past the last. Works for pages of different sizes.
    Span(usize, usize),
    /// An opaque cursor.
    Named(String),
}

impl ListPageRange {
    /// Whether another page contains all of this one, as when a short page is read first and then the full one.
    fn is_part_of(&self, other: &ListPageRange) -> bool {
        match (self, other) {
            (ListPageRange::Span(begin, end), ListPageRange::Span(from, to)) => {
                self != other && from <= begin && end <= to
            }
            _ => false,
        }
    }
}

/// Parses the items of a list in an observation; none if it is not a list.
pub(super) fn parse_list_items(step: &RunStep) -> Option<Vec<Value>> {
    let value: Value = serde_json::from_str(&step.observation).ok()?;
    match &value {
        Value::Array(items) => Some(items.clone()),
        Value::Object(fields) => {
            // GitHub names the items of some lists by their kind: `workflow_runs`.
            let named = || fields.values().find(|field| field.is_array());
            let found = match fields.get("items") {
                Some(items) => Some(items),
                None => fields.get("total_count").and_then(|_| named()),
            };
            found?.as_array().cloned()
        }
        _ => None,
    }
}

/// Finds lists of which more than one page was read. Each list is a list of pages, each page the set of steps that
/// read it.
pub(super) fn find_paged_lists(record: &TrialRecord) -> Vec<Vec<StepSet>> {
    let mut lists: BTreeMap<String, BTreeMap<ListPageRange, StepSet>> = BTreeMap::new();
    let steps = record.steps.iter().enumerate();
    for (index, step) in steps.filter(|(_, step)| !step.is_error && parse_list_items(step).is_some()) {
        let Some((list, page)) = (if record.is_foreign { parse_request_page(step) } else { parse_call_page(step) })
        else {
            continue;
        };
        lists.entry(list).or_default().entry(page).or_default().insert(index);
    }
    let whole = lists.into_values().map(|pages| -> Vec<StepSet> {
        let is_whole = |page: &ListPageRange| !pages.keys().any(|other| page.is_part_of(other));
        pages.iter().filter(|(page, _)| is_whole(page)).map(|(_, steps)| steps.clone()).collect()
    });
    whole.filter(|pages| pages.len() > 1).collect()
}

fn collect_step_arguments(step: &RunStep) -> Option<BTreeMap<&str, &Value>> {
    let arguments = step.arguments.as_object()?;
    Some(arguments.iter().map(|(name, value)| (name.as_str(), value)).collect())
}

/// Returns list and page of a tool call: all arguments but the paging ones identify the list.
fn parse_call_page(step: &RunStep) -> Option<(String, ListPageRange)> {
    let mut arguments = collect_step_arguments(step)?;
    let page = arguments.remove("page").map_or_else(|| "1".to_owned(), Value::to_string);
    Some((format!("{} {arguments:?}", step.tool), ListPageRange::Named(page)))
}

/// Returns list and page of a request, in the form of [`step_from_request`](crate::record::request_step). Path and query
/// without paging parameters identify the list.
fn parse_request_page(step: &RunStep) -> Option<(String, ListPageRange)> {
    let mut arguments = collect_step_arguments(step)?;
    let query = arguments.remove("query").and_then(Value::as_str).unwrap_or_default();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let (paging, mut rest): (Vec<&str>, Vec<&str>) =
        pairs.partition(|pair| PAGING_PARAMETERS.contains(&pair.split('=').next().unwrap_or_default()));
    // The order of query parameters has no meaning.
    rest.sort_unstable();
    let is_cursor = |pair: &&str| !pair.starts_with("page=") && !pair.starts_with("per_page=");
    let page = match paging.iter().copied().find(is_cursor) {
        Some(cursor) => ListPageRange::Named(cursor.to_owned()),
        None => {
            let (begin, end) = item_range_of_page(query);
            ListPageRange::Span(begin, end)
        }
    };
    Some((format!("{} {arguments:?} {rest:?}", step.tool), page))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(is_foreign: bool, steps: &[(&str, Value, &str)]) -> Vec<Vec<StepSet>> {
        let step = |(tool, arguments, observation): &(&str, Value, &str)| RunStep {
            tool: (*tool).to_owned(),
            arguments: arguments.clone(),
            observation: (*observation).to_owned(),
            ..RunStep::default()
        };
        find_paged_lists(&TrialRecord { is_foreign, steps: steps.iter().map(step).collect(), ..TrialRecord::default() })
    }

    fn requests(queries: &[&str]) -> Vec<Vec<StepSet>> {
        let step = |query: &&str| ("issues/list-for-repo", json!({"repo": "demo", "query": query}), "[{}]");
        found(true, &queries.iter().map(step).collect::<Vec<_>>())
    }

    fn one_list(pages: &[&[usize]]) -> Vec<Vec<StepSet>> {
        vec![pages.iter().map(|page| page.iter().copied().collect()).collect()]
    }

    #[test]
    fn requests_for_one_list_are_its_pages() {
        assert_eq!(requests(&["page=1&state=open", "state=open&page=2"]), one_list(&[&[0], &[1]]));
        assert_eq!(requests(&["", "page=2", "page=2&per_page=30"]), one_list(&[&[0], &[1, 2]]));
        assert_eq!(requests(&["per_page=100", "per_page=50&page=3"]), one_list(&[&[0], &[1]]));
        assert_eq!(requests(&["state=all", "state=all&cursor=abc"]), one_list(&[&[0], &[1]]));
        // Another list, the same page, and a look at the beginning of what is read as a whole.
        let none: Vec<Vec<StepSet>> = Vec::new();
        assert_eq!(requests(&["state=open", "state=closed&page=2"]), none);
        assert_eq!(requests(&["page=1", "page=0", "per_page=x"]), none);
        assert_eq!(requests(&["per_page=1", "per_page=100"]), none);
        assert_eq!(requests(&["per_page=1", "per_page=9", "per_page=9&page=2"]), one_list(&[&[1], &[2]]));
    }

    #[test]
    fn lists_are_called_by_what_is_in_them() {
        let seen = json!({"total_count": 3, "workflow_runs": [{}, {}]}).to_string();
        let page = |page: u64| ("actions/list", json!({"query": format!("page={page}&per_page=2")}), seen.as_str());
        assert_eq!(found(true, &[page(1), page(2)]), one_list(&[&[0], &[1]]));
        let call = |page: u64| ("list_issues", json!({"per_page": 5, "page": page}), "{\"items\": []}");
        assert_eq!(found(false, &[call(1), call(2)]), one_list(&[&[0], &[1]]));
        assert!(found(false, &[("get", json!({"page": 1}), "{}"), ("get", json!({"page": 2}), "{}")]).is_empty());
    }
}
