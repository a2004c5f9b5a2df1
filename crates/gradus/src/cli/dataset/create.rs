//! `gradus dataset create`: items from trajectories of any source, from those of an evaluation run with its verdicts,
//! or from the examples of a Phoenix dataset.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use gradus_core::trajectory::Trajectory;
use gradus_dataset::{
    DatasetError, DatasetItem, RecordedExpectations, ToolMatchMode, item_from_trajectory, read_dataset,
};
use gradus_eval::outcome::OutcomeLine;
use gradus_eval::report::{RunReader, VerdictGroup};
use gradus_eval::run::{EvaluatorRecord, RunFolder, StateFolder};
use gradus_report::format_counted_noun;

use super::dataset_file::{DatasetOutput, DatasetOutputError};
use super::item_labels::LabelIndex;
use super::phoenix_dataset::{ExampleKeys, fetch_dataset, item_from_example};
use super::trajectory_filter::{TrajectoryFilter, TrajectoryFilterError};
use crate::cli::CommandExit;
use crate::cli::label_file::LabelFileError;
use crate::cli::run_lookup::find_run_id;
use crate::cli::sources::{
    SelectionOptions, SourceOptionsError, StateLocations, find_configured_phoenix, print_diagnostic,
};
use crate::config::{ConfigError, ConfigFile, EnvironmentVariables};

/// Minimum number of characters of the key of a failure group; its beginning is enough.
const MIN_GROUP_KEY_CHARS: usize = 8;

#[derive(Args)]
pub(super) struct CreateArguments {
    /// The dataset to write; - is standard output.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Files, folders, -, store:PROJECT, gradus://HOST:PORT/PROJECT or phoenix://HOST:PORT/PROJECT, as for `gradus
    /// traces`.
    #[arg(value_name = "SOURCE", conflicts_with = "run")]
    sources: Vec<String>,
    /// Take the trajectories of this evaluation run, by its id, enough of its beginning, or its name; `latest` is the
    /// last one.
    #[arg(long, value_name = "RUN", help_heading = "Which traces")]
    run: Option<String>,
    /// Only trajectories of the run with a wrong verdict in this failure group: its key as in `--json`, or words of its
    /// evaluator, tool, label and reason; may be given several times, and one must hold.
    #[arg(long, value_name = "KEY|WORDS", requires = "run", help_heading = "Which traces")]
    failure_group: Vec<String>,
    /// Take the examples of this dataset of the Phoenix, by its name or id.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["sources", "run", "conditions", "labels", "expect_tools", "expect_answer", "from", "to", "root_name", "project"],
        help_heading = "Which traces"
    )]
    phoenix_dataset: Option<String>,
    /// The request of an example, as a field of its input [default: question, query, input and the like].
    #[arg(long, value_name = "FIELD", requires = "phoenix_dataset", help_heading = "Which traces")]
    request_key: Option<String>,
    /// The expected answer of an example, as a field of its output [default: answer, expected and the like].
    #[arg(long, value_name = "FIELD", requires = "phoenix_dataset", help_heading = "Which traces")]
    reference_key: Option<String>,
    #[command(flatten)]
    selection: SelectionOptions,
    /// Only trajectories that meet this; may be given several times, and all must hold. `tool = NAME`, `text ~ WORDS`,
    /// `status = answered|unanswered|error`, `has_error`, `agent = NAME`, `session = ID`, `model = NAME`; with --run also
    /// `EVALUATOR = LABEL`; with labels `label = LABEL` or `label.EVALUATOR = LABEL`. `!=` negates, `~` searches. Anything
    /// else is a condition on spans in Phoenix's filter language.
    #[arg(long = "where", value_name = "CONDITION", help_heading = "Which traces")]
    conditions: Vec<String>,
    /// Labels of people, for conditions on `label`: exported by the review page, annotations of Phoenix, or CSV, as for
    /// `gradus judge calibrate`; may be given several times. Scores and labels in the traces count without it.
    #[arg(long, value_name = "FILE", help_heading = "Which traces")]
    labels: Vec<PathBuf>,
    /// At most this many items: the first that are found.
    #[arg(long, value_name = "N", help_heading = "Which traces")]
    limit: Option<usize>,

    /// Expect the tool calls that were recorded [default mode: in_order].
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "in_order", help_heading = "Items")]
    expect_tools: Option<MatchModeName>,
    /// Keep the recorded answer as `reference`.
    #[arg(long, help_heading = "Items")]
    expect_answer: bool,
    /// Add these tags to every item.
    #[arg(long = "tag", value_name = "TAG", help_heading = "Items")]
    tags: Vec<String>,
    /// Add to FILE; items whose ids are in it already are skipped.
    #[arg(long, conflicts_with = "overwrite", help_heading = "Items")]
    append: bool,
    /// Replace FILE if it exists.
    #[arg(long, help_heading = "Items")]
    overwrite: bool,

    /// Where runs and the store of store:PROJECT are [default: .gradus].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Settings; else gradus.toml if it is here.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum MatchModeName {
    Exact,
    InOrder,
    AnyOrder,
    Subset,
    Superset,
}

