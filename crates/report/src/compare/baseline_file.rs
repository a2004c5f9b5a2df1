//! Baseline files: the results of a version as text, small enough for a repository.
//!
//! JSON Lines. The first line is the header. Lines with one number each follow, for gates that are relative to the
//! baseline (since format 2), then lines with one task each and the values of its runs. Numbers, tasks and runs are
//! in a stable order, so that the same results give the same bytes. Requests and trajectory ids are left out unless
//! requested: a baseline must not publish what users wrote.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use super::version_results::{
    RunValues, ScoreTally, ScoredDimension, TaskKey, TaskRuns, VersionHeader, VersionResults,
};

/// Version of the format. A file with a larger number is refused.
const BASELINE_SCHEMA: u32 = 2;
/// Maximum bytes of one line. A task with 100 runs in 50 dimensions has about 60,000.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// Why a baseline cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    #[error("it is no baseline: the first line has no \"gradus_baseline\"\nhint: write one with --save-baseline FILE")]
    NoBaseline,
    #[error(
        "it has the format {found}, and this version of Gradus reads up to {BASELINE_SCHEMA}\nhint: update Gradus, or \
         write the baseline anew"
    )]
    Schema { found: u32 },
    #[error("it has the format 0, which never existed\nhint: write the baseline anew with --save-baseline FILE")]
    NoSchema,
    #[error("line {line}: {reason}\nhint: baselines are written by --save-baseline and not by hand")]
    Line { line: usize, reason: String },
    #[error("line {line}: the task is there twice\nhint: after a merge, write the baseline anew")]
    DuplicateTask { line: usize },
    #[error("line {line}: the metric is there twice\nhint: after a merge, write the baseline anew")]
    DuplicateMetric { line: usize },
    #[error(
        "it has {found} of its {expected} tasks, so a part of it is missing\nhint: write the baseline anew with \
         --save-baseline FILE"
    )]
    Incomplete { found: usize, expected: usize },
    #[error(transparent)]
    Read(#[from] io::Error),
}

#[derive(Serialize, Deserialize)]
struct HeaderLine {
    gradus_baseline: u32,
    /// How many tasks follow. Absent in files of earlier versions, whose completeness cannot be checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task_count: Option<usize>,
    #[serde(flatten)]
    header: VersionHeader,
}

/// A metric value that gates can be relative to.
#[derive(Serialize, Deserialize)]
struct MetricLine {
    metric: String,
    value: f64,
}

#[derive(Serialize, Deserialize)]
struct TaskLine {
    #[serde(flatten)]
    key: TaskKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    runs: Vec<RunLine>,
}

#[derive(Serialize, Deserialize)]
struct RunLine {
    /// Sum and count for each dimension of the header.
    scores: Vec<Option<(f64, u32)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steps: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usd: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trajectory: Option<String>,
}

impl RunLine {
    fn from_values(values: &RunValues, with_content: bool) -> RunLine {
        RunLine {
            scores: values.scores.iter().map(|score| score.map(|tally| (tally.sum, tally.count))).collect(),
            steps: values.steps,
            tokens: values.tokens,
            usd: values.cost_usd,
            seconds: values.seconds,
            trajectory: with_content.then(|| values.trajectory_id.clone()),
        }
    }

    fn into_values(self) -> RunValues {
        RunValues {
            trajectory_id: self.trajectory.unwrap_or_default(),
            scores: self.scores.into_iter().map(|score| score.map(|(sum, count)| ScoreTally { sum, count })).collect(),
            steps: self.steps,
            tokens: self.tokens,
            cost_usd: self.usd,
            seconds: self.seconds,
        }
    }
}

/// Writes a baseline. `with_content` adds the beginnings of requests and the ids of trajectories.
pub fn write_baseline(results: &VersionResults, with_content: bool, out: &mut dyn Write) -> io::Result<()> {
    let task_count = Some(results.tasks.len());
    let header = HeaderLine { gradus_baseline: BASELINE_SCHEMA, task_count, header: results.header.clone() };
    writeln!(out, "{}", serde_json::to_string(&header)?)?;
    for (metric, value) in &results.metrics {
        let line = MetricLine { metric: metric.clone(), value: *value };
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
    }
    for (key, task) in &results.tasks {
        let mut runs: Vec<(String, RunLine)> = Vec::new();
        for values in &task.runs {
            let line = RunLine::from_values(values, with_content);
            runs.push((serde_json::to_string(&line)?, line));
        }
        // Runs arrive in the order in which they finished, which is different each time.
        runs.sort_by(|one, other| one.0.cmp(&other.0));
        let line = TaskLine {
            key: key.clone(),
            text: task.request.clone().filter(|_| with_content),
            runs: runs.into_iter().map(|(_, line)| line).collect(),
        };
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
    }
    Ok(())
}

/// Whether a file begins like a baseline.
pub fn is_baseline(first_bytes: &[u8]) -> bool {
    strip_byte_order_mark(first_bytes).trim_ascii_start().starts_with(b"{\"gradus_baseline\":")
}

