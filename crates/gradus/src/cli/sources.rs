//! The sources that a command was given: which they are, how they are read, and what is said of those that cannot be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use gradus_core::coverage::SourceCoverage;
use gradus_core::trajectory::DefectKind;
use gradus_ingest::{
    InputSource, ReadSummary, RecordIntake, SourceError, SourceLimits, SpanCondition, TraceSelection, TraceSource,
    TrajectorySink,
};

use super::CommandExit;
use crate::config::{ConfigFile, EnvironmentVariables};
use crate::known_sources::KnownSources;
use gradus_phoenix::FilterCondition;
use gradus_phoenix::client::{PhoenixAddress, PhoenixClientSettings, PhoenixSource};

/// Which traces are meant, beside the names of sources.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct SourceOptions {
    /// A Phoenix, by its URL: read from when no SOURCE is given, and written to with --log-to-phoenix
    /// [default: PHOENIX_COLLECTOR_ENDPOINT].
    #[arg(long, value_name = "URL", help_heading = "Which traces")]
    pub(super) phoenix: Option<String>,
    /// The project of that Phoenix, by its name as it is [default: PHOENIX_PROJECT_NAME, else all of them].
    #[arg(long, value_name = "NAME", help_heading = "Which traces")]
    project: Option<String>,
    /// Traces that began then or later: 2026-11-15, 2026-11-15T08:00:00Z, or 24h for a day ago.
    #[arg(long, value_name = "TIME", help_heading = "Which traces")]
    from: Option<String>,
    /// Traces that began before then.
    #[arg(long, value_name = "TIME", help_heading = "Which traces")]
    to: Option<String>,
    /// Traces whose root span has this name; may be given several times.
    #[arg(long, value_name = "NAME", help_heading = "Which traces")]
    root_name: Vec<String>,
    /// Traces with a span that this is true of, in Phoenix's filter language:
    /// "span_kind == 'TOOL' and status_code == 'ERROR'". Annotations and costs are not in traces, so it cannot ask for
    /// them.
    #[arg(long = "where", value_name = "CONDITION", help_heading = "Which traces")]
    condition: Option<String>,
}

/// Where settings are and what is kept, as far as a command can be told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateLocations<'a> {
    pub(super) config: Option<&'a Path>,
    pub(super) state_dir: Option<&'a Path>,
    /// Take up nothing.
    pub(super) fresh: bool,
}

/// All that is needed to read.
#[derive(Clone, Debug)]
pub(super) struct ResolvedSources {
    named: Vec<NamedSource>,
    selection: TraceSelection,
    phoenix: PhoenixClientSettings,
    known: KnownSources,
    fresh: bool,
}

#[derive(Clone, Debug)]
struct NamedSource {
    name: String,
    phoenix: Option<PhoenixAddress>,
}