impl From<MatchModeName> for ToolMatchMode {
    fn from(name: MatchModeName) -> ToolMatchMode {
        match name {
            MatchModeName::Exact => ToolMatchMode::Exact,
            MatchModeName::InOrder => ToolMatchMode::InOrder,
            MatchModeName::AnyOrder => ToolMatchMode::AnyOrder,
            MatchModeName::Subset => ToolMatchMode::Subset,
            MatchModeName::Superset => ToolMatchMode::Superset,
        }
    }
}

/// Why no dataset can be made. Each message is one line.
#[derive(Debug, thiserror::Error)]
enum CreateError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Filter(#[from] TrajectoryFilterError),
    #[error(transparent)]
    Sources(#[from] SourceOptionsError),
    #[error(transparent)]
    Output(#[from] DatasetOutputError),
    #[error(transparent)]
    Existing(#[from] DatasetError),
    #[error("run not found: {wanted:?}: {reason}; hint: `gradus runs` lists the runs")]
    Run { wanted: String, reason: String },
    #[error(
        "condition refused: --where {text:?}: a run has no spans; hint: name a SOURCE instead of --run, or use tool, text, status or an evaluation"
    )]
    SpansInRun { text: String },
    #[error("labels refused: {0}")]
    Labels(#[from] LabelFileError),
    #[error("option refused: --labels: no condition asks for them; hint: --where 'label = incorrect'")]
    UnusedLabels,
    #[error("dataset not written: -: --append needs a file")]
    AppendToStdout,
    #[error(
        "option refused: --failure-group: it is empty; hint: `gradus report RUN --json -` has the groups with their keys"
    )]
    EmptyGroup,
    #[error("option refused: --failure-group: only runs have failure groups; hint: name the run with --run")]
    GroupWithoutRun,
    #[error(
        "no Phoenix: --phoenix-dataset is one of a Phoenix; hint: say where it is with --phoenix URL or PHOENIX_COLLECTOR_ENDPOINT"
    )]
    NoPhoenix,
}

/// Entry point of the command.
pub(super) fn create_dataset(arguments: &CreateArguments) -> anyhow::Result<CommandExit> {
    match ItemCollector::prepare(arguments) {
        Ok((collector, run)) => collector.collect(arguments, run),
        Err(error) => {
            print_diagnostic(&error.to_string());
            Ok(CommandExit::BadInput)
        }
    }
}

/// Collects items, and counts the trajectories that do not become one.
struct ItemCollector {
    filters: Vec<TrajectoryFilter>,
    labels: LabelIndex,
    /// Set once a trajectory with a label was seen.
    has_labels: bool,
    /// In Phoenix's filter language.
    span_condition: Option<String>,
    output: DatasetOutput,
    content: RecordedExpectations,
    items: Vec<DatasetItem>,
    /// Of the file that is added to, and of `items`.
    known_ids: HashSet<String>,
    old_count: usize,
    limit: usize,
    /// Of `--failure-group`, in lower case.
    failure_groups: Vec<String>,
    /// What items are made of.
    nouns: (&'static str, &'static str),
    evaluators: Vec<EvaluatorRecord>,
    unmet: u64,
    ungrouped: u64,
    without_request: u64,
    nested: u64,
    repeated: u64,
}

