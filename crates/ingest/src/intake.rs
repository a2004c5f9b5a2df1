//! Takes in what the formats' readers find, and hands out trajectories when all of it is there.

use crate::records::{EncodedRecord, MAX_DEFECTS, ReadSummary, SpooledRecord, SpooledTrace, TrajectorySink};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use gradus_core::assemble::{self, TraceLink, TraceLinker};
use gradus_core::coverage::SourceCoverage;
use gradus_core::message::ChatMessage;
use gradus_core::span::TraceId;
use gradus_core::trajectory::{DefectKind, ExtractionDefect, ToolDefinition, Trajectory};
use gradus_otlp::{ExportRecord, RecordScope, SpanHead, TelemetrySignal, decode_log, decode_span, decode_span_head};

use crate::groups::{GroupReadResult, GroupReader, decode_group};
use crate::limits::SourceLimits;
use crate::parallel::with_workers;
use crate::records::FoundRecord;
use crate::selection::TraceSelection;
use crate::spool::{RecordSpool, SpoolRange, SpoolReader};

/// Collects records; trajectories go to the sink.
#[allow(missing_debug_implementations, reason = "holds the caller's closure")]
pub struct RecordIntake<'k> {
    limits: SourceLimits,
    selection: TraceSelection,
    spool: RecordSpool,
    entries: Vec<SpooledRecord>,
    scopes: Vec<RecordScope>,
    traces: Vec<SpooledTrace>,
    trace_numbers: HashMap<TraceId, u32>,
    linker: TraceLinker,
    /// Links of traces that may turn out not to be wanted: those must not tie others together.
    held_links: Vec<(usize, TraceLink)>,
    resource_values_left: usize,
    summary: ReadSummary,
    sink: &'k mut TrajectorySink<'k>,
    /// The file that is being read, for messages.
    input: String,
    failed: Option<io::Error>,
    /// How often a document's id was given, and all that were.
    documents: HashMap<String, u32>,
    given_ids: HashSet<String>,
    /// The project that the traces that come now belong to, where that is known from outside.
    project: Option<Arc<str>>,
    projects: HashMap<TraceId, Arc<str>>,
}

/// What a document says of itself.
#[derive(Default)]
pub(crate) struct DocumentIds {
    pub id: Option<String>,
    pub session: Option<String>,
    pub model: Option<String>,
}

/// A place to go back to if an input turns out to hold nothing.
pub(crate) struct IntakeCheckpoint {
    defects: usize,
    source: SourceCoverage,
}

/// A collector reads what ties a trace to others from its root span when that arrives, unless the span is larger than
/// this: then it is found out when the trace is assembled.
pub const MAX_LINKED_ON_ARRIVAL: usize = 64 << 10;

