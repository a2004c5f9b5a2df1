//! What tests of the store work with: a store in a folder of its own, and records that are quickly written down.
//!
//! A body is a line a span: its id in hexadecimal, and a text.

#![allow(clippy::unwrap_used, dead_code, unreachable_pub)] // Each test file uses its part.

mod every_table;

use std::sync::Arc;

use gradus_core::span::{SpanId, TraceId};
use gradus_store::*;
use tempfile::TempDir;

pub struct Lab {
    pub folder: TempDir,
    pub store: Store,
}

/// The PostgreSQL server on which the tests of both engines run, instead of SQLite: an address without a database.
/// `scripts/test-postgres` starts one and sets it.
pub const SERVER_VARIABLE: &str = "GRADUS_TEST_POSTGRES";

impl Lab {
    pub fn new() -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let store = open_store(&folder);
        Lab { folder, store }
    }

    pub fn reopened(self) -> Lab {
        let Lab { folder, store } = self;
        drop(store);
        let store = open_store(&folder);
        Lab { folder, store }
    }

    pub fn ingest(&self, chunks: Vec<TraceChunk>, now_ns: i64) -> IngestCounts {
        self.store.ingest(chunks, now_ns).unwrap().wait().unwrap()
    }

    pub fn trace(&self, id: u128) -> TraceRow {
        self.store.trace(TraceId(id)).unwrap().unwrap()
    }

    pub fn assemble(&self, trace_group: i64, records: Vec<TrajectoryRecord>, now_ns: i64) -> usize {
        let due_ns = self.store.trace_group(trace_group).unwrap().due_ns;
        self.store
            .store_assembled_groups(vec![AssembledTraceGroup { trace_group, due_ns, records }], now_ns)
            .unwrap()
            .wait()
            .unwrap()
    }

    /// The numbers of trace groups that are complete.
    pub fn ready(&self, now_ns: i64, quiet_ns: i64, give_up_ns: i64, limit: usize) -> Vec<i64> {
        let query = ReadyQuery { now_ns, quiet_ns, give_up_ns, after_project: 0, limit };
        self.store.ready_trace_groups(query).unwrap().into_iter().map(|ready| ready.trace_group).collect()
    }

    /// Every page, one behind the other.
    pub fn list(&self, filter: &TraceFilter, limit: usize) -> Vec<u128> {
        let (mut ids, mut cursor) = (Vec::new(), None);
        for _ in 0..10_000 {
            let page = self.store.traces(filter, cursor, limit).unwrap();
            assert!(page.traces.len() <= limit);
            ids.extend(page.traces.iter().map(|trace| trace.trace_id.0));
            let Some(next) = page.next else { return ids };
            // It survives being written down.
            cursor = Some(next.to_string().parse().unwrap());
            assert_eq!(cursor, Some(next));
        }
        panic!("a list without an end");
    }

    /// A connection to the database, beside the store; `None` on SQLite.
    pub fn database(&self) -> Option<postgres::Client> {
        match location(self.folder.path()) {
            StoreLocation::Folder(_) => None,
            StoreLocation::Postgres(address) => Some(postgres::Client::connect(&address, postgres::NoTls).unwrap()),
        }
    }

    /// Object ids of the partitions of days; none on SQLite.
    pub fn partitions(&self) -> Vec<u32> {
        let Some(mut client) = self.database() else { return Vec::new() };
        let rows = client.query("SELECT oid FROM pg_class WHERE relname ~ '^span_day_[0-9]+$' ORDER BY relname", &[]);
        rows.unwrap().iter().map(|row| row.get(0)).collect()
    }

    pub fn assert_clean(&self) -> CheckReport {
        let report = self.store.check(&mut |block| span_ids(&block.export)).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        report
    }
}

/// The store of a folder: in it, or in a database with its name.
pub fn open_store(folder: &TempDir) -> Store {
    match std::env::var(SERVER_VARIABLE) {
        Ok(server) => open_in_database(&server, folder),
        Err(_) => Store::open(folder.path(), StoreOptions::default()).unwrap(),
    }
}

/// Where the store of a folder is.
pub fn location(folder: &std::path::Path) -> StoreLocation {
    match std::env::var(SERVER_VARIABLE) {
        Ok(server) => StoreLocation::Postgres(format!("{server}/{}", database_name(folder))),
        Err(_) => StoreLocation::Folder(folder.to_owned()),
    }
}

fn database_name(folder: &std::path::Path) -> String {
    folder.file_name().unwrap().to_str().unwrap().replace('.', "t").to_lowercase()
}

