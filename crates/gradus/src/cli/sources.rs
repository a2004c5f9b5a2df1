//! The sources of a command: which kind each is, how they are read, and how sources that cannot be read are reported.
//! All sources of one call go into one intake, so that traces spread over several files are assembled together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use gradus_core::coverage::SourceCoverage;
use gradus_core::trajectory::DefectKind;
use gradus_core::visible::printable_line;
use gradus_http::SecretString;
use gradus_ingest::{
    InputSource, ReadSummary, RecordIntake, SourceError, SourceLimits, SpanCondition, TraceSelection, TraceSource,
    TrajectorySink,
};

use super::CommandExit;
#[cfg(feature = "parquet")]
use super::archive_sources::{ArchiveSources, is_archive};
use crate::config::{ConfigError, ConfigFile, EnvironmentVariables, store_address};
use crate::known_sources::StoreAndServerResolver;
use gradus_phoenix::FilterCondition;
use gradus_phoenix::client::{AddressError, PhoenixAddress, PhoenixClientSettings, PhoenixSource};

/// Which traces are meant, beside the names of sources.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(super) struct SourceOptions {
    #[command(flatten)]
    pub(super) selection: SelectionOptions,
    /// Traces with a span that this is true of, in Phoenix's filter language:
    /// "span_kind == 'TOOL' and status_code == 'ERROR'". Annotations and costs are not in traces, so it cannot ask for
    /// them.
    #[arg(long = "where", value_name = "CONDITION", help_heading = "Which traces")]
    condition: Option<String>,
}

/// The same without a condition on spans, for commands whose `--where` means more.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub(super) struct SelectionOptions {
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
    /// The store that store:PROJECT names, if it is not in the state folder: postgres://USER@HOST/DATABASE or
    /// sqlite:FOLDER [env: GRADUS_STORE].
    #[arg(long, value_name = "ADDRESS", help_heading = "Which traces")]
    store: Option<String>,
}

/// Why the options about sources make no sense together, or cannot be parsed. Nothing was read yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceOptionsError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `--where` is not in Phoenix's filter language, or asks for something that is not in traces.
    #[error("{reason}")]
    Condition { reason: String },
    /// `--from` or `--to` is not a time.
    #[error("{reason}")]
    Selection { reason: String },
    /// `name` is the source without its credentials, or the option or variable that holds the address.
    #[error("{name}: {source}")]
    Address { name: String, source: AddressError },
    /// `--project` and an address name different projects. `name` is the source or the option.
    #[error("--project: {name} names the project {project:?} already; leave one of them out")]
    TwoProjects { name: String, project: String },
    #[error(
        "--project: it is a project of a Phoenix, and none is read from here; leave the SOURCE out to read from --phoenix, or write it as phoenix://HOST:PORT/PROJECT"
    )]
    ProjectWithoutPhoenix,
    #[error(
        "no source: give a file, a folder or phoenix://HOST:PORT/PROJECT, or say where Phoenix is with --phoenix URL or PHOENIX_COLLECTOR_ENDPOINT"
    )]
    NoSource,
}

/// Options for the settings file and the state folder, of commands that have them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateLocations<'a> {
    pub(super) config: Option<&'a Path>,
    pub(super) state_dir: Option<&'a Path>,
    /// A folder that is named for its store, and wins over GRADUS_STORE. The state folder of a run does not: it says
    /// where verdicts go.
    pub(super) data: Option<&'a Path>,
    /// Whether to download everything again instead of continuing an interrupted read of a Phoenix.
    pub(super) fresh: bool,
}

/// Sources whose names, addresses and filters are valid. Whether they can be read turns out when they are read.
#[derive(Clone, Debug)]
pub(super) struct ResolvedSources {
    named: Vec<NamedSource>,
    selection: TraceSelection,
    phoenix: PhoenixClientSettings,
    known: StoreAndServerResolver,
    fresh: bool,
    /// See [`SourceLimits::accepts_personal_stdin`].
    accepts_personal_stdin: bool,
}

/// A source as the user wrote it, and its address if it is a Phoenix.
#[derive(Clone, Debug)]
struct NamedSource {
    name: String,
    phoenix: Option<PhoenixAddress>,
}

impl NamedSource {
    /// Whether it is an archive, be it a complete one or not.
    fn is_archive(&self) -> bool {
        #[cfg(feature = "parquet")]
        return self.phoenix.is_none() && is_archive(&self.name);
        #[cfg(not(feature = "parquet"))]
        return false;
    }
}

