//! Wrong outcomes of steps that call a given tool. Two facets of one trace may belong to different steps, so facets
//! alone cannot answer this.

use crate::sql::SqlValue;
use crate::sql::{OptionalRow, params_from_iter};

use super::TraceFilter;
use crate::Store;
use crate::error::StoreError;

impl Store {
    /// The first step of a trace that calls the filter's tool and that its evaluator found wrong, with its trajectory.
    /// 0 stands for a trajectory as a whole, if there is no such step. Agent, version and model of the filter count,
    /// too.
    pub fn find_wrong_step(&self, trace: i64, filter: &TraceFilter) -> Result<Option<(String, u32)>, StoreError> {
        let mut values = vec![SqlValue::Integer(trace)];
        let Some(found) = wrong_with_tool_sql("y.trajectory_id, o.step", "?", filter, &mut values) else {
            return Ok(None);
        };
        let reader = self.readers.take_reader()?;
        Ok(reader
            .prepare_cached(&format!("{found} ORDER BY o.step = 0, y.start_ns, y.no, o.step LIMIT 1"))?
            .query_row(params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?)
    }
}

/// Outcomes of an evaluator below its best on steps that call a tool, or on a whole trajectory that does. Only of the
/// trajectories that the filter selects, not of others in the same trace. `None` unless both evaluator and tool are
/// given.
pub(super) fn wrong_with_tool_sql(
    columns: &str,
    trace: &str,
    filter: &TraceFilter,
    values: &mut Vec<SqlValue>,
) -> Option<String> {
    let (evaluator, tool) = (filter.wrong.as_ref()?, filter.tool.as_ref()?);
    values.extend([evaluator, tool, tool].map(|text| SqlValue::Text(text.clone())));
    let mut found = format!(
        "SELECT {columns} FROM trajectory y INDEXED BY trajectory_by_trace \
         CROSS JOIN outcome o INDEXED BY outcome_wrong ON o.trajectory = y.no \
         WHERE y.trace = {trace} AND o.evaluator = ? AND o.is_wrong \
         AND (o.tool = ? OR (o.step = 0 AND instr('\n' || y.tools || '\n', '\n' || ? || '\n') > 0))"
    );
    for (column, name) in [("agent", &filter.agent), ("version", &filter.version), ("model", &filter.model)] {
        if let Some(name) = name {
            found.push_str(&format!(" AND y.{column} = ?"));
            values.push(SqlValue::Text(name.clone()));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use gradus_core::span::TraceId;

    use super::*;
    use crate::connection::{assert_plan, open_writer};
    use crate::{
        AssembledTraceGroup, BlockSignal, OutcomeRecord, RecordedKind, StoreOptions, TraceChunk, TrajectoryRecord,
    };

    #[test]
    fn only_what_is_wrong_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let sql = open_writer(&folder.path().join("store.db")).unwrap();
        let both = TraceFilter { wrong: Some("e".to_owned()), tool: Some("t".to_owned()), ..TraceFilter::default() };
        let found = wrong_with_tool_sql("1", "?", &both, &mut Vec::new()).unwrap();
        assert_plan(&sql, &found, "trajectory_by_trace (trace=?)");
        assert_plan(&sql, &found, "COVERING INDEX outcome_wrong (trajectory=? AND evaluator=?)");
    }

    /// A step: its evaluator, its tool, whether it was found wrong; 0 for the whole.
    fn outcome(step: u32, evaluator: &str, tool: &str, is_wrong: bool) -> OutcomeRecord {
        OutcomeRecord {
            evaluator: evaluator.to_owned(),
            step: (step > 0).then_some(step),
            kind: RecordedKind::Scored,
            label: None,
            score: Some(f64::from(u8::from(!is_wrong))),
            is_wrong,
            tool: tool.to_owned(),
            run: String::new(),
            line: "{}".to_owned(),
            failure_group: None,
        }
    }

    #[test]
    fn a_tool_that_was_wrong_is_one_and_the_same_step() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), StoreOptions::default()).unwrap();
        let all: [(&str, Vec<OutcomeRecord>); 4] = [
            // Another tool was wrong, beside one that was right.
            ("a", vec![outcome(1, "fit", "look", false), outcome(2, "fit", "pay", true)]),
            ("a", vec![outcome(1, "fit", "pay", true), outcome(2, "fit", "look", true)]),
            ("b", vec![outcome(1, "fit", "look", true)]),
            ("a", vec![outcome(1, "fit", "look", false), outcome(0, "order", "", true)]),
        ];
        for ((agent, outcomes), number) in all.into_iter().zip(1..) {
            let trace_id = TraceId(number);
            let mut chunk = TraceChunk::new(trace_id, "shop".into(), BlockSignal::Spans, b"");
            chunk.start_ns = number as u64 * 100;
            store.ingest(vec![chunk], 1).unwrap().wait().unwrap();
            let mut tools: Vec<String> =
                outcomes.iter().map(|one| one.tool.clone()).filter(|tool| !tool.is_empty()).collect();
            tools.dedup();
            let record = TrajectoryRecord {
                trajectory_id: format!("t{number}"),
                trace_id,
                start_ns: number as i64 * 100,
                end_ns: number as i64 * 110,
                agent: agent.to_owned(),
                steps: 2,
                tools,
                outcomes,
                ..TrajectoryRecord::default()
            };
            let trace_group = store.trace(trace_id).unwrap().unwrap().trace_group;
            let trace_groups = vec![AssembledTraceGroup { trace_group, due_ns: None, records: vec![record] }];
            store.store_assembled_groups(trace_groups, 2).unwrap().wait().unwrap();
        }
        let name = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let found = |tool: &str, wrong: &str, agent: &str| -> Vec<u128> {
            let filter =
                TraceFilter { tool: name(tool), wrong: name(wrong), agent: name(agent), ..TraceFilter::default() };
            let page = store.traces(&filter, None, 10).unwrap();
            page.traces.iter().map(|trace| trace.trace_id.0).collect()
        };
        assert_eq!(found("look", "", ""), [4, 3, 2, 1]);
        assert_eq!(found("", "fit", ""), [3, 2, 1]);
        assert_eq!(found("look", "fit", ""), [3, 2]);
        assert_eq!(found("look", "fit", "a"), [2]);
        assert_eq!(found("pay", "fit", ""), [2, 1]);
        // A whole trajectory is wrong with each of its tools.
        assert_eq!((found("look", "order", ""), found("pay", "order", "")), (vec![4], vec![]));
        let no = |trace: u128| store.trace(TraceId(trace)).unwrap().unwrap().no;
        let step = |trace: u128, evaluator: &str, tool: &str| {
            let filter = TraceFilter { wrong: name(evaluator), tool: name(tool), ..TraceFilter::default() };
            store.find_wrong_step(no(trace), &filter).unwrap()
        };
        assert_eq!(step(2, "fit", "look"), Some(("t2".to_owned(), 2)));
        assert_eq!((step(4, "order", "look"), step(1, "fit", "look")), (Some(("t4".to_owned(), 0)), None));
        // Of whom it is asked for.
        let of = |agent: &str| {
            let of =
                TraceFilter { wrong: name("fit"), tool: name("look"), agent: name(agent), ..TraceFilter::default() };
            store.find_wrong_step(no(3), &of).unwrap()
        };
        assert_eq!((of("a"), of("b")), (None, Some(("t3".to_owned(), 1))));
        assert_eq!(store.find_wrong_step(no(3), &TraceFilter::default()).unwrap(), None);
        // How many began since a moment, as far as they are counted.
        let since = |project: Option<&str>, from_ns: i64, most: usize| {
            store.count_traces_since(project, from_ns, most).unwrap()
        };
        assert_eq!((since(None, 300, 10), since(Some("shop"), 101, 10), since(Some("none"), 0, 10)), (2, 3, 0));
        assert_eq!((since(None, 0, 3), since(None, 401, 3)), (3, 0));
    }
}
