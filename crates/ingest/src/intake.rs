//! Collects the records that the readers of formats find, and assembles trajectories when all sources are read.

use crate::records::{EncodedRecord, MAX_DEFECTS, ReadSummary, SpooledRecord, SpooledTrace, TrajectorySink};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use gradus_core::assemble::{TraceLink, TraceLinker};
use gradus_core::coverage::SourceCoverage;
use gradus_core::span::TraceId;
use gradus_core::trajectory::{DefectKind, ExtractionDefect, Trajectory};
use gradus_otlp::{ExportRecord, RecordScope, SpanHead, TelemetrySignal, decode_log, decode_span, decode_span_head};

use crate::error::SourceError;
use crate::groups::{GroupReadResult, GroupReader, decode_group};
use crate::imported_turns::{ImportedTurns, SpanAnnotations};
use crate::limits::SourceLimits;
use crate::parallel::with_workers;
use crate::records::FoundRecord;
use crate::selection::TraceSelection;
use crate::spool::{RecordSpool, SpoolRange, SpoolReader};
use crate::turn_links::TurnCache;

pub(crate) mod documents;
#[cfg(feature = "parquet")]
pub(crate) mod trace_records;

/// The first pass over the sources. Each record goes into the spool as protobuf bytes; in memory stay one entry per
/// record, one per trace, and the links between traces. [`RecordIntake::finish`] is the second pass, which assembles
/// group by group and hands trajectories to the sink. Documents that are no spans (message lists, transcripts, our own
/// lines) are complete in themselves and go to the sink at once.
#[allow(missing_debug_implementations, reason = "holds the caller's closure")]
pub struct RecordIntake<'k> {
    limits: SourceLimits,
    selection: TraceSelection,
    spool: RecordSpool,
    entries: Vec<SpooledRecord>,
    /// Every scope that records refer to by number, mostly without repetition.
    scopes: Vec<RecordScope>,
    traces: Vec<SpooledTrace>,
    /// Number of each trace id: the index into `traces`, and its number in the linker.
    trace_numbers: HashMap<TraceId, u32>,
    linker: TraceLinker,
    /// Links of traces that the selection may exclude. An excluded trace must not link others, so these are used only
    /// when all records of the trace are known.
    held_links: Vec<(usize, TraceLink)>,
    /// What is left of the limit on values of all resources together.
    resource_values_left: usize,
    summary: ReadSummary,
    sink: &'k mut TrajectorySink<'k>,
    /// The file that is being read, for messages.
    input: String,
    /// The first error of the sink or the spool.
    failed: Option<io::Error>,
    /// How often each document id was used, for numbering repetitions.
    documents: HashMap<String, u32>,
    /// All ids that were handed out; no trajectory id occurs twice in one run.
    used_ids: HashSet<String>,
    /// The project of the records that follow, where the source states it. It takes precedence over the attributes of
    /// the spans.
    project: Option<Arc<str>>,
    projects: HashMap<TraceId, Arc<str>>,
    /// Turns that later lines or traces may continue.
    turns: TurnCache,
    imported: ImportedTurns,
    annotations: SpanAnnotations,
    /// Trajectories and steps of documents of the present input.
    input_trajectories: u64,
    input_steps: u64,
}

/// State to return to if an input turns out to be unreadable as a whole.
pub(crate) struct IntakeCheckpoint {
    defects: usize,
    source: SourceCoverage,
}

/// Maximum size of a root span for which a collector reads the links of its trace on arrival. The links of a larger
/// one are found when the trace is assembled, so that one request cannot keep the receiving thread busy.
pub const MAX_LINKED_ON_ARRIVAL: usize = 64 << 10;

/// Bytes of records that a thread gets at once: enough that the hand-over costs little in comparison.
const JOB_BYTES: usize = 256 << 10;

impl<'k> RecordIntake<'k> {
    pub fn new(limits: SourceLimits, sink: &'k mut TrajectorySink<'k>) -> Self {
        RecordIntake {
            limits,
            selection: TraceSelection::default(),
            spool: RecordSpool::new(limits.spool_memory),
            entries: Vec::new(),
            scopes: Vec::new(),
            traces: Vec::new(),
            trace_numbers: HashMap::new(),
            linker: TraceLinker::default(),
            held_links: Vec::new(),
            resource_values_left: limits.group.values,
            summary: ReadSummary::default(),
            sink,
            input: String::new(),
            failed: None,
            documents: HashMap::new(),
            used_ids: HashSet::new(),
            project: None,
            projects: HashMap::new(),
            turns: TurnCache::default(),
            imported: ImportedTurns::default(),
            annotations: SpanAnnotations::default(),
            input_trajectories: 0,
            input_steps: 0,
        }
    }

