//! The second pass: fetches the traces of a group from the spool, decodes and assembles them. Several threads do this
//! at once.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use gradus_core::assemble::TrajectoryAssembler;
use gradus_core::span::{Span, TraceId};
use gradus_core::trajectory::{DefectKind, ExtractionDefect, Trajectory};
use gradus_otlp::{RecordScope, TelemetrySignal, decode_log, decode_span};

use crate::limits::SourceLimits;
use crate::records::{MAX_DEFECTS, ReadSummary, SpooledRecord, SpooledTrace, TrajectorySink};
use crate::selection::SpanCondition;
use crate::spool::{SpoolRange, SpoolReader};

/// Everything that the first pass collected, shared by the threads.
pub(crate) struct GroupReader<'r> {
    pub(crate) spool: &'r SpoolReader,
    pub(crate) entries: &'r [SpooledRecord],
    /// Indices of the entries of each trace, in the order of arrival.
    pub(crate) by_trace: &'r [Vec<usize>],
    pub(crate) scopes: &'r [RecordScope],
    pub(crate) traces: &'r [SpooledTrace],
    pub(crate) projects: &'r HashMap<TraceId, Arc<str>>,
    pub(crate) limits: &'r SourceLimits,
    pub(crate) condition: Option<&'r dyn SpanCondition>,
}

/// The result of one group.
pub(crate) struct GroupReadResult {
    source: usize,
    defects: Vec<ExtractionDefect>,
    trajectories: Vec<Trajectory>,
    /// Trajectories that the selection excludes.
    excluded_count: u64,
}

impl GroupReader<'_> {
    /// Bytes of the records of a group, by which work is divided among threads.
    pub(crate) fn group_bytes(&self, group: &[usize]) -> usize {
        let entries = group.iter().flat_map(|trace| &self.by_trace[*trace]);
        entries.map(|index| self.entries[*index].place.byte_len()).sum()
    }

    /// The function of one thread. It keeps its buffer and its cache of parsed tool lists from group to group.
    pub(crate) fn worker(&self) -> impl FnMut(Vec<Vec<usize>>) -> io::Result<Vec<GroupReadResult>> {
        let mut assembler = TrajectoryAssembler::with_max_trajectories(self.limits.group.trajectories);
        let mut buffer = Vec::new();
        move |groups| {
            let read = |group: &Vec<usize>| self.read_group(group, &mut assembler, &mut buffer);
            groups.iter().map(read).collect()
        }
    }

    /// Decodes and assembles one group.
    fn read_group(
        &self,
        group: &[usize],
        assembler: &mut TrajectoryAssembler,
        buffer: &mut Vec<u8>,
    ) -> io::Result<GroupReadResult> {
        let entries: Vec<&SpooledRecord> =
            group.iter().flat_map(|trace| &self.by_trace[*trace]).map(|index| &self.entries[*index]).collect();
        let places: Vec<SpoolRange> = entries.iter().map(|entry| entry.place).collect();
        let bodies = self.spool.fetch(&places, buffer)?;
        let (spans, mut defects) = decode_group(&entries, &bodies, self.scopes, self.limits);
        let assembled = assembler.assemble(&spans);
        // A condition is checked on spans, because a trajectory no longer has the attributes that it may ask for.
        let holding = self.condition.map(|condition| condition.matching_traces(&spans));
        defects.extend(assembled.defects);
        let mut read = GroupReadResult {
            source: self.traces[group[0]].source,
            defects,
            trajectories: assembled.trajectories,
            excluded_count: 0,
        };
        if let Some(holding) = holding {
            let all = read.trajectories.len();
            read.trajectories
                .retain(|trajectory| trajectory.trace_ids.iter().any(|id| holding.contains(&TraceId::parse(id))));
            read.excluded_count = (all - read.trajectories.len()) as u64;
        }
        if !self.projects.is_empty() {
            for trajectory in &mut read.trajectories {
                let first = trajectory.trace_ids.first().map(|id| TraceId::parse(id));
                if let Some(project) = first.and_then(|id| self.projects.get(&id)) {
                    trajectory.project = Some(project.to_string());
                }
            }
        }
        Ok(read)
    }
}