impl SourceOptions {
    /// Finds out what is meant; everything that can be wrong about it is found here.
    pub(super) fn resolve(&self, given: &[String], places: StateLocations<'_>) -> Result<ResolvedSources, String> {
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(places.config.or(environment.config.as_deref()))?;
        let (from, to) = (self.from.as_deref(), self.to.as_deref());
        let condition = self.condition.as_deref().map(FilterCondition::read).transpose();
        let condition = condition.map_err(|error| error.to_string())?;
        let condition = condition.map(|condition| Arc::new(condition) as Arc<dyn SpanCondition>);
        let selection = TraceSelection::read(from, to, &self.root_name, condition, jiff::Timestamp::now())
            .map_err(|error| error.to_string())?;
        let project = self.project.clone().or_else(|| environment.phoenix_project.clone());
        let mut named = Vec::new();
        for name in given {
            let address = PhoenixAddress::of_source(name).transpose();
            let address = address.map_err(|error| format!("{}: {error}", without_secrets(name)))?;
            named.push(match address {
                Some(PhoenixAddress { project: Some(own), .. })
                    if self.project.as_ref().is_some_and(|it| *it != own) =>
                {
                    return Err(format!("--project: {name} names the project {own:?} already; leave one of them out"));
                }
                Some(address) => {
                    let project = address.project.clone().or_else(|| project.clone());
                    NamedSource { name: name.clone(), phoenix: Some(PhoenixAddress { project, ..address }) }
                }
                None => NamedSource { name: name.clone(), phoenix: None },
            });
        }
        if self.project.is_some() && !named.is_empty() && named.iter().all(|one| one.phoenix.is_none()) {
            return Err(
                "--project: it is a project of a Phoenix, and none is read from here; leave the SOURCE out to read \
                 from --phoenix, or write it as phoenix://HOST:PORT/PROJECT"
                    .to_owned(),
            );
        }
        if named.is_empty() {
            let address = given_phoenix(self.phoenix.as_deref(), &environment)?
                .ok_or("no source: give a file, a folder or phoenix://HOST:PORT/PROJECT, or say where Phoenix is with --phoenix URL or PHOENIX_COLLECTOR_ENDPOINT")?;
            if let (Some(own), Some(given)) = (&address.project, &self.project)
                && own != given
            {
                return Err(format!("--project: --phoenix names the project {own:?} already; leave one of them out"));
            }
            let project = address.project.clone().or(project);
            let address = PhoenixAddress { project, ..address };
            named.push(NamedSource { name: address.to_string(), phoenix: Some(address) });
        }
        let phoenix = file.phoenix.client_settings(&environment);
        let state_dir = places.state_dir.map(Path::to_owned).or(environment.state_dir).or(file.state_dir);
        Ok(ResolvedSources {
            named,
            selection,
            phoenix,
            known: KnownSources {
                state_dir: state_dir.unwrap_or_else(|| PathBuf::from(".gradus")),
                server_key: environment.gradus_key,
            },
            fresh: places.fresh,
        })
    }
}

/// The Phoenix that was named, or that the environment names.
pub(super) fn given_phoenix(
    given: Option<&str>,
    environment: &EnvironmentVariables,
) -> Result<Option<PhoenixAddress>, String> {
    let (name, text) = match (given, &environment.phoenix_url) {
        (Some(url), _) => ("--phoenix", url),
        (None, Some(url)) => ("PHOENIX_COLLECTOR_ENDPOINT", url.as_str()),
        (None, None) => return Ok(None),
    };
    PhoenixAddress::of_url(text).map(Some).map_err(|error| format!("{name}: {error}"))
}

/// An address as it may be shown: without what stands before an `@`.
fn without_secrets(name: &str) -> String {
    match (name.split_once("://"), name.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => name.to_owned(),
    }
}

impl ResolvedSources {
    /// As they are recorded with a run.
    pub(super) fn names(&self) -> Vec<String> {
        self.named.iter().map(|one| one.name.clone()).collect()
    }

    /// What makes two reads of the same names different.
    pub(super) fn selection_text(&self) -> &str {
        &self.selection.as_written
    }

    /// The addresses of all Phoenixes that are read from.
    pub(super) fn phoenixes(&self) -> impl Iterator<Item = &PhoenixAddress> {
        self.named.iter().filter_map(|one| one.phoenix.as_ref())
    }

    /// Reads all sources. Those that cannot be read are reported one line each, the others go on.
    pub(super) fn read(&self, sink: &mut TrajectorySink<'_>) -> anyhow::Result<SourceReadReport> {
        let mut intake = RecordIntake::new(SourceLimits::for_command(), sink);
        intake.set_selection(self.selection.clone());
        let mut failed = 0;
        for named in &self.named {
            intake.begin_source(&named.name);
            match self.read_source(named, &mut intake) {
                Ok(broken) => failed += broken,
                Err(error) => {
                    print_diagnostic(&error.to_string());
                    intake.broken_file(&error.to_string());
                    failed += 1;
                }
            }
        }
        let summary = intake.finish()?;
        let unreadable = summary.defects.iter().filter(|defect| defect.kind == DefectKind::UnreadableRecord);
        for defect in unreadable.clone().take(MAX_WARNINGS) {
            print_diagnostic(&format!("passed over a record: {}", defect.detail));
        }
        let more = unreadable.count().saturating_sub(MAX_WARNINGS);
        if more > 0 {
            print_diagnostic(&format!("passed over {more} more records; --coverage counts them"));
        }
        Ok(SourceReadReport { summary, failed, narrowed_by: self.selection.active_option_names() })
    }

