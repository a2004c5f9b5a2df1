//! Names that the filters of the list of traces suggest.

use gradus_report::html::text;
use gradus_store::{MetricFilter, NameKind};

use crate::evaluators::find_answer_labels;
use crate::http_error::ApiError;
use crate::state::ServerState;

/// Maximum number of suggestions for one field. Browsers show about ten at once, and narrow them as the user types.
const MAX_SUGGESTIONS: usize = 50;

/// Suggestions for each filter field.
pub(super) struct FilterSuggestions {
    pub(super) lists: Vec<(&'static str, Vec<String>)>,
}

impl FilterSuggestions {
    /// Tools, agents, versions and models come from stored traces. Evaluators come from grading rules and stored scores.
    pub(super) fn load(server: &ServerState, project: Option<&str>) -> Result<FilterSuggestions, ApiError> {
        let store = &server.store;
        let settings = server.reloadable();
        let filter = MetricFilter { project: project.map(str::to_owned), ..MetricFilter::default() };
        let mut evaluators: Vec<String> = settings
            .rules
            .iter()
            .flat_map(|rule| &rule.evaluators)
            .map(|evaluator| evaluator.name.to_string())
            .chain(store.list_evaluators(project)?)
            .collect();
        evaluators.sort_unstable();
        evaluators.dedup();
        evaluators.truncate(MAX_SUGGESTIONS);
        let labels = evaluators.iter().flat_map(|name| {
            let labels = find_answer_labels(&settings, name);
            labels.into_iter().map(move |(label, _)| format!("{name}={label}"))
        });
        let labels = labels.take(2 * MAX_SUGGESTIONS).collect();
        let mut lists = vec![("tool", store.list_tools(project, MAX_SUGGESTIONS)?)];
        for (field, kind) in [("agent", NameKind::Agent), ("version", NameKind::Version), ("model", NameKind::Model)] {
            lists.push((field, store.list_names(&filter, kind, MAX_SUGGESTIONS)?));
        }
        lists.extend([("wrong-by", evaluators), ("label", labels)]);
        // Values with characters that the form cannot send back are left out.
        for (_, names) in &mut lists {
            names.retain(|name| text::format_display_line(name) == *name);
        }
        lists.retain(|(_, names)| !names.is_empty());
        Ok(FilterSuggestions { lists })
    }
}
