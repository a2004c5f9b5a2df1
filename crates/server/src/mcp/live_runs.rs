//! Runs of live traffic as the tools see them.

use gradus_core::span::TraceId;
use gradus_core::trajectory::Trajectory;
use gradus_eval::outcome::OutcomeLine;
use gradus_mcp::{
    ArchiveError, ArchivedRun, ArchivedVerdict, FlaggedScope, FoundRun, FoundRunPage, RunFilter, RunFlag, RunLabel,
};
use gradus_store::{AnnotationFilter, Store, TraceFilter, TraceListCursor, TraceRow, TrajectoryRow};
use jiff::Timestamp;

use super::store_failure::to_archive_error;
use crate::time_text::format_rfc3339;

/// Displayed source of runs that belong to no evaluation.
pub(super) const LIVE_TRAFFIC: &str = "live traffic";
/// Number of traces in one page of the store, and maximum number of pages that one search reads.
const TRACES_PER_PAGE: usize = 100;
const MAX_PAGES: usize = 40;
/// Maximum number of runs that are searched for the worst steps; the latest.
const MAX_VISITED_RUNS: u64 = 2_000;
/// Maximum number of labels that are shown with a run.
const MAX_LABELS: usize = 200;
/// Maximum number of ids in the error about a trace with several runs.
const MAX_NAMED_RUNS: usize = 5;

/// A position in the list: a page of the store, and runs of it that were listed before.
#[derive(Clone, Copy)]
struct RunListCursor {
    page: Option<TraceListCursor>,
    skip: usize,
}

impl RunListCursor {
    fn parse(text: Option<&str>) -> Option<RunListCursor> {
        let Some(text) = text else { return Some(RunListCursor { page: None, skip: 0 }) };
        let (skip, page) = text.split_once('@')?;
        let page = if page.is_empty() { None } else { Some(page.parse().ok()?) };
        Some(RunListCursor { page, skip: skip.parse().ok()? })
    }
}

impl std::fmt::Display for RunListCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@", self.skip)?;
        self.page.map_or(Ok(()), |page| write!(f, "{page}"))
    }
}

/// Finds a page of runs, newest first.
pub(super) fn find_live_runs(
    store: &Store,
    filter: &RunFilter,
    cursor: Option<&str>,
    limit: usize,
) -> Result<FoundRunPage, ArchiveError> {
    let wrong =
        || ArchiveError::BadArgument { argument: "cursor", reason: "give the one of the answer before".to_owned() };
    let mut at = RunListCursor::parse(cursor).ok_or_else(wrong)?;
    let traces = to_trace_filter(filter);
    let (total, is_total_partial) = count_live_runs(store, filter, &traces)?;
    let scope = LIVE_TRAFFIC.to_owned();
    let mut found = FoundRunPage { scope, total, is_total_partial, ..FoundRunPage::default() };
    for _ in 0..MAX_PAGES {
        let page = store.traces(&traces, at.page, TRACES_PER_PAGE).map_err(to_archive_error)?;
        let runs = page.traces.iter().flat_map(|row| row.trajectories.iter().map(move |run| (row, run)));
        for (number, (row, run)) in runs.enumerate() {
            if number < at.skip || !is_selected(filter, run) {
                continue;
            }
            if found.runs.len() == limit {
                found.next_cursor = Some(RunListCursor { skip: number, ..at }.to_string());
                return Ok(found);
            }
            let cursor_after = RunListCursor { skip: number + 1, ..at }.to_string();
            found.runs.push(describe_run(row, run, cursor_after));
        }
        let Some(next) = page.next else { return Ok(found) };
        at = RunListCursor { page: Some(next), skip: 0 };
    }
    found.next_cursor = Some(at.to_string());
    Ok(found)
}

/// Counts matching runs; also returns whether there may be more.
fn count_live_runs(store: &Store, filter: &RunFilter, traces: &TraceFilter) -> Result<(u64, bool), ArchiveError> {
    let (mut count, mut at) = (0, None);
    for _ in 0..MAX_PAGES {
        let page = store.traces(traces, at, TRACES_PER_PAGE).map_err(to_archive_error)?;
        let runs = page.traces.iter().flat_map(|row| &row.trajectories);
        count += runs.filter(|run| is_selected(filter, run)).count() as u64;
        at = page.next;
        if at.is_none() {
            return Ok((count, false));
        }
        gradus_store::check_query().map_err(|_| ArchiveError::Stopped)?;
    }
    Ok((count, true))
}

fn to_trace_filter(filter: &RunFilter) -> TraceFilter {
    let nanoseconds = |time: Timestamp| i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX);
    TraceFilter {
        project: filter.project.clone(),
        from_ns: filter.from.map(nanoseconds),
        to_ns: filter.to.map(nanoseconds),
        agent: filter.agent.clone(),
        tool: filter.tool.clone(),
        label: filter.label.clone(),
        error: filter.is_error,
        text: filter.text.clone(),
        ..TraceFilter::default()
    }
}

/// Whether a run matches the filter. The store finds traces, and a trace may contain several runs.
fn is_selected(filter: &RunFilter, run: &TrajectoryRow) -> bool {
    filter.agent.as_ref().is_none_or(|agent| run.agent == *agent)
        && (!filter.is_flagged || run.scores.iter().any(|score| score.wrong > 0))
}

