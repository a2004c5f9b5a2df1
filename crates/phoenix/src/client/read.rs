//! Projects of a Phoenix as trace sources: `phoenix://HOST:PORT/PROJECT`.
//!
//! All pages are downloaded to disk first, the next one while the current one is parsed, and only then passed on: a
//! trajectory is never assembled from half a trace because Phoenix became unreachable. The route is `/spans` and not
//! `/spans/otlpv1`, which rounds times through floating point and is twice as long; otherwise both have the same
//! content.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use gradus_core::span::{AttributeList, AttributeValue, SpanResource};
use gradus_core::span_json::read_phoenix_span;
use gradus_otlp::{ExportRecord, RecordScope, TelemetrySignal, encode_span};
use serde::{Deserialize, Serialize};

use super::address::PhoenixAddress;
use super::error::PhoenixClientError;
use super::page;
use super::paging::{self, PageSize};
use super::rest_client::{PhoenixClient, PhoenixClientSettings};
use super::resumable_download::{DownloadCursor, ResumableDownload};
use gradus_http::percent_encode;
use gradus_ingest::{RecordIntake, SourceError, TraceSelection, TraceSource};

/// A Phoenix to read from.
#[derive(Clone, Debug)]
pub struct PhoenixSource {
    /// As the user wrote it, for messages.
    pub name: String,
    pub address: PhoenixAddress,
    pub settings: PhoenixClientSettings,
    /// Where an interrupted download is stored for resumption; none stores nothing.
    pub state_dir: Option<PathBuf>,
    /// Whether an interrupted download is ignored.
    pub fresh: bool,
    /// Prints a notice to the user.
    pub notify_user: fn(&str),
}

/// A page of `GET /v1/projects`.
#[derive(Deserialize)]
struct RemoteProjectPage {
    data: Vec<RemoteProject>,
    next_cursor: Option<String>,
}

/// Requests use the id, since names may contain slashes.
#[derive(Clone, Deserialize)]
struct RemoteProject {
    id: String,
    name: String,
}

const WHAT: &str = "reading spans";
/// Maximum number of trace ids per request: they are in the URL, whose length servers limit.
const TRACE_IDS_PER_REQUEST: usize = 50;

impl TraceSource for PhoenixSource {
    fn name(&self) -> &str {
        &self.name
    }