/// Removes the byte order mark that some editors put at the beginning.
fn strip_byte_order_mark(first_bytes: &[u8]) -> &[u8] {
    first_bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(first_bytes)
}

/// Returns why the scores of a run do not fit the dimensions; `None` if they do.
fn find_score_fault(run: &RunValues, dimensions: &[ScoredDimension]) -> Option<String> {
    if run.scores.len() != dimensions.len() {
        return Some(format!("a run has not {} scores, one for each dimension", dimensions.len()));
    }
    let is_outside = |dimension: &ScoredDimension, tally: ScoreTally| {
        let (low, high) = (dimension.worst.min(dimension.best), dimension.worst.max(dimension.best));
        // Sums of fractions are rounded.
        let slack = 1e-9 * (1.0 + low.abs().max(high.abs()));
        !(low - slack..=high + slack).contains(&tally.mean())
    };
    let empty = dimensions.iter().zip(&run.scores).find(|(_, score)| score.is_some_and(|score| score.count == 0));
    if let Some((dimension, _)) = empty {
        return Some(format!("a score of {:?} counts nothing", dimension.name));
    }
    let outside = dimensions
        .iter()
        .zip(&run.scores)
        .find(|(dimension, score)| score.is_some_and(|score| is_outside(dimension, score)));
    outside.map(|(dimension, _)| {
        let ScoredDimension { name, worst, best, .. } = dimension;
        format!("a score of {name:?} is outside of its scale, {worst} to {best}")
    })
}

/// Returns why a number cannot be the value of a metric: a share below 0 or above 1. Parts of a metric
/// (`name{tool=x}`) have its scale.
fn find_metric_fault(line: &MetricLine, dimensions: &[ScoredDimension]) -> Option<String> {
    let name = line.metric.split('{').next().unwrap_or_default();
    let is_share = dimensions.iter().any(|dimension| {
        let short = dimension.name.split_once(": ").map_or(dimension.name.as_str(), |(_, short)| short);
        short == name && dimension.scale().is_share()
    });
    (is_share && !(-1e-9..=1.0 + 1e-9).contains(&line.value))
        .then(|| format!("{:?} is a share, and {} is none", line.metric, line.value))
}

/// Reads a baseline. A broken line is an error: a gate must not compare with a part of a baseline.
pub fn read_baseline(mut input: impl BufRead) -> Result<VersionResults, BaselineError> {
    let mut line = Vec::new();
    let mut read_line = |line: &mut Vec<u8>| {
        line.clear();
        io::Read::take(&mut input, MAX_LINE_BYTES).read_until(b'\n', line)
    };
    read_line(&mut line)?;
    if !is_baseline(&line) {
        return Err(BaselineError::NoBaseline);
    }
    let first_line = strip_byte_order_mark(&line);
    /// Only the version: the rest of a newer header may have another format.
    #[derive(Deserialize)]
    struct SchemaOnly {
        gradus_baseline: u32,
    }
    let bad_line = |line: usize, error: &serde_json::Error| {
        // The parser counts lines within its input, which is a single line.
        let reason = error.to_string().replace(&format!("line {} ", error.line()), "");
        BaselineError::Line { line, reason }
    };
    let SchemaOnly { gradus_baseline } = serde_json::from_slice(first_line).map_err(|error| bad_line(1, &error))?;
    if gradus_baseline > BASELINE_SCHEMA {
        return Err(BaselineError::Schema { found: gradus_baseline });
    }
    if gradus_baseline == 0 {
        return Err(BaselineError::NoSchema);
    }
    let HeaderLine { header, task_count, .. } =
        serde_json::from_slice(first_line).map_err(|error| bad_line(1, &error))?;
    let mut tasks: BTreeMap<TaskKey, TaskRuns> = BTreeMap::new();
    let mut metrics: BTreeMap<String, f64> = BTreeMap::new();
    for number in 2.. {
        if read_line(&mut line)? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if line.trim_ascii_start().starts_with(b"{\"metric\":") {
            let read: MetricLine = serde_json::from_slice(&line).map_err(|error| bad_line(number, &error))?;
            if let Some(reason) = find_metric_fault(&read, &header.dimensions) {
                return Err(BaselineError::Line { line: number, reason });
            }
            if metrics.insert(read.metric, read.value).is_some() {
                return Err(BaselineError::DuplicateMetric { line: number });
            }
            continue;
        }
        let task: TaskLine = serde_json::from_slice(&line).map_err(|error| bad_line(number, &error))?;
        let runs: Vec<RunValues> = task.runs.into_iter().map(RunLine::into_values).collect();
        if let Some(reason) = runs.iter().find_map(|run| find_score_fault(run, &header.dimensions)) {
            return Err(BaselineError::Line { line: number, reason });
        }
        if tasks.insert(task.key, TaskRuns { request: task.text, runs }).is_some() {
            return Err(BaselineError::DuplicateTask { line: number });
        }
    }
    if let Some(expected) = task_count.filter(|expected| *expected != tasks.len()) {
        return Err(BaselineError::Incomplete { found: tasks.len(), expected });
    }
    Ok(VersionResults { header, tasks, metrics })
}