impl SourceOptions {
    /// Parses names, addresses and filters, and finds contradictions between them, before anything is read.
    pub(super) fn resolve(
        &self,
        given: &[String],
        locations: StateLocations<'_>,
    ) -> Result<ResolvedSources, SourceOptionsError> {
        self.selection.resolve(given, self.condition.as_deref(), locations)
    }
}

impl SelectionOptions {
    /// As [`SourceOptions::resolve`], with a condition in Phoenix's filter language. Relative times such as `24h` are
    /// relative to now.
    pub(super) fn resolve(
        &self,
        given: &[String],
        condition: Option<&str>,
        locations: StateLocations<'_>,
    ) -> Result<ResolvedSources, SourceOptionsError> {
        let environment = EnvironmentVariables::read();
        let file = ConfigFile::read(locations.config.or(environment.config.as_deref()))?;
        let (from, to) = (self.from.as_deref(), self.to.as_deref());
        let condition = condition
            .map(FilterCondition::read)
            .transpose()
            .map_err(|error| SourceOptionsError::Condition { reason: error.to_string() })?;
        let condition = condition.map(|condition| Arc::new(condition) as Arc<dyn SpanCondition>);
        let selection = TraceSelection::read(from, to, &self.root_name, condition, jiff::Timestamp::now())
            .map_err(|error| SourceOptionsError::Selection { reason: error.to_string() })?;
        // Only --project contradicts an address; PHOENIX_PROJECT_NAME is a default that an address overrides.
        let project = self.project.clone().or_else(|| environment.phoenix_project.clone());
        let mut named = Vec::new();
        for name in given {
            let address = PhoenixAddress::from_source(name).transpose();
            let address =
                address.map_err(|source| SourceOptionsError::Address { name: strip_credentials(name), source })?;
            named.push(match address {
                Some(PhoenixAddress { project: Some(own), .. })
                    if self.project.as_ref().is_some_and(|it| *it != own) =>
                {
                    return Err(SourceOptionsError::TwoProjects { name: name.clone(), project: own });
                }
                Some(address) => {
                    let project = address.project.clone().or_else(|| project.clone());
                    NamedSource { name: name.clone(), phoenix: Some(PhoenixAddress { project, ..address }) }
                }
                None => NamedSource { name: name.clone(), phoenix: None },
            });
        }
        if self.project.is_some() && !named.is_empty() && named.iter().all(|one| one.phoenix.is_none()) {
            return Err(SourceOptionsError::ProjectWithoutPhoenix);
        }
        if named.is_empty() {
            let address =
                find_configured_phoenix(self.phoenix.as_deref(), &environment)?.ok_or(SourceOptionsError::NoSource)?;
            if let (Some(own), Some(given)) = (&address.project, &self.project)
                && own != given
            {
                return Err(SourceOptionsError::TwoProjects { name: "--phoenix".to_owned(), project: own.clone() });
            }
            let project = address.project.clone().or(project);
            let address = PhoenixAddress { project, ..address };
            named.push(NamedSource { name: address.to_string(), phoenix: Some(address) });
        }
        let phoenix = file.phoenix.client_settings(&environment);
        let store = store_address(self.store.as_deref(), locations.data).map(SecretString::from_address);
        let given_folder = locations.data.or(locations.state_dir);
        let state_dir = given_folder.map(Path::to_owned).or(environment.state_dir).or(file.state_dir);
        Ok(ResolvedSources {
            named,
            selection,
            phoenix,
            known: StoreAndServerResolver {
                state_dir: state_dir.unwrap_or_else(|| PathBuf::from(crate::config::DEFAULT_STATE_DIR)),
                store,
                server_key: environment.gradus_key,
            },
            fresh: locations.fresh,
            accepts_personal_stdin: true,
        })
    }
}

/// Returns the Phoenix of `--phoenix`, else of PHOENIX_COLLECTOR_ENDPOINT; `None` if neither is set.
pub(super) fn find_configured_phoenix(
    given: Option<&str>,
    environment: &EnvironmentVariables,
) -> Result<Option<PhoenixAddress>, SourceOptionsError> {
    let (name, text) = match (given, &environment.phoenix_url) {
        (Some(url), _) => ("--phoenix", url),
        (None, Some(url)) => ("PHOENIX_COLLECTOR_ENDPOINT", url.as_str()),
        (None, None) => return Ok(None),
    };
    PhoenixAddress::from_url(text)
        .map(Some)
        .map_err(|source| SourceOptionsError::Address { name: name.to_owned(), source })
}

/// Returns an address without user and password, so that it may be shown.
fn strip_credentials(name: &str) -> String {
    match (name.split_once("://"), name.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        _ => name.to_owned(),
    }
}