impl ItemCollector {
    /// Finds every error in the options before anything is read.
    fn prepare(arguments: &CreateArguments) -> Result<(ItemCollector, Option<RunFolder>), CreateError> {
        let run = match &arguments.run {
            Some(wanted) => Some(find_run(arguments, wanted)?),
            None => None,
        };
        let evaluators = run.as_ref().map(|run| run.record.evaluators.as_slice());
        let (mut filters, mut spans) = (Vec::new(), Vec::new());
        for text in &arguments.conditions {
            match TrajectoryFilter::parse(text, evaluators)? {
                Some(filter) => filters.push(filter),
                None if run.is_some() => return Err(CreateError::SpansInRun { text: text.clone() }),
                None => spans.push(text.as_str()),
            }
        }
        if !arguments.labels.is_empty() && !filters.iter().any(TrajectoryFilter::is_about_labels) {
            return Err(CreateError::UnusedLabels);
        }
        let labels = LabelIndex::read(&arguments.labels)?;
        let span_condition = match spans.as_slice() {
            [] => None,
            [one] => Some((*one).to_owned()),
            several => Some(several.iter().map(|one| format!("({one})")).collect::<Vec<_>>().join(" and ")),
        };
        if arguments.failure_group.iter().any(|text| text.trim().is_empty()) {
            return Err(CreateError::EmptyGroup);
        }
        // clap ignores the requirements of an option that conflicts with a source.
        if !arguments.failure_group.is_empty() && arguments.run.is_none() {
            return Err(CreateError::GroupWithoutRun);
        }
        let output = DatasetOutput::new(arguments.file.clone(), arguments.overwrite || arguments.append);
        output.check_overwrite()?;
        if arguments.append && output.is_stdout() {
            return Err(CreateError::AppendToStdout);
        }
        let items = match arguments.append && arguments.file.exists() {
            true => read_dataset(&arguments.file)?,
            false => Vec::new(),
        };
        let collector = ItemCollector {
            filters,
            labels,
            has_labels: false,
            span_condition,
            output,
            content: RecordedExpectations {
                expected_tools: arguments.expect_tools.map(ToolMatchMode::from),
                with_reference: arguments.expect_answer,
            },
            known_ids: items.iter().map(|item| item.id.clone()).collect(),
            old_count: items.len(),
            items,
            limit: arguments.limit.unwrap_or(usize::MAX),
            nouns: match arguments.phoenix_dataset {
                Some(_) => ("example", "examples"),
                None => ("trajectory", "trajectories"),
            },
            failure_groups: arguments.failure_group.iter().map(|text| text.trim().to_lowercase()).collect(),
            evaluators: run.as_ref().map(|run| run.record.evaluators.clone()).unwrap_or_default(),
            unmet: 0,
            ungrouped: 0,
            without_request: 0,
            nested: 0,
            repeated: 0,
        };
        Ok((collector, run))
    }

    fn collect(mut self, arguments: &CreateArguments, run: Option<RunFolder>) -> anyhow::Result<CommandExit> {
        let exit = match run {
            None if arguments.phoenix_dataset.is_some() => match self.add_examples(arguments) {
                Ok(exit) => exit,
                Err(error) => {
                    print_diagnostic(&format!("{error:#}"));
                    return Ok(CommandExit::BadInput);
                }
            },
            Some(run) => {
                RunReader::open(&run)?.visit_trajectories(|trajectory, outcomes| {
                    self.add_from_trajectory(trajectory, outcomes, &arguments.tags);
                    anyhow::Ok(())
                })?;
                CommandExit::Pass
            }
            None => {
                let (config, state_dir) = (arguments.config.as_deref(), arguments.state_dir.as_deref());
                let places = StateLocations { config, state_dir, ..StateLocations::default() };
                let resolved = arguments.selection.resolve(&arguments.sources, self.span_condition.as_deref(), places);
                let sources = match resolved {
                    Ok(sources) => sources,
                    Err(error) => {
                        print_diagnostic(&error.to_string());
                        return Ok(CommandExit::BadInput);
                    }
                };
                let mut found = 0;
                let read = sources.read(&mut |_, trajectory| {
                    found += 1;
                    self.add_from_trajectory(&trajectory, &[], &arguments.tags);
                    Ok(())
                })?;
                read.command_exit(found)
            }
        };
        let added = (self.items.len() - self.old_count) as u64;
        // A file is written for what could be read, also if a source could not.
        if added > 0
            && let Err(error) = self.output.write(&self.items)
        {
            print_diagnostic(&error.to_string());
            return Ok(CommandExit::BadInput);
        }
        print_diagnostic(&self.describe_counts(added));
        Ok(match exit {
            CommandExit::Pass if added == 0 && self.repeated == 0 => CommandExit::NothingFound,
            other => other,
        })
    }

    /// Adds the examples of the Phoenix dataset.
    fn add_examples(&mut self, arguments: &CreateArguments) -> anyhow::Result<CommandExit> {
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(arguments.config.as_deref().or(environment.config.as_deref()))?;
        let address = find_configured_phoenix(arguments.selection.phoenix.as_deref(), &environment)?
            .ok_or(CreateError::NoPhoenix)?;
        let wanted = arguments.phoenix_dataset.as_deref().unwrap_or_default();
        let dataset = fetch_dataset(&address, &file.phoenix.client_settings(&environment), wanted)?;
        let keys = ExampleKeys { request: arguments.request_key.clone(), reference: arguments.reference_key.clone() };
        for example in &dataset.examples {
            if self.items.len() - self.old_count >= self.limit {
                break;
            }
            self.add_item(item_from_example(example, &dataset.name, &keys), &arguments.tags);
        }
        Ok(CommandExit::Pass)
    }