    /// Downloads the selected spans of the project, or of all projects, then passes them to the intake. The download
    /// runs on a thread of its own with its own runtime, because sources are synchronous.
    fn read(&self, intake: &mut RecordIntake<'_>) -> Result<(), SourceError> {
        let unreadable = |reason: String| SourceError::Unreadable { name: self.name.clone(), reason };
        let failed = |error: io::Error| unreadable(format!("what was read cannot be kept: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| unreadable(error.to_string()))?;
        let client = PhoenixClient::new(&self.address, &self.settings);
        let client = client.map_err(|error| unreadable(error.to_string()))?;
        let told = |error: PhoenixClientError| SourceError::External(error.to_string());
        let projects = self.select_projects(runtime.block_on(fetch_projects(&client)).map_err(told)?)?;
        intake.begin_input(&self.name);
        let selection = intake.selection().clone();
        let what =
            PhoenixAddress { project: self.address.project.clone(), base: client.base_url().to_owned() }.to_string();
        // The same source with the same selection resumes; another selection is another download.
        let key = gradus_core::stable_digest(format!("{what}\0{}", selection.as_written).as_bytes());
        let mut kept = ResumableDownload::open(self.state_dir.as_deref(), key, &what, self.fresh).map_err(failed)?;
        let plan = match kept.load_plan_or_restart::<DownloadPlan>().map_err(failed)? {
            Some(plan) => {
                self.report_resumption(&kept);
                plan
            }
            None => {
                let made = runtime.block_on(DownloadPlan::build(&client, &projects, &selection));
                let plan = made.map_err(|error| interrupted_error(&error, &kept))?;
                kept.set_plan(&plan).map_err(failed)?;
                plan
            }
        };
        // A rendezvous channel: the next page is requested while the current one is stored, and no more.
        let (sender, pages) = sync_channel(0);
        let (lists, first) = (plan.lists.clone(), kept.cursor().clone());
        let fetching = std::thread::Builder::new().name("phoenix".to_owned()).spawn(move || {
            runtime.block_on(fetch_span_pages(&client, &lists, first, &sender));
        });
        let fetching = fetching.map_err(failed)?;
        store_pages(&pages, &mut kept, intake).map_err(|error| match error {
            DownloadError::Phoenix(error) => interrupted_error(&error, &kept),
            DownloadError::Disk(error) => failed(error),
        })?;
        fetching.join().map_err(|_| unreadable("the reading thread ended".to_owned()))?;
        let scopes: Vec<RecordScope> = plan.projects.iter().map(|name| project_scope(name)).collect();
        let mut current = None;
        // Only now, with all pages on disk, spans reach the intake.
        let handed_on = kept.finish(|project, span| {
            let at = project as usize;
            let (Some(scope), Some(name)) = (scopes.get(at), plan.projects.get(at)) else { return Ok(()) };
            if current != Some(project) {
                intake.begin_project(name);
                current = Some(project);
            }
            intake.add_record(&ExportRecord { signal: TelemetrySignal::Span, scope, body: span })
        });
        handed_on.map_err(failed)
    }
}

impl PhoenixSource {
    /// The project of the address, or all projects if it names none.
    fn select_projects(&self, projects: Vec<RemoteProject>) -> Result<Vec<RemoteProject>, SourceError> {
        let Some(name) = &self.address.project else { return Ok(projects) };
        match projects.iter().find(|known| known.name == *name) {
            Some(project) => Ok(vec![project.clone()]),
            None => {
                let known: Vec<String> = projects.into_iter().map(|project| project.name).collect();
                Err(SourceError::no_project(&self.name, name, &known))
            }
        }
    }

    /// Notifies the user that an interrupted download is resumed, and when it began.
    fn report_resumption(&self, kept: &ResumableDownload) {
        let began = kept.started_at().and_then(|began| began.round(jiff::Unit::Second).ok());
        let began = began.map(|began| format!(" that began at {began}")).unwrap_or_default();
        (self.notify_user)(&format!(
            "{}: taking up the read{began}: {} spans are here already",
            self.name,
            kept.span_count()
        ));
    }
}

/// The error of an interrupted download, with a hint that the same command resumes it.
fn interrupted_error(error: &PhoenixClientError, kept: &ResumableDownload) -> SourceError {
    let kept = match kept.is_resumable() {
        true => format!("; {} spans are kept, and the same command goes on from there", kept.span_count()),
        false => String::new(),
    };
    SourceError::External(format!("{error}{kept}"))
}

/// The lists to request, in order. Stored with the download, so that a resumed one requests the same lists.
#[derive(Serialize, Deserialize)]
struct DownloadPlan {
    projects: Vec<String>,
    lists: Vec<SpanListPath>,
}

/// The path of a list, to which limit and cursor are appended. `project` is an index into the plan.
#[derive(Clone, Serialize, Deserialize)]
struct SpanListPath {
    project: u32,
    path: String,
}

impl DownloadPlan {
    /// Whole projects if everything is selected, otherwise batches of trace ids.
    async fn build(
        client: &PhoenixClient,
        projects: &[RemoteProject],
        selection: &TraceSelection,
    ) -> Result<DownloadPlan, PhoenixClientError> {
        let mut plan = DownloadPlan { projects: Vec::new(), lists: Vec::new() };
        for (number, project) in (0..).zip(projects) {
            plan.projects.push(project.name.clone());
            let spans = format!("/v1/projects/{}/spans?", percent_encode(&project.id));
            if selection.is_everything() {
                plan.lists.push(SpanListPath { project: number, path: spans });
                continue;
            }
            let traces = super::traces::select_trace_ids(client, &project.id, selection).await?;
            plan.lists.extend(traces.chunks(TRACE_IDS_PER_REQUEST).map(|batch| {
                let ids: String = batch.iter().map(|id| format!("trace_id={}&", percent_encode(id))).collect();
                SpanListPath { project: number, path: format!("{spans}{ids}") }
            }));
        }
        Ok(plan)
    }
}

/// Phoenix does not store resources; only the project name is left of them.
fn project_scope(project: &str) -> RecordScope {
    let name = AttributeValue::Str(project.to_owned().into());
    let attributes = AttributeList(vec![("openinference.project.name".into(), name)]);
    RecordScope { resource: Arc::new(SpanResource { attributes }), ..RecordScope::default() }
}

/// Which side failed: the user can retry after a network error, but not after a disk error.
enum DownloadError {
    Phoenix(Box<PhoenixClientError>),
    Disk(io::Error),
}

/// The body of a page and the position behind it.
struct DownloadedPage {
    project: u32,
    body: Vec<u8>,
    next: DownloadCursor,
}

/// Pages from the downloading thread; an error is the last element.
type PageReceiver = Receiver<Result<DownloadedPage, PhoenixClientError>>;

/// Stores the spans of all pages. The position advances only after the spans of a page are stored.
fn store_pages(
    pages: &PageReceiver,
    kept: &mut ResumableDownload,
    intake: &mut RecordIntake<'_>,
) -> Result<(), DownloadError> {
    let mut bytes = Vec::new();
    for page in pages {
        let DownloadedPage { project, body, next } = page.map_err(|error| DownloadError::Phoenix(Box::new(error)))?;
        let mut unreadable = 0;
        let read = page::read_span_page(&body, &mut |span| {
            if !gradus_core::span_json::is_phoenix_span(&span) {
                unreadable += 1;
                return Ok(());
            }
            bytes.clear();
            encode_span(&read_phoenix_span(&span), &mut bytes);
            kept.add_span(project, &bytes)
        });
        // A complete page, since its cursor was found, or not JSON at all.
        read.map_err(|error| DownloadError::Disk(io::Error::other(error)))?;
        if unreadable > 0 {
            intake.bad_record(&format!("{unreadable} elements of a page are no spans"));
        }
        kept.advance(next).map_err(DownloadError::Disk)?;
    }
    Ok(())
}

/// All projects, page by page. The first request has a short retry budget.
async fn fetch_projects(client: &PhoenixClient) -> Result<Vec<RemoteProject>, PhoenixClientError> {
    let (mut found, mut path) = (Vec::new(), "/v1/projects?limit=100".to_owned());
    let mut asking = client.with_short_retry();
    loop {
        let page: RemoteProjectPage = asking.get(&path, WHAT).await?;
        found.extend(page.data);
        let Some(cursor) = page.next_cursor else { return Ok(found) };
        path = format!("/v1/projects?limit=100&cursor={}", percent_encode(&cursor));
        asking = client.clone();
    }
}

/// Requests page after page until the plan is done, an error occurs or the receiver is gone. An error is sent as the
/// last element.
async fn fetch_span_pages(
    client: &PhoenixClient,
    lists: &[SpanListPath],
    mut place: DownloadCursor,
    pages: &SyncSender<Result<DownloadedPage, PhoenixClientError>>,
) {
    let mut size = PageSize::default();
    while let Some(list) = lists.get(place.lists) {
        let page = paging::request_list_page(client, &list.path, place.cursor.as_deref(), &mut size, WHAT).await;
        let page = page.map(|(answer, cursor)| {
            let is_last = cursor.is_none();
            place = DownloadCursor { lists: place.lists + usize::from(is_last), cursor };
            DownloadedPage { project: list.project, body: answer.body, next: place.clone() }
        });
        let is_over = page.is_err();
        if pages.send(page).is_err() || is_over {
            return;
        }
    }
}