#[cfg(feature = "postgres")]
fn open_in_database(server: &str, folder: &TempDir) -> Store {
    let name = database_name(folder.path());
    let mut client = postgres::Client::connect(&format!("{server}/postgres"), postgres::NoTls).unwrap();
    let is_there = client.query_opt("SELECT 1 FROM pg_database WHERE datname = $1", &[&name]).unwrap().is_some();
    if !is_there {
        client.batch_execute(&format!("CREATE DATABASE {name}")).unwrap();
    }
    Store::open_at(&StoreLocation::Postgres(format!("{server}/{name}")), StoreOptions::default()).unwrap()
}

#[cfg(not(feature = "postgres"))]
fn open_in_database(_: &str, _: &TempDir) -> Store {
    panic!("{SERVER_VARIABLE} needs the feature postgres")
}

/// The ids in a body.
pub fn span_ids(export: &[u8]) -> Result<Vec<SpanId>, String> {
    let text = std::str::from_utf8(export).map_err(|error| error.to_string())?;
    let id = |line: &str| {
        let (id, _) = line.split_once(' ').ok_or("a line without an id")?;
        u64::from_str_radix(id, 16).map(SpanId).map_err(|error| error.to_string())
    };
    text.lines().map(id).collect()
}

/// A span to be sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub id: u64,
    pub text: String,
    pub has_ended: bool,
    pub is_error: bool,
}

pub fn span(id: u64) -> Sent {
    Sent { id, text: "a step".to_owned(), has_ended: true, is_error: false }
}

impl Sent {
    pub fn text(mut self, text: &str) -> Sent {
        self.text = text.to_owned();
        self
    }
    pub fn running(mut self) -> Sent {
        self.has_ended = false;
        self
    }
    pub fn error(mut self) -> Sent {
        self.is_error = true;
        self
    }
}

pub fn chunk(trace: u128, project: &str, start_ns: u64, spans: &[Sent]) -> TraceChunk {
    let lines: Vec<String> = spans.iter().map(|span| format!("{:x} {}\n", span.id, span.text)).collect();
    let export = lines.concat();
    let mut chunk = TraceChunk::new(TraceId(trace), Arc::from(project), BlockSignal::Spans, export.as_bytes());
    chunk.start_ns = start_ns;
    chunk.end_ns = start_ns.saturating_add(1000);
    chunk.name = format!("span {:x}", spans.first().map_or(0, |span| span.id));
    for (span, line) in spans.iter().zip(&lines) {
        let seen = format!("{line}{}{}", span.has_ended, span.is_error);
        chunk.spans.push(SpanKey {
            span_id: SpanId(span.id),
            digest: gradus_core::stable_digest(seen.as_bytes()) as u64,
            has_ended: span.has_ended,
            is_error: span.is_error,
        });
    }
    chunk
}

pub fn rooted(mut chunk: TraceChunk, name: &str, has_ended: bool) -> TraceChunk {
    chunk.root = Some(RootSpan { name: name.to_owned(), has_ended });
    chunk
}

pub fn linked(mut chunk: TraceChunk, links: &[(LinkKind, u64)]) -> TraceChunk {
    chunk.links = links.to_vec();
    chunk
}

pub fn trajectory(id: &str, trace: u128, start_ns: i64) -> TrajectoryRecord {
    TrajectoryRecord {
        trajectory_id: id.to_owned(),
        trace_id: TraceId(trace),
        start_ns,
        end_ns: start_ns + 1000,
        agent: "planner".to_owned(),
        version: "1".to_owned(),
        model: "gpt".to_owned(),
        query: "how far is it?".to_owned(),
        steps: 2,
        tools: vec!["search".to_owned()],
        json: format!(r#"{{"id":"{id}"}}"#).into_bytes(),
        words: "how far is it".to_owned(),
        ..TrajectoryRecord::default()
    }
}

pub fn scored(evaluator: &str, step: Option<u32>, label: &str, score: f64, tool: &str) -> OutcomeRecord {
    OutcomeRecord {
        evaluator: evaluator.to_owned(),
        step,
        kind: RecordedKind::Scored,
        label: Some(label.to_owned()),
        score: Some(score),
        is_wrong: score < 1.0,
        tool: tool.to_owned(),
        run: "run".to_owned(),
        line: format!(r#"{{"evaluator":"{evaluator}","score":{score}}}"#),
        failure_group: None,
    }
}

pub fn unscored(evaluator: &str, step: Option<u32>, kind: RecordedKind, tool: &str) -> OutcomeRecord {
    OutcomeRecord { kind, label: None, score: None, is_wrong: false, ..scored(evaluator, step, "", 0.0, tool) }
}