impl GroupReadResult {
    /// Counts the defects in the coverage and passes the trajectories to the sink. Called in the order of the groups,
    /// on one thread.
    pub(crate) fn deliver_to_sink(self, summary: &mut ReadSummary, sink: &mut TrajectorySink<'_>) -> io::Result<()> {
        for mut defect in self.defects {
            if let Some(source) = summary.sources.get_mut(self.source) {
                if defect.kind == DefectKind::UnreadableRecord {
                    source.unreadable_records += 1;
                    defect.detail = format!("{}: {}", source.source, defect.detail);
                }
                source.add_defect(&defect);
            }
            if summary.defects.len() < MAX_DEFECTS {
                summary.defects.push(defect);
            }
        }
        summary.excluded_count += self.excluded_count;
        self.trajectories.into_iter().try_for_each(|trajectory| sink(self.source, trajectory))
    }
}

/// Decodes the spans of a group and adds its log records to them as events. Stops at the limits of a group; what is
/// left out is reported as one defect.
pub(crate) fn decode_group<'b>(
    entries: &[&SpooledRecord],
    bodies: &[&'b [u8]],
    scopes: &'b [RecordScope],
    limits: &SourceLimits,
) -> (Vec<Span<'b>>, Vec<ExtractionDefect>) {
    let mut spans = Vec::with_capacity(entries.len().min(limits.group.spans));
    let mut logs = Vec::new();
    let mut defects = Vec::new();
    // An exporter repeats a request if the response is lost. Repeated spans are recognised by their ids later. Log
    // records have no ids, so exact repetitions are dropped here: they would make two copies of a span differ.
    let has_logs = entries.iter().any(|entry| entry.signal == TelemetrySignal::Log);
    let mut seen: HashSet<u128> = HashSet::new();
    let mut values_left = limits.group.values;
    for (entry, body) in entries.iter().zip(bodies) {
        if spans.len() + logs.len() >= limits.group.spans || values_left == 0 {
            let (read, all) = (spans.len() + logs.len(), entries.len());
            let detail = format!("more than is assembled together: {read} of {all} records were read");
            defects.push(ExtractionDefect::new(DefectKind::TooLarge, detail, None));
            break;
        }
        if has_logs && !seen.insert(gradus_core::stable_digest(body)) {
            continue;
        }
        match entry.signal {
            TelemetrySignal::Span => {
                let scope = &scopes[entry.scope as usize];
                match decode_span(body, &scope.resource, &scope.name, &limits.record) {
                    Ok(span) => {
                        values_left = values_left.saturating_sub(span.value_count());
                        spans.push(span);
                    }
                    Err(reason) => defects.push(ExtractionDefect::new(
                        DefectKind::UnreadableRecord,
                        format!("a span: {reason}"),
                        None,
                    )),
                }
            }
            // Already decoded once on arrival, so this cannot fail.
            TelemetrySignal::Log => {
                let log = decode_log(body, &limits.record).ok();
                values_left = values_left.saturating_sub(log.as_ref().map_or(0, |log| log.event.value_count()));
                logs.extend(log);
            }
        }
    }
    // Stable: records with the same time keep their order of arrival.
    logs.sort_by_key(|log| log.event.time_ns);
    // A span may be there in several versions. The events go to the version that assembly will choose.
    let version = |span: &Span<'_>| (span.end_ns, span.attributes.0.len(), span.events.len());
    let mut index: HashMap<_, usize> = HashMap::new();
    for (at, span) in spans.iter().enumerate().filter(|_| !logs.is_empty()) {
        let best = index.entry((span.trace_id, span.span_id)).or_insert(at);
        if version(span) > version(&spans[*best]) {
            *best = at;
        }
    }
    for log in logs {
        match index.get(&(log.trace_id, log.span_id)) {
            Some(&at) => spans[at].events.push(log.event),
            None => {
                let detail = format!("log record {:?} names a span that is not there", log.event.name);
                defects.push(ExtractionDefect::new(DefectKind::OrphanLog, detail, Some(log.span_id)));
            }
        }
    }
    (spans, defects)
}