impl ResolvedSources {
    /// Refuses sessions of coding agents on standard input, because nobody can be asked about them.
    pub(super) fn refuse_personal_stdin(&mut self) {
        self.accepts_personal_stdin = false;
    }

    /// Returns the sources as they are written into the manifest of a run.
    pub(super) fn names(&self) -> Vec<String> {
        self.named.iter().map(|one| one.name.clone()).collect()
    }

    /// Returns the filters as text, for the fingerprint of a run: the same sources with other filters are another
    /// run.
    pub(super) fn selection_text(&self) -> &str {
        &self.selection.as_written
    }

    /// Returns the addresses of all Phoenixes that are read from.
    pub(super) fn phoenixes(&self) -> impl Iterator<Item = &PhoenixAddress> {
        self.named.iter().filter_map(|one| one.phoenix.as_ref())
    }

    /// Reads all sources and passes every trajectory to `sink`, with the index of its source. A source that cannot be
    /// read is reported on one line and counted, and reading continues with the next one. Returns `Err` only if `sink`
    /// fails or the spool cannot be written.
    pub(super) fn read(&self, sink: &mut TrajectorySink<'_>) -> anyhow::Result<SourceReadReport> {
        let (mut summary, mut failed) = {
            #[allow(clippy::redundant_closure, reason = "it borrows the sink for this block only")]
            let mut sink = |source, trajectory| sink(source, trajectory);
            let mut intake = RecordIntake::new(self.limits(), &mut sink);
            let failed = self.read_into(&mut intake);
            (intake.finish()?, failed)
        };
        failed += self.read_archives(sink, &mut summary)?;
        let stepless = summary.defects.iter().filter(|defect| defect.kind == DefectKind::FileWithoutSteps);
        for defect in stepless.take(MAX_REPORTED_RECORDS) {
            print_diagnostic(&defect.detail);
        }
        let unreadable = summary.defects.iter().filter(|defect| defect.kind == DefectKind::UnreadableRecord);
        for defect in unreadable.clone().take(MAX_REPORTED_RECORDS) {
            print_diagnostic(&format!("passed over a record: {}", defect.detail));
        }
        let more = unreadable.count().saturating_sub(MAX_REPORTED_RECORDS);
        if more > 0 {
            print_diagnostic(&format!("passed over {more} more records; --coverage counts them"));
        }
        Ok(SourceReadReport { summary, failed, narrowed_by: self.selection.active_option_names() })
    }

    /// Returns the limits of an intake for these sources.
    pub(super) fn limits(&self) -> SourceLimits {
        SourceLimits { accepts_personal_stdin: self.accepts_personal_stdin, ..SourceLimits::for_command() }
    }

    /// Reads the records of all sources but archives into one intake. Returns how many sources and files could not be
    /// read; each was reported.
    pub(super) fn read_into(&self, intake: &mut RecordIntake<'_>) -> usize {
        intake.set_selection(self.selection.clone());
        let mut failed = 0;
        for named in self.named.iter().filter(|named| !named.is_archive()) {
            intake.begin_source(&named.name);
            match self.read_source(named, intake) {
                Ok(broken) => failed += broken,
                Err(error) => {
                    print_diagnostic(&error.to_string());
                    intake.add_broken_file(&error.to_string());
                    failed += 1;
                }
            }
        }
        failed
    }

    /// Returns the archives among the sources.
    #[cfg(feature = "parquet")]
    pub(super) fn archives(&self) -> ArchiveSources<'_> {
        ArchiveSources {
            names: self.named.iter().filter(|named| named.is_archive()).map(|named| named.name.as_str()).collect(),
            limits: self.limits(),
            selection: &self.selection,
            report: print_diagnostic,
        }
    }

    #[cfg(feature = "parquet")]
    fn read_archives(&self, sink: &mut TrajectorySink<'_>, summary: &mut ReadSummary) -> anyhow::Result<usize> {
        self.archives().read(sink, summary)
    }

    #[cfg(not(feature = "parquet"))]
    #[allow(clippy::unnecessary_wraps, clippy::unused_self, reason = "as with the feature")]
    fn read_archives(&self, _: &mut TrajectorySink<'_>, _: &mut ReadSummary) -> anyhow::Result<usize> {
        Ok(0)
    }

    /// Reads one source and returns the number of broken files. A named file must be a readable trace. In a folder,
    /// files of other formats are skipped, and corrupt ones are reported.
    fn read_source(&self, named: &NamedSource, intake: &mut RecordIntake<'_>) -> Result<usize, SourceError> {
        if let Some(address) = &named.phoenix {
            let phoenix = PhoenixSource {
                name: named.name.clone(),
                address: address.clone(),
                settings: self.phoenix.clone(),
                state_dir: Some(self.known.state_dir.clone()),
                fresh: self.fresh,
                notify_user: print_diagnostic,
            };
            return phoenix.read(intake).map(|()| 0);
        }
        #[cfg(not(feature = "parquet"))]
        if super::s3_support::has_s3_scheme(&named.name) {
            let missing = super::s3_support::NoS3Support { address: named.name.clone() };
            return Err(SourceError::External(missing.to_string()));
        }
        let inputs = gradus_ingest::expand_source(&named.name, &self.known)?;
        // A folder with a single file is still a folder: the name of its file is not the one that was given.
        let [only] = inputs.as_slice() else { return Ok(read_folder(&inputs, &self.known, intake)) };
        if matches!(only, InputSource::File { .. }) && only.name() != named.name {
            return Ok(read_folder(&inputs, &self.known, intake));
        }
        gradus_ingest::read_input_source(only, &self.known, intake).map(|()| 0)
    }
}

