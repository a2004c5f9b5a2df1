//! The records of a reading by trace, without assembly, for archives.

use std::collections::HashMap;
use std::io;

use gradus_core::assemble::hash_session;
use gradus_core::span::TraceId;
use gradus_otlp::{RecordScope, TelemetrySignal, decode_span};

use super::RecordIntake;
use crate::records::ReadSummary;
use crate::spool::{SpoolRange, SpoolReader};

/// Maximum number of traces of one session in a group. Some agents give every request the same session, and a shard
/// must stay small; the turn after a cut is graded without those before it.
const MAX_SESSION_TRACES: usize = 1_000;

/// Maximum number of spans of a trace in which its session is searched, from the end: a root span is exported last.
const MAX_SEARCHED_SPANS: usize = 64;

/// A trace with its records, for [`RecordIntake::visit_groups`].
pub(crate) struct TraceRecords<'r> {
    /// The first trace of the group, and its start.
    pub(crate) group: TraceId,
    pub(crate) group_start_ns: u64,
    pub(crate) id: TraceId,
    pub(crate) start_ns: u64,
    /// Set if the source and not the spans states it.
    pub(crate) project: Option<&'r str>,
    records: Vec<(&'r RecordScope, &'r [u8])>,
}

impl TraceRecords<'_> {
    pub(crate) fn record_count(&self) -> u64 {
        self.records.len() as u64
    }

    /// All records as one OTLP export, in the order of arrival.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut export = Vec::new();
        let is_same = |one: &(&RecordScope, &[u8]), other: &(&RecordScope, &[u8])| {
            std::ptr::eq(one.0, other.0) || (one.0.resource == other.0.resource && one.0.name == other.0.name)
        };
        for run in self.records.chunk_by(is_same) {
            let scope = run[0].0;
            let bodies = run.iter().map(|(_, body)| *body);
            // Exports are concatenated: a repeated field of one message.
            export.extend(gradus_otlp::encode_export(&scope.resource.attributes, &scope.name, bodies));
        }
        export
    }
}

impl RecordIntake<'_> {
    /// The second pass without assembly: hands every trace with its records to `visit`. `order` makes a sort key of the
    /// first trace of a group and its start; traces of a group follow each other, by id. The turns of a session are one
    /// group.
    pub(crate) fn visit_groups<K: Ord>(
        mut self,
        order: impl Fn(TraceId, u64) -> K,
        visit: &mut dyn FnMut(TraceRecords<'_>) -> io::Result<()>,
    ) -> io::Result<ReadSummary> {
        let (by_trace, spool, groups) = self.link_groups()?;
        let mut groups = self.unite_sessions(groups, &by_trace, &spool)?;
        groups.sort_by_cached_key(|group| {
            let (start_ns, first) = self.group_head(group);
            order(first, start_ns)
        });
        let mut buffer = Vec::new();
        for mut group in groups {
            let (group_start_ns, first) = self.group_head(&group);
            group.sort_by_key(|trace| self.traces[*trace].id);
            for number in group {
                let trace = &self.traces[number];
                let entries = || by_trace[number].iter().map(|index| &self.entries[*index]);
                let places: Vec<SpoolRange> = entries().map(|entry| entry.place).collect();
                let bodies = spool.fetch(&places, &mut buffer)?;
                let records = entries().zip(bodies).map(|(entry, body)| (&self.scopes[entry.scope as usize], body));
                visit(TraceRecords {
                    group: first,
                    group_start_ns,
                    id: trace.id,
                    start_ns: trace.start_ns,
                    project: self.projects.get(&trace.id).map(AsRef::as_ref),
                    records: records.collect(),
                })?;
            }
        }
        Ok(self.summary)
    }

    /// Merges the groups that share a session, because a turn is graded with those before it.
    fn unite_sessions(
        &self,
        mut groups: Vec<Vec<usize>>,
        by_trace: &[Vec<usize>],
        spool: &SpoolReader,
    ) -> io::Result<Vec<Vec<usize>>> {
        groups.sort_by_cached_key(|group| self.group_head(group));
        let mut open: HashMap<u64, usize> = HashMap::new();
        let mut united: Vec<Vec<usize>> = Vec::with_capacity(groups.len());
        let mut buffer = Vec::new();
        for group in groups {
            let session = self.find_session(&group, by_trace, spool, &mut buffer)?;
            let known = session.and_then(|session| open.get(&session).copied());
            match known.filter(|at| united[*at].len() + group.len() <= MAX_SESSION_TRACES) {
                Some(at) => united[at].extend(group),
                None => {
                    open.extend(session.map(|session| (session, united.len())));
                    united.push(group);
                }
            }
        }
        Ok(united)
    }

    /// The session of a group, as a hash with its project.
    fn find_session(
        &self,
        group: &[usize],
        by_trace: &[Vec<usize>],
        spool: &SpoolReader,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<u64>> {
        for trace in group {
            let entries = by_trace[*trace].iter().rev().map(|index| &self.entries[*index]);
            let spans = entries.filter(|entry| entry.signal == TelemetrySignal::Span).take(MAX_SEARCHED_SPANS);
            for entry in spans {
                let scope = &self.scopes[entry.scope as usize];
                let bodies = spool.fetch(&[entry.place], buffer)?;
                let span = decode_span(bodies[0], &scope.resource, &scope.name, &self.limits.record);
                if let Some(session) = span.ok().as_ref().and_then(hash_session) {
                    return Ok(Some(session));
                }
            }
        }
        Ok(None)
    }
}