fn describe_run(row: &TraceRow, run: &TrajectoryRow, cursor_after: String) -> FoundRun {
    // The store writes missing names as empty strings.
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    let flags = run.scores.iter().filter(|score| score.wrong > 0).map(|score| RunFlag {
        evaluator: score.evaluator.clone(),
        label: score.label.clone(),
        count: u64::try_from(score.wrong).unwrap_or(0),
        first_step: score.first_wrong.filter(|step| *step > 0),
    });
    FoundRun {
        run_id: run.trajectory_id.clone(),
        start: Some(format_rfc3339(run.start_ns)),
        project: text(&row.project),
        agent: text(&run.agent),
        agent_version: text(&run.version),
        model: text(&run.model),
        query: text(&run.query),
        step_count: u64::try_from(run.steps).unwrap_or(0),
        is_error: run.is_error,
        flags: flags.collect(),
        cursor_after,
    }
}

/// Loads a run by its id, or by the id of a trace with one run. A run exists once its trace is complete.
pub(super) fn load_live_run(store: &Store, id: &str) -> Result<ArchivedRun, ArchiveError> {
    let unknown = || ArchiveError::UnknownRun {
        id: id.chars().take(80).collect(),
        place: "live traffic; runs of evaluations need `evaluation`".to_owned(),
    };
    let stored = read_trajectory(store, id)?;
    let trajectory = match stored {
        Some(trajectory) => trajectory,
        None => {
            let trace = u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32).ok_or_else(unknown)?;
            let row = store.trace(TraceId(trace)).map_err(to_archive_error)?.ok_or_else(unknown)?;
            match row.trajectories.as_slice() {
                [] => return Err(unknown()),
                [one] => read_trajectory(store, &one.trajectory_id)?.ok_or_else(unknown)?,
                several => {
                    let known = several.iter().take(MAX_NAMED_RUNS).map(|run| run.trajectory_id.as_str());
                    let known = known.collect::<Vec<_>>().join(", ");
                    return Err(ArchiveError::SeveralRuns { id: id.to_owned(), count: several.len(), known });
                }
            }
        }
    };
    let labels = read_labels(store, &trajectory)?;
    let verdicts = read_verdicts(store, &trajectory.trajectory_id)?;
    Ok(ArchivedRun { trajectory, verdicts, labels, origin: LIVE_TRAFFIC.to_owned() })
}

fn read_trajectory(store: &Store, id: &str) -> Result<Option<Trajectory>, ArchiveError> {
    let json = store.trajectory_json(id).map_err(to_archive_error)?;
    Ok(json.and_then(|json| serde_json::from_slice(&json).ok()))
}

/// Reads the verdicts on a run. Lines that cannot be parsed are left out, as on the page of a trace.
fn read_verdicts(store: &Store, id: &str) -> Result<Vec<ArchivedVerdict>, ArchiveError> {
    let lines = store.verdict_lines(id).map_err(to_archive_error)?;
    let parse = |stored: &gradus_store::VerdictLine| {
        let line: OutcomeLine = serde_json::from_str(&stored.line).ok()?;
        Some(ArchivedVerdict { line, is_wrong: stored.is_wrong })
    };
    Ok(lines.iter().filter_map(parse).collect())
}

/// Reads the labels of people and programs on the run and its steps.
fn read_labels(store: &Store, trajectory: &Trajectory) -> Result<Vec<RunLabel>, ArchiveError> {
    let trace = store.trace_of_trajectory(&trajectory.trajectory_id).map_err(to_archive_error)?;
    let Some(trace) = trace else { return Ok(Vec::new()) };
    let filter = AnnotationFilter { trace_id: Some(trace.0), limit: MAX_LABELS, ..AnnotationFilter::default() };
    let annotations = store.annotations(&filter).map_err(to_archive_error)?;
    let prefix = format!("trajectory:{}", trajectory.trajectory_id);
    let labels = annotations.into_iter().filter_map(|one| {
        let rest = one.target.strip_prefix(&prefix)?;
        let step_index = match rest.strip_prefix('#') {
            Some(step) => Some(step.parse().ok()?),
            None if rest.is_empty() => None,
            None => return None,
        };
        let author = if one.author.is_empty() { one.annotator.to_lowercase() } else { one.author };
        Some(RunLabel {
            step_index,
            evaluator: one.name,
            label: one.label?,
            labeller: author,
            explanation: one.explanation,
        })
    });
    Ok(labels.collect())
}

/// Visits the latest runs that have a wrong verdict.
pub(super) fn visit_live_flagged(
    store: &Store,
    filter: &RunFilter,
    take: &mut dyn FnMut(&ArchivedRun),
) -> Result<FlaggedScope, ArchiveError> {
    let traces = to_trace_filter(filter);
    let mut scope = FlaggedScope { description: LIVE_TRAFFIC.to_owned(), ..FlaggedScope::default() };
    let mut at = None;
    loop {
        let page = store.traces(&traces, at, TRACES_PER_PAGE).map_err(to_archive_error)?;
        for run in page.traces.iter().flat_map(|row| &row.trajectories) {
            if scope.run_count == MAX_VISITED_RUNS {
                scope.is_partial = true;
                return Ok(scope);
            }
            scope.run_count += 1;
            if run.scores.iter().any(|score| score.wrong > 0)
                && let Some(trajectory) = read_trajectory(store, &run.trajectory_id)?
            {
                let verdicts = read_verdicts(store, &run.trajectory_id)?;
                take(&ArchivedRun { trajectory, verdicts, labels: Vec::new(), origin: LIVE_TRAFFIC.to_owned() });
            }
            gradus_store::check_query().map_err(|_| ArchiveError::Stopped)?;
        }
        match page.next {
            Some(next) => at = Some(next),
            None => return Ok(scope),
        }
    }
}
