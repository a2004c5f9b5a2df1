//! The filters of a list of traces as one SQL expression.

use super::wrong_verdicts::wrong_with_tool_sql;
use crate::query::trace_filter::TraceFilter;
use crate::records::FacetKind;
use crate::sql::SqlValue;

/// Ends the query of an EXISTS that is asked for each row of a list. Without it PostgreSQL would read the whole table into a
/// hash table instead, because it expects more rows than a page examines.
const PER_ROW: &str = "LIMIT 1 OFFSET 0";

/// The conditions on a trace as one SQL expression. Values are bound as parameters; `trace` is the column with its
/// number.
pub(super) fn build_trace_conditions(filter: &TraceFilter, trace: &str, values: &mut Vec<SqlValue>) -> String {
    let mut terms = vec!["TRUE".to_owned()];
    let mut facet = |kind: FacetKind, value: &str, wanted: bool| {
        values.push(SqlValue::Integer(kind as i64));
        values.push(SqlValue::Text(value.to_owned()));
        let not = if wanted { "" } else { "NOT " };
        terms.push(format!(
            "{not}EXISTS (SELECT 1 FROM facet x INDEXED BY facet_by_trace WHERE x.trace = {trace} AND x.kind = ? AND x.value = ? {PER_ROW})"
        ));
    };
    let named = [
        (FacetKind::FailureGroup, &filter.failure_group),
        (FacetKind::Label, &filter.label),
        (FacetKind::Wrong, &filter.wrong),
        (FacetKind::Tool, &filter.tool),
        (FacetKind::Agent, &filter.agent),
        (FacetKind::Version, &filter.version),
        (FacetKind::Model, &filter.model),
    ];
    for (kind, value) in named {
        if let Some(value) = value {
            facet(kind, value, true);
        }
    }
    if let Some(wanted) = filter.error {
        facet(FacetKind::Error, "", wanted);
    }
    if let Some(found) = wrong_with_tool_sql("1", trace, filter, values) {
        terms.push(format!("EXISTS ({found} {PER_ROW})"));
    }
    if let Some(score) = &filter.score {
        let mut having = vec!["count(outcome.score) > 0".to_owned()];
        values.push(SqlValue::Text(score.evaluator.clone()));
        for (bound, comparison) in [(score.at_least, ">="), (score.below, "<")] {
            if let Some(bound) = bound {
                values.push(SqlValue::Real(bound));
                having.push(format!("avg(outcome.score) {comparison} ?"));
            }
        }
        terms.push(format!(
            "EXISTS (SELECT 1 FROM trajectory y INDEXED BY trajectory_by_trace CROSS JOIN outcome ON outcome.trajectory = y.no \
             WHERE y.trace = {trace} AND outcome.evaluator = ? GROUP BY y.no HAVING {})",
            having.join(" AND ")
        ));
    }
    terms.join(" AND ")
}