    /// A file must be readable. Of a folder, what is no trace is passed over, and what is broken is told.
    fn read_source(&self, named: &NamedSource, intake: &mut RecordIntake<'_>) -> Result<usize, SourceError> {
        if let Some(address) = &named.phoenix {
            let phoenix = PhoenixSource {
                name: named.name.clone(),
                address: address.clone(),
                settings: self.phoenix.clone(),
                state_dir: Some(self.known.state_dir.clone()),
                fresh: self.fresh,
                tell: print_diagnostic,
            };
            return phoenix.read(intake).map(|()| 0);
        }
        let inputs = gradus_ingest::expand_source(&named.name, &self.known)?;
        let [only] = inputs.as_slice() else { return Ok(read_folder(&inputs, &self.known, intake)) };
        if matches!(only, InputSource::File { .. }) && only.name() != named.name {
            return Ok(read_folder(&inputs, &self.known, intake));
        }
        gradus_ingest::read_input_source(only, &self.known, intake).map(|()| 0)
    }
}

/// What reading came to.
#[derive(Default)]
pub(super) struct SourceReadReport {
    pub(super) summary: ReadSummary,
    /// Sources and files that could not be read.
    pub(super) failed: usize,
    /// The options that left traces out.
    narrowed_by: Vec<&'static str>,
}

impl SourceReadReport {
    pub(super) fn command_exit(&self, found: usize) -> CommandExit {
        if self.failed > 0 {
            return CommandExit::BadInput;
        }
        if found == 0 {
            print_diagnostic(&self.nothing_found());
            return CommandExit::NothingFound;
        }
        CommandExit::Pass
    }

    fn nothing_found(&self) -> String {
        let sum = |count: fn(&SourceCoverage) -> u64| self.summary.sources.iter().map(count).sum::<u64>();
        let (spans, logs) = (sum(|source| source.spans), sum(|source| source.log_records));
        let (documents, skipped) = (sum(|source| source.documents), sum(|source| source.skipped_files));
        let refused = sum(|source| source.unreadable_records);
        let others = self.summary.passed_over;
        let asked = match self.narrowed_by.as_slice() {
            [one] => format!("{one} asks for"),
            several => format!("{} ask for", several.join(" and ")),
        };
        // A condition is asked of trajectories, the others of traces.
        let is_all = self.narrowed_by.contains(&"--where") || others >= sum(|source| source.traces) + documents;
        if others > 0 && is_all {
            return format!("no trajectories: none of {others} traces and documents is what {asked}");
        }
        if others > 0 {
            return format!(
                "no trajectories: {others} traces and documents are not what {asked}, and the others call no model and no tool"
            );
        }
        // Of a server, only what is asked for travels.
        if spans + logs + documents + skipped + refused == 0 && !self.narrowed_by.is_empty() {
            return format!("no trajectories: nothing there is what {asked}");
        }
        if spans + logs + documents == 0 && !self.summary.sources.is_empty() && skipped == 0 {
            return "no trajectories: there are no spans".to_owned();
        }
        if spans + logs + documents == 0 {
            return format!("no trajectories: none of {skipped} files is a trace");
        }
        if refused > 0 {
            return format!("no trajectories: {refused} records could not be read");
        }
        if spans == 0 && logs > 0 {
            return format!("no trajectories: {logs} log records were read, and none of the spans they belong to");
        }
        format!("no trajectories: of {spans} spans and {documents} documents none calls a model or a tool")
    }
}

const MAX_WARNINGS: usize = 5;

/// Returns how many of a folder's files are broken.
fn read_folder(inputs: &[InputSource], known: &KnownSources, intake: &mut RecordIntake<'_>) -> usize {
    let mut broken = 0;
    gradus_ingest::read_files(inputs, known, intake, &mut |intake, read| match read {
        Ok(()) => {}
        Err(error) if error.is_unrecognised() => intake.skip_file(),
        Err(error) => {
            print_diagnostic(&error.to_string());
            intake.broken_file(&error.to_string());
            broken += 1;
        }
    });
    broken
}

/// One line on standard error, safe to show whatever it quotes.
pub(crate) fn print_diagnostic(text: &str) {
    // A message may repeat what a server or a file said, and that may be a key of ours.
    let text = gradus_http::mask_secrets(text);
    anstream::eprintln!("gradus: {}", gradus_core::visible::printable_line(&text));
}