    /// Limits the trajectories to these traces. Must be called before anything is read, because links are held back or
    /// used depending on it.
    pub fn set_selection(&mut self, selection: TraceSelection) {
        self.selection = selection;
    }

    /// The selection, for sources that can filter on their own side, such as a store or a Phoenix.
    pub fn selection(&self) -> &TraceSelection {
        &self.selection
    }

    /// Assigns the records that follow to this project, whatever their attributes say: senders may also name the
    /// project in a header.
    pub fn begin_project(&mut self, name: &str) {
        self.project = Some(name.into());
    }

    /// Ends the project of [`Self::begin_project`]: the attributes of the spans name it again.
    #[cfg(feature = "parquet")]
    pub(crate) fn end_project(&mut self) {
        self.project = None;
    }

    /// The limits of records, for readers of formats.
    pub(crate) fn limits(&self) -> &SourceLimits {
        &self.limits
    }

    /// Begins a source: everything that follows is counted in its coverage.
    pub fn begin_source(&mut self, name: &str) {
        self.summary.sources.push(SourceCoverage::new(name));
        self.project = None;
    }

    /// Begins an input of the source, whose name is put in front of messages about bad records. A source has many
    /// inputs if it is a folder.
    pub fn begin_input(&mut self, name: &str) {
        name.clone_into(&mut self.input);
        if self.summary.sources.is_empty() {
            self.begin_source(name);
        }
    }

    /// Counts a file of a folder that could not be read at all. The other files are still read.
    pub fn add_broken_file(&mut self, reason: &str) {
        let defect = ExtractionDefect::new(DefectKind::UnreadableRecord, format!("a file: {reason}"), None);
        let source = self.current_source();
        source.unreadable_records += 1;
        source.add_defect(&defect);
    }

    /// Counts a file of a folder that is not in a known trace format.
    pub fn skip_file(&mut self, error: &SourceError) {
        self.current_source().add_skipped_file(&error.describe_skipped());
    }

    /// Reports an input whose documents gave trajectories, and none of them a step. Silence would pass for success.
    pub(crate) fn end_input(&mut self) {
        if std::mem::take(&mut self.input_steps) == 0 && self.input_trajectories > 0 {
            let count = self.input_trajectories;
            let noun = if count == 1 { "trajectory" } else { "trajectories" };
            let detail = format!("{}: {count} {noun} without a tool call: there are no steps to grade", self.input);
            let defect = ExtractionDefect::new(DefectKind::FileWithoutSteps, detail, None);
            self.current_source().add_defect(&defect);
            if self.summary.defects.len() < MAX_DEFECTS {
                self.summary.defects.push(defect);
            }
        }
        self.input_trajectories = 0;
    }

    fn current_source(&mut self) -> &mut SourceCoverage {
        if self.summary.sources.is_empty() {
            self.begin_source("");
        }
        let last = self.summary.sources.len() - 1;
        &mut self.summary.sources[last]
    }

    /// Number of records so far. A reader compares it with an earlier value to see whether its input contained any.
    pub(crate) fn record_count(&self) -> u64 {
        self.summary.sources.iter().map(|source| source.spans + source.log_records + source.documents).sum()
    }

    pub(crate) fn checkpoint(&mut self) -> IntakeCheckpoint {
        IntakeCheckpoint { defects: self.summary.defects.len(), source: self.current_source().clone() }
    }

    /// Removes the bad records that were reported since a checkpoint, because the input is now reported as a whole.
    pub(crate) fn forget_bad_records(&mut self, mark: &IntakeCheckpoint) {
        self.summary.defects.truncate(mark.defects);
        let source = self.current_source();
        source.unreadable_records = mark.source.unreadable_records;
        source.defects.clone_from(&mark.source.defects);
    }