/// What a thread is given at once, in bytes of records: enough that handing it over costs nothing beside it.
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
            given_ids: HashSet::new(),
            project: None,
            projects: HashMap::new(),
        }
    }

    /// Only these traces become trajectories. To be said before anything is read.
    pub fn set_selection(&mut self, selection: TraceSelection) {
        self.selection = selection;
    }

    pub fn selection(&self) -> &TraceSelection {
        &self.selection
    }

    /// What follows belongs to this project, whatever the spans say: senders name it in a header, too.
    pub fn begin_project(&mut self, name: &str) {
        self.project = Some(name.into());
    }

    pub(crate) fn limits(&self) -> &SourceLimits {
        &self.limits
    }

    /// Everything that follows is counted under this source.
    pub fn begin_source(&mut self, name: &str) {
        self.summary.sources.push(SourceCoverage::new(name));
        self.project = None;
    }

    pub fn begin_input(&mut self, name: &str) {
        name.clone_into(&mut self.input);
        if self.summary.sources.is_empty() {
            self.begin_source(name);
        }
    }

    /// A file that could not be read at all.
    pub fn broken_file(&mut self, reason: &str) {
        let defect = ExtractionDefect::new(DefectKind::UnreadableRecord, format!("a file: {reason}"), None);
        let source = self.current_source();
        source.unreadable_records += 1;
        source.add_defect(&defect);
    }

    /// A file of a folder that is no trace.
    pub fn skip_file(&mut self) {
        self.current_source().skipped_files += 1;
    }

    fn current_source(&mut self) -> &mut SourceCoverage {
        if self.summary.sources.is_empty() {
            self.begin_source("");
        }
        let last = self.summary.sources.len() - 1;
        &mut self.summary.sources[last]
    }

    /// How many records were taken in so far: a reader compares to see whether its input held any.
    pub(crate) fn record_count(&self) -> u64 {
        self.summary.sources.iter().map(|source| source.spans + source.log_records + source.documents).sum()
    }

    pub(crate) fn checkpoint(&mut self) -> IntakeCheckpoint {
        IntakeCheckpoint { defects: self.summary.defects.len(), source: self.current_source().clone() }
    }

    /// Takes back the bad records that were reported since a mark.
    pub(crate) fn forget_bad_records(&mut self, mark: &IntakeCheckpoint) {
        self.summary.defects.truncate(mark.defects);
        let source = self.current_source();
        source.unreadable_records = mark.source.unreadable_records;
        source.defects.clone_from(&mark.source.defects);
    }

    /// One record that could not be read; the source goes on.
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

    /// Takes in one OTLP protobuf export message that is already in memory.
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

    /// Takes in a record in its protobuf form.
    pub fn add_record(&mut self, record: &ExportRecord<'_>) -> io::Result<()> {
        match record.signal {
            TelemetrySignal::Span => match decode_span_head(record.body) {
                Ok(head) => self.spooled_span(head, record.body, record.scope),
                Err(reason) => {
                    self.bad_record(&format!("a span: {reason}"));
                    Ok(())
                }
            },
            TelemetrySignal::Log => match decode_log(record.body, &self.limits.record) {
                Ok(log) => self.spooled_log(log.trace_id, record.body),
                Err(reason) => {
                    self.bad_record(&format!("a log record: {reason}"));
                    Ok(())
                }
            },
        }
    }

    /// Takes in a record that came in another form.
    pub(crate) fn add_found_record(&mut self, found: FoundRecord<'_>) {
        self.add_encoded_record(EncodedRecord::new(found));
    }

    /// Takes in a record that was brought into its protobuf form.
    pub(crate) fn add_encoded_record(&mut self, record: EncodedRecord) {
        let kept = match record {
            EncodedRecord::Span { head, body, scope } => self.spooled_span(head, &body, &scope),
            EncodedRecord::Log { trace_id, body } => self.spooled_log(trace_id, &body),
            EncodedRecord::Bad(reason) => {
                self.bad_record(&reason);
                Ok(())
            }
        };
        self.record_failure(kept);
    }

    /// Takes in a message list.
    pub(crate) fn add_messages(
        &mut self,
        messages: &[ChatMessage<'_>],
        ids: &DocumentIds,
        source: &[u8],
        tools: &[ToolDefinition],
    ) {
        let mut trajectories = assemble::assemble_messages(messages, tools);
        for trajectory in &mut trajectories {
            trajectory.session_id = ids.session.clone().or_else(|| ids.id.clone());
            trajectory.model.clone_from(&ids.model);
        }
        self.add_document(trajectories, ids.id.as_deref(), source);
    }

    pub(crate) fn add_transcript(&mut self, text: &str) {
        self.add_document(assemble::assemble_transcript(text), None, text.as_bytes());
    }

    /// Gives the trajectories of a document its own id, else a digest of it; never the same one twice.
    fn add_document(&mut self, mut trajectories: Vec<Trajectory>, id: Option<&str>, source: &[u8]) {
        let base = id.map_or_else(|| format!("{:032x}", gradus_core::stable_digest(source)), str::to_owned);
        for trajectory in &mut trajectories {
            let count = self.documents.entry(base.clone()).or_default();
            let next = |count: &mut u32| {
                *count += 1;
                if *count == 1 { base.clone() } else { format!("{base}-{count}") }
            };
            let mut id = next(count);
            while !self.given_ids.insert(id.clone()) {
                id = next(count);
            }
            trajectory.trajectory_id = id;
        }
        self.current_source().documents += 1;
        self.emit(trajectories);
    }

    /// A trajectory in our own line format.
    pub(crate) fn add_trajectory(&mut self, mut trajectory: Trajectory) {
        self.current_source().documents += 1;
        // Two files may number their trajectories alike, and whoever wrote the lines may not have counted steps at all.
        let (base, mut count) = (trajectory.trajectory_id.clone(), 1);
        while !self.given_ids.insert(trajectory.trajectory_id.clone()) {
            count += 1;
            trajectory.trajectory_id = format!("{base}-{count}");
        }
        if !trajectory.steps.is_sorted_by(|a, b| a.index < b.index)
            || trajectory.steps.last().is_some_and(|step| step.index == u32::MAX)
        {
            (1..).zip(&mut trajectory.steps).for_each(|(index, step)| step.index = index);
        }
        self.emit(vec![trajectory]);
    }

    fn emit(&mut self, trajectories: Vec<Trajectory>) {
        let source = self.summary.sources.len().saturating_sub(1);
        for trajectory in trajectories {
            if !self.selection.holds_document(trajectory.start.as_deref()) {
                self.summary.passed_over += 1;
                continue;
            }
            let sent = (self.sink)(source, trajectory);
            self.record_failure(sent);
        }
    }

    /// Keeps the first failure of the sink or the spool for the end: readers of formats cannot pass it on.
    fn record_failure(&mut self, result: io::Result<()>) {
        if let Err(error) = result
            && self.failed.is_none()
        {
            self.failed = Some(error);
        }
    }

    fn spooled_span(&mut self, head: SpanHead, body: &[u8], scope: &RecordScope) -> io::Result<()> {
        self.current_source().spans += 1;
        let trace = self.trace_number(head.trace_id);
        let known = &mut self.traces[trace as usize].start_ns;
        *known = (*known).min(head.start_ns);
        // Only a span without a parent can tie its trace to others. One that cannot be decoded is reported later.
        if head.parent_id.is_none()
            && let Ok(span) = decode_span(body, &scope.resource, &scope.name, &self.limits.record)
        {
            self.traces[trace as usize].has_root |= self.selection.holds_root(&span.name);
            if let Some(link) = TraceLink::from_root_span(&span) {
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

    fn add_link(&mut self, trace: usize, link: TraceLink) {
        if self.selection.is_everything() {
            self.linker.add_link(trace, link);
        } else {
            self.held_links.push((trace, link));
        }
    }

    /// Whether a trace is one of those that were asked for, now that all of it is here.
    fn is_wanted(&self, trace: usize) -> bool {
        let SpooledTrace { start_ns, has_root, .. } = self.traces[trace];
        self.selection.is_everything()
            || (self.selection.holds_time(start_ns) && (has_root || self.selection.root_names.is_empty()))
    }

    fn spooled_log(&mut self, trace_id: TraceId, body: &[u8]) -> io::Result<()> {
        self.current_source().log_records += 1;
        // A log record that belongs to no trace says nothing about an agent's steps.
        if trace_id == TraceId::default() {
            return Ok(());
        }
        let trace = self.trace_number(trace_id);
        let place = self.spool.append(body)?;
        self.entries.push(SpooledRecord { place, trace, scope: 0, signal: TelemetrySignal::Log });
        Ok(())
    }

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

    fn scope_number(&mut self, scope: &RecordScope) -> u32 {
        // Requests repeat the same few scopes, mostly the last one.
        const LOOKED_AT: usize = 64;
        let from = self.scopes.len().saturating_sub(LOOKED_AT);
        let known = self.scopes[from..].iter().rposition(|other| {
            other.name == scope.name
                && (Arc::ptr_eq(&other.resource, &scope.resource) || other.resource == scope.resource)
        });
        known.map(|place| from + place).unwrap_or_else(|| {
            let scope = self.within_limit(scope);
            self.scopes.push(scope);
            self.scopes.len() - 1
        }) as u32
    }

    /// The scope without its resource, when the resources of all scopes have more values than are kept.
    fn within_limit(&mut self, scope: &RecordScope) -> RecordScope {
        if self.scopes.last().is_some_and(|last| Arc::ptr_eq(&last.resource, &scope.resource)) {
            return scope.clone();
        }
        let values = 1 + scope.resource.attributes.value_count();
        if let Some(left) = self.resource_values_left.checked_sub(values) {
            self.resource_values_left = left;
            return scope.clone();
        }
        // Told once: the limit has then done its work.
        if std::mem::take(&mut self.resource_values_left) > 0 {
            let detail = "resources have more values than are kept: those of later records were left out";
            let defect = ExtractionDefect::new(DefectKind::TooLarge, detail, None);
            self.current_source().add_defect(&defect);
            self.summary.defects.push(defect);
        }
        RecordScope { resource: Arc::default(), name: Arc::clone(&scope.name) }
    }

    /// Spans whose content travels as log records can be linked only when those are there.
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

    /// Assembles what was read; trajectories go to the sink in order of time.
    pub fn finish(mut self) -> io::Result<ReadSummary> {
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
            if self.is_wanted(trace) {
                self.linker.add_link(trace, link);
            }
        }
        let mut groups = std::mem::take(&mut self.linker).into_groups();
        // A trace that is not wanted is alone: its links were left out.
        let all = groups.len();
        groups.retain(|group| group.iter().any(|trace| self.is_wanted(*trace)));
        self.summary.passed_over += (all - groups.len()) as u64;
        groups.sort_by_key(|group| {
            let first = group.iter().map(|trace| (self.traces[*trace].start_ns, self.traces[*trace].id)).min();
            first.unwrap_or_default()
        });
        let RecordIntake { limits, selection, entries, scopes, traces, mut summary, sink, projects, .. } = self;
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
                group.hand_out(&mut summary, sink)?;
            }
            Ok(())
        };
        let bytes: Vec<usize> = groups.iter().map(|group| reader.group_bytes(group)).collect();
        let total: usize = bytes.iter().sum();
        // Threads cost more than a small input takes.
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