/// Counts of one read of all sources.
#[derive(Default)]
pub(super) struct SourceReadReport {
    pub(super) summary: ReadSummary,
    /// Sources and files that could not be read; each was reported already.
    pub(super) failed: usize,
    /// Names of the filter options in use, for the message if nothing is left.
    narrowed_by: Vec<&'static str>,
}

impl SourceReadReport {
    /// Returns the exit code after `found` trajectories: 2 if a source could not be read, else 4 if nothing was
    /// found, which is explained on standard error.
    pub(super) fn command_exit(&self, found: usize) -> CommandExit {
        if self.failed > 0 {
            return CommandExit::BadInput;
        }
        if found == 0 {
            print_diagnostic(&self.explain_no_trajectories());
            return CommandExit::NothingFound;
        }
        CommandExit::Pass
    }

    /// Explains why there are no trajectories, by the first reason that applies: filters excluded everything, there
    /// are no records, records are unreadable, spans are missing, or spans call no model and no tool.
    fn explain_no_trajectories(&self) -> String {
        let sum = |count: fn(&SourceCoverage) -> u64| self.summary.sources.iter().map(count).sum::<u64>();
        let (spans, logs) = (sum(|source| source.spans), sum(|source| source.log_records));
        let (documents, skipped) = (sum(|source| source.documents), sum(|source| source.skipped_files));
        let refused = sum(|source| source.unreadable_records);
        let others = self.summary.excluded_count;
        let asked = match self.narrowed_by.as_slice() {
            [one] => format!("{one} asks for"),
            several => format!("{} ask for", several.join(" and ")),
        };
        // `--where` is applied to assembled trajectories, the other filters to traces.
        let is_all = self.narrowed_by.contains(&"--where") || others >= sum(|source| source.traces) + documents;
        if others > 0 && is_all {
            return format!("no trajectories: none of {others} traces and documents is what {asked}");
        }
        if others > 0 {
            return format!(
                "no trajectories: {others} traces and documents are not what {asked}, and the others call no model and no tool"
            );
        }
        // A server applies filters itself, so excluded traces never arrive and are not counted.
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

/// Maximum number of unreadable records that are reported one by one; the rest is counted.
const MAX_REPORTED_RECORDS: usize = 5;

/// Reads the files of a folder and returns how many are corrupt. Files of no known format are skipped.
fn read_folder(inputs: &[InputSource], known: &StoreAndServerResolver, intake: &mut RecordIntake<'_>) -> usize {
    let (mut broken, mut skipped) = (0, 0);
    gradus_ingest::read_files(inputs, known, intake, &mut |intake, read| match read {
        Ok(()) => {}
        Err(error) if error.is_unrecognised() => {
            skipped += 1;
            intake.skip_file(&error);
        }
        Err(error) => {
            print_diagnostic(&error.to_string());
            intake.add_broken_file(&error.to_string());
            broken += 1;
        }
    });
    if skipped > 0 {
        let all = inputs.len();
        let files = gradus_report::format_counted_noun(all as u64, "file", "files");
        print_diagnostic(&format!("skipped {skipped} of {files}: no known traces; --coverage lists them"));
    }
    broken
}

/// Prints a line on standard error, and a second one if the text ends with a hint. Control characters are made
/// visible and known secrets are masked, so a message may quote text of traces and servers.
pub(crate) fn print_diagnostic(text: &str) {
    // A server may echo the key that it was sent.
    let text = gradus_http::mask_secrets(text);
    match text.rsplit_once("\nhint: ") {
        Some((text, hint)) => {
            anstream::eprintln!("gradus: {}\n  hint: {}", printable_line(text), printable_line(hint));
        }
        None => anstream::eprintln!("gradus: {}", printable_line(&text)),
    }
}