    /// Reports one record that could not be read. Reading continues. At most `MAX_DEFECTS` are stored; all are
    /// counted.
    pub fn bad_record(&mut self, reason: &str) {
        let detail = format!("{}: {reason}", self.input);
        let source = self.current_source();
        source.unreadable_records += 1;
        let defect = ExtractionDefect::new(DefectKind::UnreadableRecord, detail, None);
        source.add_defect(&defect);
        if self.summary.defects.len() < MAX_DEFECTS {
            self.summary.defects.push(defect);
        }
    }

    /// Adds the records of one OTLP protobuf export message that is already in memory. A malformed message is reported
    /// as a bad record; errors of the spool appear in `finish`.
    pub fn add_export(&mut self, bytes: &[u8]) {
        let limits = self.limits.record;
        let read = gradus_otlp::read_export(bytes, &limits, &mut |record| {
            let kept = self.add_record(&record);
            self.record_failure(kept);
            Ok(())
        });
        if let Err(reason) = read {
            self.bad_record(&reason.to_string());
        }
    }

    /// Adds a record in its protobuf form. The error is one of the spool; a record that cannot be decoded is reported
    /// and is no error.
    pub fn add_record(&mut self, record: &ExportRecord<'_>) -> io::Result<()> {
        match record.signal {
            TelemetrySignal::Span => match decode_span_head(record.body) {
                Ok(head) => self.spool_span(head, record.body, record.scope),
                Err(reason) => {
                    self.bad_record(&format!("a span: {reason}"));
                    Ok(())
                }
            },
            TelemetrySignal::Log => match decode_log(record.body, &self.limits.record) {
                Ok(log) => self.spool_log(log.trace_id, record.body),
                Err(reason) => {
                    self.bad_record(&format!("a log record: {reason}"));
                    Ok(())
                }
            },
        }
    }

    /// Adds a record that came in another form, encoded as protobuf.
    pub(crate) fn add_found_record(&mut self, found: FoundRecord<'_>) {
        self.add_encoded_record(EncodedRecord::new(found));
    }

    /// Adds a record that was already encoded as protobuf, on another thread.
    pub(crate) fn add_encoded_record(&mut self, record: EncodedRecord) {
        let kept = match record {
            EncodedRecord::Span { head, body, scope } => self.spool_span(head, &body, &scope),
            EncodedRecord::Log { trace_id, body } => self.spool_log(trace_id, &body),
            EncodedRecord::Bad(reason) => {
                self.bad_record(&reason);
                Ok(())
            }
        };
        self.record_failure(kept);
    }

    /// Keeps the first error of the sink or the spool until `finish`, because the readers of formats have no way to
    /// return it.
    fn record_failure(&mut self, result: io::Result<()>) {
        if let Err(error) = result
            && self.failed.is_none()
        {
            self.failed = Some(error);
        }
    }

    /// Puts a span into the spool. Only its head is decoded, except for a root span.
    fn spool_span(&mut self, head: SpanHead, body: &[u8], scope: &RecordScope) -> io::Result<()> {
        self.current_source().spans += 1;
        let trace = self.trace_number(head.trace_id);
        let known = &mut self.traces[trace as usize].start_ns;
        *known = (*known).min(head.start_ns);
        // Only a root span can link its trace to others. A span that cannot be decoded is reported in the second pass.
        if head.parent_id.is_none()
            && let Ok(span) = decode_span(body, &scope.resource, &scope.name, &self.limits.record)
        {
            self.traces[trace as usize].has_root |= self.selection.includes_root(&span.name);
            if let Some(link) = TraceLink::from_root_span(&span) {
                // The collector did not read the links of such a span on arrival, so they are returned to it.
                if body.len() > MAX_LINKED_ON_ARRIVAL {
                    let id = self.traces[trace as usize].id;
                    self.summary.links.extend(link.keys().into_iter().map(|key| (id, key)));
                }
                self.add_link(trace as usize, link);
            }
        }
        let scope = self.scope_number(scope);
        let place = self.spool.append(body)?;
        self.entries.push(SpooledRecord { place, trace, scope, signal: TelemetrySignal::Span });
        Ok(())
    }

    /// Uses a link at once, or holds it back until it is known whether the trace is selected.
    fn add_link(&mut self, trace: usize, link: TraceLink) {
        if self.selection.is_everything() {
            self.linker.add_link(trace, link);
        } else {
            self.held_links.push((trace, link));
        }
    }

