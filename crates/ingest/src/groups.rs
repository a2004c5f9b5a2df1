//! Traces that belong together: fetched from the spool, decoded, assembled. Several threads do this at once.

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

/// All that was read, as the threads share it.
pub(crate) struct GroupReader<'r> {
    pub(crate) spool: &'r SpoolReader,
    pub(crate) entries: &'r [SpooledRecord],
    /// The entries of each trace.
    pub(crate) by_trace: &'r [Vec<usize>],
    pub(crate) scopes: &'r [RecordScope],
    pub(crate) traces: &'r [SpooledTrace],
    pub(crate) projects: &'r HashMap<TraceId, Arc<str>>,
    pub(crate) limits: &'r SourceLimits,
    pub(crate) condition: Option<&'r dyn SpanCondition>,
}

/// What one group came to.
pub(crate) struct GroupReadResult {
    source: usize,
    defects: Vec<ExtractionDefect>,
    trajectories: Vec<Trajectory>,
    /// Trajectories that are not among those that were asked for.
    passed_over: u64,
}

impl GroupReader<'_> {
    /// Bytes of a group's records.
    pub(crate) fn group_bytes(&self, group: &[usize]) -> usize {
        let entries = group.iter().flat_map(|trace| &self.by_trace[*trace]);
        entries.map(|index| self.entries[*index].place.byte_len()).sum()
    }

    /// What one thread does; it keeps its buffers and the tool lists that it has read.
    pub(crate) fn worker(&self) -> impl FnMut(Vec<Vec<usize>>) -> io::Result<Vec<GroupReadResult>> {
        let mut assembler = TrajectoryAssembler::with_max_trajectories(self.limits.group.trajectories);
        let mut buffer = Vec::new();
        move |groups| {
            let read = |group: &Vec<usize>| self.read_group(group, &mut assembler, &mut buffer);
            groups.iter().map(read).collect()
        }
    }

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
        let holding = self.condition.map(|condition| condition.matching_traces(&spans));
        defects.extend(assembled.defects);
        let mut read = GroupReadResult {
            source: self.traces[group[0]].source,
            defects,
            trajectories: assembled.trajectories,
            passed_over: 0,
        };
        if let Some(holding) = holding {
            let all = read.trajectories.len();
            read.trajectories
                .retain(|trajectory| trajectory.trace_ids.iter().any(|id| holding.contains(&TraceId::parse(id))));
            read.passed_over = (all - read.trajectories.len()) as u64;
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
    /// Counts what was found, and hands the trajectories to the sink.
    pub(crate) fn hand_out(self, summary: &mut ReadSummary, sink: &mut TrajectorySink<'_>) -> io::Result<()> {
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
        summary.passed_over += self.passed_over;
        self.trajectories.into_iter().try_for_each(|trajectory| sink(self.source, trajectory))
    }
}

/// Decodes a group's spans and hangs its log records below them as events.
pub(crate) fn decode_group<'b>(
    entries: &[&SpooledRecord],
    bodies: &[&'b [u8]],
    scopes: &'b [RecordScope],
    limits: &SourceLimits,
) -> (Vec<Span<'b>>, Vec<ExtractionDefect>) {
    let mut spans = Vec::with_capacity(entries.len().min(limits.group.spans));
    let mut logs = Vec::new();
    let mut defects = Vec::new();
    // Exporters send a request again when its answer is lost. Spans are known by their ids; log records have none, and
    // must not make two copies of a span differ.
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
            // It was decoded once already when it came in.
            TelemetrySignal::Log => {
                let log = decode_log(body, &limits.record).ok();
                values_left = values_left.saturating_sub(log.as_ref().map_or(0, |log| log.event.value_count()));
                logs.extend(log);
            }
        }
    }
    logs.sort_by_key(|log| log.event.time_ns);
    // The version that will count gets the events.
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