    /// Returns the keys of the requested failure groups that the trajectory is in. Empty if none was requested.
    fn find_failure_groups(&self, trajectory: &Trajectory, outcomes: &[OutcomeLine]) -> Vec<String> {
        let is_wrong = |line: &&OutcomeLine| {
            let known = self.evaluators.iter().find(|known| known.name == *line.evaluator);
            line.is_scored() && line.score.is_some() && known.is_some_and(|known| !known.is_right(line.score))
        };
        let mut keys: Vec<String> = Vec::new();
        for line in outcomes.iter().filter(is_wrong) {
            let group = VerdictGroup::from_verdict(trajectory, line);
            let description = group.description().to_lowercase();
            // A key is long enough not to be a word of a reason by chance.
            let is_asked = |text: &String| {
                let is_key = text.len() >= MIN_GROUP_KEY_CHARS && group.key.starts_with(text.as_str());
                is_key || text.split_whitespace().all(|word| description.contains(word))
            };
            if self.failure_groups.iter().any(is_asked) && !keys.contains(&group.key) {
                keys.push(group.key);
            }
        }
        keys
    }

    fn add_from_trajectory(&mut self, trajectory: &Trajectory, outcomes: &[OutcomeLine], tags: &[String]) {
        // A request of one agent to another is not a request of a user.
        if trajectory.parent_trajectory_id.is_some() {
            self.nested += 1;
            return;
        }
        let labels = match self.filters.iter().any(TrajectoryFilter::is_about_labels) {
            true => self.labels.labels_about(trajectory),
            false => Vec::new(),
        };
        self.has_labels |= !labels.is_empty();
        if !self.filters.iter().all(|filter| filter.is_met(trajectory, outcomes, &labels)) {
            self.unmet += 1;
            return;
        }
        let groups = self.find_failure_groups(trajectory, outcomes);
        if groups.is_empty() && !self.failure_groups.is_empty() {
            self.ungrouped += 1;
            return;
        }
        if self.items.len() - self.old_count >= self.limit {
            return;
        }
        let mut item = item_from_trajectory(trajectory, self.content);
        if let Some(item) = item.as_mut().filter(|_| !groups.is_empty()) {
            item.metadata.insert("failure_groups".to_owned(), groups.into());
        }
        self.add_item(item, tags);
    }

    /// Adds an item unless it has no request, or its id is there already.
    fn add_item(&mut self, item: Option<DatasetItem>, tags: &[String]) {
        match item {
            None => self.without_request += 1,
            Some(item) if !self.known_ids.insert(item.id.clone()) => self.repeated += 1,
            Some(mut item) => {
                item.tags.extend(tags.iter().cloned());
                self.items.push(item);
            }
        }
    }

    fn describe_counts(&self, added: u64) -> String {
        let mut text = match added {
            0 => "no items".to_owned(),
            _ => format!("{} written to {}", format_counted_noun(added, "item", "items"), self.output.shown_name()),
        };
        for (count, why) in [
            (self.unmet, "not what --where asks for"),
            (self.ungrouped, "without a wrong verdict in this failure group"),
            (self.without_request, "without a request"),
            (self.nested, "of nested agents"),
            (self.repeated, "already in the dataset"),
        ] {
            if count > 0 {
                let (one, several) = self.nouns;
                text.push_str(&format!("; {} {why}", format_counted_noun(count, one, several)));
            }
        }
        if added == 0 && !self.has_labels && self.filters.iter().any(TrajectoryFilter::is_about_labels) {
            text.push_str(match self.labels.is_empty() {
                true => "; none has a label; hint: name a file of labels with --labels",
                false => "; no label is about them; hint: labels are joined by trajectory_id or span_id",
            });
        }
        text
    }
}

/// Finds the run that `--run` names.
fn find_run(arguments: &CreateArguments, wanted: &str) -> Result<RunFolder, CreateError> {
    let environment = EnvironmentVariables::read();
    let file = ConfigFile::read(arguments.config.as_deref().or(environment.config.as_deref()))?;
    let state_dir = arguments.state_dir.clone().or(environment.state_dir).or(file.state_dir);
    let state = StateFolder::from_path(state_dir.as_deref().unwrap_or(Path::new(".gradus")));
    let error = |reason: String| CreateError::Run { wanted: wanted.to_owned(), reason };
    let id = find_run_id(&state, wanted).map_err(|found| error(found.to_string()))?;
    state.read_run(&id).map_err(|found| error(found.to_string()))
}