    /// Whether the selection includes a trace. Valid only after all records were read: start and roots may come last.
    fn is_trace_selected(&self, trace: usize) -> bool {
        let SpooledTrace { start_ns, has_root, .. } = self.traces[trace];
        self.selection.is_everything()
            || (self.selection.includes_time(start_ns) && (has_root || self.selection.root_names.is_empty()))
    }

    fn spool_log(&mut self, trace_id: TraceId, body: &[u8]) -> io::Result<()> {
        self.current_source().log_records += 1;
        // A log record without a trace cannot belong to a step.
        if trace_id == TraceId::default() {
            return Ok(());
        }
        let trace = self.trace_number(trace_id);
        let place = self.spool.append(body)?;
        self.entries.push(SpooledRecord { place, trace, scope: 0, signal: TelemetrySignal::Log });
        Ok(())
    }

    /// The number of a trace, which is created when its id is seen first. Log records can be first.
    fn trace_number(&mut self, id: TraceId) -> u32 {
        let source = self.summary.sources.len().saturating_sub(1);
        *self.trace_numbers.entry(id).or_insert_with(|| {
            self.traces.push(SpooledTrace { id, start_ns: u64::MAX, source, has_root: false });
            if let Some(project) = &self.project {
                self.projects.insert(id, Arc::clone(project));
            }
            if let Some(source) = self.summary.sources.get_mut(source) {
                source.traces += 1;
            }
            self.linker.add_trace() as u32
        })
    }

    /// The number of a scope. Compared with the last few only: a repeated entry wastes memory and does no harm.
    fn scope_number(&mut self, scope: &RecordScope) -> u32 {
        // Requests repeat the same few scopes, mostly the last one.
        const MAX_COMPARED_SCOPES: usize = 64;
        let from = self.scopes.len().saturating_sub(MAX_COMPARED_SCOPES);
        let known = self.scopes[from..].iter().rposition(|other| {
            other.name == scope.name
                && (Arc::ptr_eq(&other.resource, &scope.resource) || other.resource == scope.resource)
        });
        known.map(|place| from + place).unwrap_or_else(|| {
            let scope = self.limit_resource_values(scope);
            self.scopes.push(scope);
            self.scopes.len() - 1
        }) as u32
    }

    /// Returns the scope, without its resource if the resources of all scopes together have more values than the
    /// limit. A sender could otherwise fill memory with small spans of large resources.
    fn limit_resource_values(&mut self, scope: &RecordScope) -> RecordScope {
        if self.scopes.last().is_some_and(|last| Arc::ptr_eq(&last.resource, &scope.resource)) {
            return scope.clone();
        }
        let values = 1 + scope.resource.attributes.value_count();
        if let Some(left) = self.resource_values_left.checked_sub(values) {
            self.resource_values_left = left;
            return scope.clone();
        }
        // Reported once: the budget is zero from then on.
        if std::mem::take(&mut self.resource_values_left) > 0 {
            let detail = "resources have more values than are kept: those of later records were left out";
            let defect = ExtractionDefect::new(DefectKind::TooLarge, detail, None);
            self.current_source().add_defect(&defect);
            self.summary.defects.push(defect);
        }
        RecordScope { resource: Arc::default(), name: Arc::clone(&scope.name) }
    }

    /// Adds links of traces whose messages are in log records. They can be found only when all log records are there.
    fn link_by_logs(&mut self, by_trace: &[Vec<usize>], spool: &SpoolReader) -> io::Result<()> {
        let mut buffer = Vec::new();
        let mut found = Vec::new();
        for (trace, indices) in by_trace.iter().enumerate() {
            let entries: Vec<&SpooledRecord> = indices.iter().map(|index| &self.entries[*index]).collect();
            if entries.iter().all(|entry| entry.signal == TelemetrySignal::Span) {
                continue;
            }
            let places: Vec<SpoolRange> = entries.iter().map(|entry| entry.place).collect();
            let bodies = spool.fetch(&places, &mut buffer)?;
            let (spans, _) = decode_group(&entries, &bodies, &self.scopes, &self.limits);
            for link in spans.iter().filter_map(TraceLink::from_root_span) {
                let id = self.traces[trace].id;
                self.summary.links.extend(link.keys().into_iter().map(|key| (id, key)));
                found.push((trace, link));
            }
        }
        found.into_iter().for_each(|(trace, link)| self.add_link(trace, link));
        Ok(())
    }

    /// The traces that belong together, by number, and what is needed to read them. Traces that the selection excludes
    /// are left out.
    #[allow(clippy::type_complexity, reason = "taken apart at once by two callers")]
    fn link_groups(&mut self) -> io::Result<(Vec<Vec<usize>>, SpoolReader, Vec<Vec<usize>>)> {
        for trajectory in self.imported.take_waiting() {
            self.add_linked_trajectory(trajectory);
        }
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut by_trace: Vec<Vec<usize>> = vec![Vec::new(); self.traces.len()];
        for (index, entry) in self.entries.iter().enumerate() {
            by_trace[entry.trace as usize].push(index);
        }
        let spool = std::mem::replace(&mut self.spool, RecordSpool::new(0)).into_reader()?;
        self.link_by_logs(&by_trace, &spool)?;
        for (trace, link) in std::mem::take(&mut self.held_links) {
            if self.is_trace_selected(trace) {
                self.linker.add_link(trace, link);
            }
        }
        let mut groups = std::mem::take(&mut self.linker).into_groups();
        // A trace that is not selected forms a group of its own, because its links were not used.
        let all = groups.len();
        groups.retain(|group| group.iter().any(|trace| self.is_trace_selected(*trace)));
        self.summary.excluded_count += (all - groups.len()) as u64;
        Ok((by_trace, spool, groups))
    }

    /// Start and id of the first trace of a group.
    fn group_head(&self, group: &[usize]) -> (u64, TraceId) {
        let first = group.iter().map(|trace| (self.traces[*trace].start_ns, self.traces[*trace].id)).min();
        first.unwrap_or_default()
    }

    /// The second pass: links traces into groups, decodes and assembles each group, and hands trajectories to the sink
    /// in the order of the start of their group. The order does not depend on the number of threads. Returns the first
    /// error of the spool or the sink.
    pub fn finish(mut self) -> io::Result<ReadSummary> {
        let (by_trace, spool, mut groups) = self.link_groups()?;
        // By start, then by id: the order of the files must not matter.
        groups.sort_by_key(|group| self.group_head(group));
        let RecordIntake {
            limits,
            selection,
            entries,
            scopes,
            traces,
            mut summary,
            sink,
            projects,
            annotations,
            mut turns,
            ..
        } = self;
        let sink = &mut |source: usize, mut trajectory: Trajectory| {
            turns.link_session(&mut trajectory);
            annotations.attach_to(&mut trajectory);
            sink(source, trajectory)
        };
        let reader = GroupReader {
            spool: &spool,
            entries: &entries,
            by_trace: &by_trace,
            scopes: &scopes,
            traces: &traces,
            projects: &projects,
            limits: &limits,
            condition: selection.condition.as_deref(),
        };
        let mut take = |read: io::Result<Vec<GroupReadResult>>| {
            for group in read? {
                group.deliver_to_sink(&mut summary, sink)?;
            }
            Ok(())
        };
        let bytes: Vec<usize> = groups.iter().map(|group| reader.group_bytes(group)).collect();
        let total: usize = bytes.iter().sum();
        // For a small input, starting threads takes longer than the work.
        if limits.threads < 2 || groups.len() < 2 || total < 2 * JOB_BYTES {
            let mut worker = reader.worker();
            groups.into_iter().try_for_each(|group| take(worker(vec![group])))?;
            return Ok(summary);
        }
        with_workers(
            limits.threads,
            || reader.worker(),
            |jobs| {
                let (mut job, mut job_bytes) = (Vec::new(), 0);
                for (group, bytes) in groups.into_iter().zip(bytes) {
                    job.push(group);
                    job_bytes += bytes;
                    if job_bytes >= JOB_BYTES {
                        jobs.submit(std::mem::take(&mut job_bytes), std::mem::take(&mut job), &mut take)?;
                    }
                }
                jobs.submit(job_bytes, job, &mut take)?;
                jobs.finish(&mut take)
            },
        )?;
        Ok(summary)
    }
}
