//! Outcomes over OTLP/HTTP, for any backend. Each outcome becomes two records: an OpenInference EVALUATOR span in a
//! trace of its own, which has a span link to the judged span, and a log record of that span, the event
//! `gen_ai.evaluation.result` of the OpenTelemetry GenAI semantic conventions. Backends that show only one of the two
//! signals get the verdict either way.

use std::borrow::Cow;
use std::time::Duration;

use gradus_core::span::{AttributeList, AttributeValue, Span, SpanEvent, SpanId, SpanStatus, StatusCode, TraceId};
use gradus_otlp::{LogEvent, encode_export, encode_link, encode_log, encode_span, partial_success};
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap};

use crate::config::EnvironmentVariables;
use gradus_eval::annotation::{OutcomeAnnotation, OutcomeTarget};
use gradus_http::{HttpFailure, HttpResponse, RetryBudget, response_message};

/// Why a backend did not accept a request. Each message is one line: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OtlpExportError {
    #[error("{url}: {reason}; is this where OTLP over HTTP is received?")]
    HttpFailure { url: String, reason: HttpFailure },
    #[error("{url}: it refused the key ({status}: {said}); headers go into OTEL_EXPORTER_OTLP_HEADERS")]
    Unauthorized { url: String, status: u16, said: String },
    #[error("{url}: nothing receives OTLP there ({status}); give the address without /v1/traces")]
    NoRoute { url: String, status: u16 },
    #[error("{url}: it did not take what was sent ({status}: {said})")]
    Refused { url: String, status: u16, said: String },
}

/// Why an exporter cannot be made of the options and the environment; nothing was sent yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExporterSettingsError {
    #[error("--log-to-otlp: {0}")]
    Address(#[from] OtlpAddressError),
    #[error("OTEL_EXPORTER_OTLP_HEADERS: {reason}")]
    Headers { reason: String },
    #[error(transparent)]
    Client(#[from] reqwest::Error),
}

/// An address that is no HTTP address of an OTLP receiver. The message does not repeat the address, since people put
/// keys into addresses; callers put the name of their option before it.
#[derive(Debug, thiserror::Error)]
#[error("write it as http://HOST:4318; headers go into OTEL_EXPORTER_OTLP_HEADERS")]
pub(crate) struct OtlpAddressError;

/// The result of one accepted batch. OTLP allows a backend to accept a request and reject some of its records
/// (`partial_success`).
#[derive(Debug, Default)]
pub(crate) struct OtlpBatchResult {
    /// Outcomes whose span was accepted, and whose event was accepted or not sent.
    pub(crate) taken: usize,
    /// Outcomes of which the backend rejected the span or the event.
    pub(crate) rejected: usize,
    /// Why records were rejected, with their number.
    pub(crate) reasons: Vec<String>,
    /// Messages of a backend that accepted all records, which OTLP allows as well.
    pub(crate) warnings: Vec<String>,
}

/// Collects outcomes of one project and sends them in batches. The project is an attribute of the OTLP resource, so one
/// request can be about one project only: callers send before they add an outcome of another one (`must_send_before`).
#[derive(Debug)]
pub(crate) struct VerdictExporter {
    http: reqwest::Client,
    base: String,
    headers: HeaderMap,
    retry_budget: RetryBudget,
    run_id: String,
    time_ns: u64,
    project: Option<String>,
    waiting: Vec<OutcomeAnnotation>,
    logs: LogSupport,
}

/// Whether a backend accepts log records at all; many accept spans only. The first answer decides.
#[derive(Debug, PartialEq, Eq)]
enum LogSupport {
    Untried,
    Taken,
    /// The status and message of the refusal. Log records are not sent any more.
    Refused(String),
}

/// Maximum number of outcomes of one request. It bounds the size: an explanation can be thousands of characters long.
const MAX_BATCH_OUTCOMES: usize = 200;
/// Timeout for the connection, and between two reads of a response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one request is retried, unless `retry_s` of the settings says otherwise.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60);
/// Maximum size of a response in bytes; an OTLP response is a few bytes.
const MAX_OTLP_RESPONSE_BYTES: usize = 1 << 20;
/// Name of the instrumentation scope, and `service.name` of the resource.
const SCOPE: &str = "gradus";

impl VerdictExporter {
    /// Creates an exporter. `time` is the RFC 3339 time of the verdicts. It is the time of the run and not of the
    /// export, so that sending the same run twice gives the same records; an unreadable time counts as 0.
    pub(crate) fn new(
        url: &str,
        environment: &EnvironmentVariables,
        retry_s: Option<f64>,
        run_id: &str,
        time: &str,
    ) -> Result<VerdictExporter, ExporterSettingsError> {
        let base = parse_base_address(url)?;
        let headers = gradus_http::parse_header_list(environment.otlp_headers.as_ref())
            .map_err(|error| ExporterSettingsError::Headers { reason: error.to_string() })?;
        let http = gradus_http::http_client_builder()
            .connect_timeout(CONNECTION_TIMEOUT)
            .read_timeout(CONNECTION_TIMEOUT)
            .build();
        let time: Option<jiff::Timestamp> = time.parse().ok();
        let give_up_after = retry_s.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(VerdictExporter {
            http: http?,
            base,
            headers,
            retry_budget: RetryBudget::new(give_up_after.unwrap_or(GIVE_UP_AFTER)),
            run_id: run_id.to_owned(),
            time_ns: time.and_then(|time| u64::try_from(time.as_nanosecond()).ok()).unwrap_or_default(),
            project: None,
            waiting: Vec::new(),
            logs: LogSupport::Untried,
        })
    }

    /// Returns why no log records are sent, once the backend has refused them; `None` before the first response.
    pub(crate) fn logs_refused_reason(&self) -> Option<&str> {
        match &self.logs {
            LogSupport::Refused(why) => Some(why),
            LogSupport::Untried | LogSupport::Taken => None,
        }
    }

    /// Whether the pending outcomes must be sent before one of this project is added: the batch is full, or it is of
    /// another project.
    pub(crate) fn must_send_before(&self, project: Option<&str>) -> bool {
        !self.waiting.is_empty() && (self.project.as_deref() != project || self.waiting.len() >= MAX_BATCH_OUTCOMES)
    }

    /// Returns a copy of the unsent outcomes, for the list of undelivered outcomes if the export is interrupted.
    pub(crate) fn pending(&self) -> Vec<OutcomeAnnotation> {
        self.waiting.clone()
    }

    /// Drops the unsent outcomes.
    pub(crate) fn clear_pending(&mut self) {
        self.waiting.clear();
    }

    /// Adds an outcome to the batch, which must be empty or of the same project.
    pub(crate) fn add(&mut self, project: Option<&str>, annotation: OutcomeAnnotation) {
        self.project = project.map(str::to_owned);
        self.waiting.push(annotation);
    }

    /// Checks that the backend answers, with an empty export request. It retries for three seconds at most: a wrong
    /// address should be reported before a run begins, not after a minute.
    pub(crate) async fn probe(&self) -> Result<(), OtlpExportError> {
        let hasty = RetryBudget {
            give_up_after: Duration::from_secs(3).min(self.retry_budget.give_up_after),
            ..self.retry_budget
        };
        self.post("/v1/traces", Vec::new(), hasty).await.map(drop)
    }

    /// Sends the batch: first all spans, then all log records. An error comes after the retries are used up, so further
    /// sends would fail as well; the unsent outcomes are returned with it.
    pub(crate) async fn send(&mut self) -> Result<OtlpBatchResult, (OtlpExportError, Vec<OutcomeAnnotation>)> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(OtlpBatchResult::default());
        }
        let records: Vec<(Vec<u8>, Vec<u8>)> =
            waiting.iter().filter_map(|one| encode_annotation(one, &self.run_id, self.time_ns)).collect();
        let mut resource = vec![text_attribute("service.name", SCOPE)];
        if let Some(project) = &self.project {
            resource.push(text_attribute("openinference.project.name", project));
        }
        let resource = AttributeList(resource);
        let mut sent = OtlpBatchResult::default();
        let spans = encode_export(&resource, SCOPE, records.iter().map(|(span, _)| span.as_slice()));
        match self.post("/v1/traces", spans, self.retry_budget).await {
            Ok(answer) => sent.record_partial_success(&answer, "spans", waiting.len()),
            Err(error) => return Err((error, waiting)),
        }
        if self.logs_refused_reason().is_none() {
            let logs = encode_export(&resource, SCOPE, records.iter().map(|(_, log)| log.as_slice()));
            match (self.post("/v1/logs", logs, self.retry_budget).await, &self.logs) {
                (Ok(answer), _) => {
                    self.logs = LogSupport::Taken;
                    sent.record_partial_success(&answer, "events", waiting.len());
                }
                (Err(error), _) if error.is_retryable() => return Err((error, waiting)),
                // The backend has no logs, which loses nothing: the spans hold the same verdicts.
                (Err(error), LogSupport::Untried) => self.logs = LogSupport::Refused(error.status_and_message()),
                // It accepted log records before, so these records are at fault.
                (Err(error), _) => {
                    sent.rejected = waiting.len();
                    sent.reasons.push(format!("{} events: {error}", waiting.len()));
                }
            }
        }
        sent.taken = waiting.len() - sent.rejected;
        Ok(sent)
    }

    /// Posts protobuf, with retries for connection errors and retryable statuses. 404, 405 and 501 mean that the signal
    /// is not supported at this address.
    async fn post(
        &self,
        path: &str,
        body: Vec<u8>,
        retry_budget: RetryBudget,
    ) -> Result<HttpResponse, OtlpExportError> {
        let url = format!("{}{path}", self.base);
        let request = || {
            let request = self.http.post(&url).headers(self.headers.clone());
            request.header(CONTENT_TYPE, "application/x-protobuf").body(body.clone())
        };
        let answer = retry_budget
            .send_with_retries(MAX_OTLP_RESPONSE_BYTES, request)
            .await
            .map_err(|reason| OtlpExportError::HttpFailure { url: url.clone(), reason })?;
        let status = answer.status.as_u16();
        match status {
            200..=299 => Ok(answer),
            401 | 403 => Err(OtlpExportError::Unauthorized { url, status, said: response_message(&answer.body) }),
            404 | 405 | 501 => Err(OtlpExportError::NoRoute { url, status }),
            _ => Err(OtlpExportError::Refused { url, status, said: response_message(&answer.body) }),
        }
    }
}

/// Returns the address that `/v1/traces` and `/v1/logs` are added to; one that already ends in them is accepted.
/// Addresses with a user, a password or a query are refused, since such keys would appear in messages and in the
/// manifest of the run.
pub(crate) fn parse_base_address(url: &str) -> Result<String, OtlpAddressError> {
    let read = Url::parse(url).map_err(|_| OtlpAddressError)?;
    let has_key = !read.username().is_empty() || read.password().is_some() || read.query().is_some();
    if !matches!(read.scheme(), "http" | "https") || !read.has_host() || has_key {
        return Err(OtlpAddressError);
    }
    let path = read.path().trim_end_matches('/');
    let path = path.strip_suffix("/v1/traces").or(path.strip_suffix("/v1/logs")).unwrap_or(path);
    Ok(format!("{}{path}", read.origin().ascii_serialization()))
}

impl OtlpBatchResult {
    /// Adds the `partial_success` of an answer to `of` spans or events. An outcome is one of each, so the larger number
    /// of rejections counts and not the sum. A backend that reports more rejections than records is not believed.
    fn record_partial_success(&mut self, answer: &HttpResponse, what: &str, of: usize) {
        let Some(partial) = partial_success(&answer.body) else { return };
        let said = gradus_core::visible::printable_line(&partial.reason.unwrap_or_default());
        let rejected = usize::try_from(partial.count).unwrap_or(usize::MAX).min(of);
        if rejected == 0 {
            self.warnings.push(said);
            return;
        }
        self.rejected = self.rejected.max(rejected);
        self.reasons.push(format!("{rejected} {what}: {said}"));
    }
}

impl OtlpExportError {
    /// Whether the same request may succeed later: network errors, 429 and all statuses from 500.
    fn is_retryable(&self) -> bool {
        match self {
            OtlpExportError::HttpFailure { .. } => true,
            OtlpExportError::Refused { status, .. } => *status >= 500 || *status == 429,
            OtlpExportError::Unauthorized { .. } | OtlpExportError::NoRoute { .. } => false,
        }
    }

    fn status_and_message(&self) -> String {
        match self {
            OtlpExportError::HttpFailure { reason, .. } => reason.to_string(),
            OtlpExportError::NoRoute { status, .. } => status.to_string(),
            OtlpExportError::Unauthorized { status, said, .. } | OtlpExportError::Refused { status, said, .. } => {
                format!("{status}: {said}")
            }
        }
    }
}

fn text_attribute<'a>(key: &'static str, text: &'a str) -> (Cow<'a, str>, AttributeValue<'a>) {
    (Cow::Borrowed(key), AttributeValue::Str(Cow::Borrowed(text)))
}

/// Encodes an outcome as a span and as a log record, both in protobuf. The trace id is a digest of run and
/// trajectory; the span id and `log.record.uid` are digests of run, judged span, evaluator and identifier. A backend
/// that deduplicates by id therefore keeps one copy of a repeated export. `None` for an annotation of a whole trace,
/// which has no span to link.
fn encode_annotation(annotation: &OutcomeAnnotation, run_id: &str, time_ns: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    let OutcomeTarget::Span { trace_id, span_id } = &annotation.target else { return None };
    let (trace, span) = (TraceId::parse(trace_id), SpanId::parse(span_id));
    let own = |parts: &[&str]| gradus_core::stable_digest(parts.join("\0").as_bytes());
    let carrier_trace = TraceId(own(&["gradus carrier", run_id, &annotation.subject.trajectory_id]).max(1));
    let id = own(&[run_id, trace_id, span_id, &annotation.name, &annotation.identifier]);
    let metadata = serde_json::to_string(&annotation.metadata).unwrap_or_default();
    let kind = annotation.metadata.get("outcome").and_then(serde_json::Value::as_str).unwrap_or_default();
    let has_failed = kind == "failed";
    let body = Span {
        trace_id: carrier_trace,
        span_id: SpanId((id as u64).max(1)),
        name: Cow::Owned(format!("evaluate {}", annotation.name)),
        start_ns: time_ns,
        end_ns: time_ns,
        status: SpanStatus {
            code: if has_failed { StatusCode::Error } else { StatusCode::Unset },
            message: Cow::Borrowed(annotation.explanation.as_deref().filter(|_| has_failed).unwrap_or_default()),
        },
        attributes: build_span_attributes(annotation, &metadata),
        ..Span::default()
    };
    let (mut encoded_span, mut encoded_log) = (Vec::new(), Vec::new());
    encode_span(&body, &mut encoded_span);
    encode_link(trace, span, &mut encoded_span);
    let uid = format!("{id:032x}");
    let event = SpanEvent {
        name: Cow::Borrowed("gen_ai.evaluation.result"),
        time_ns,
        attributes: build_event_attributes(annotation, kind, &uid),
        body: None,
    };
    encode_log(&LogEvent { trace_id: trace, span_id: span, event }, &mut encoded_log);
    Some((encoded_span, encoded_log))
}

/// Builds the attributes of the EVALUATOR span: OpenInference's `evaluations.N.evaluation.*`.
fn build_span_attributes<'a>(annotation: &'a OutcomeAnnotation, metadata: &'a str) -> AttributeList<'a> {
    let mut attributes = vec![
        text_attribute("openinference.span.kind", "EVALUATOR"),
        text_attribute("evaluations.0.evaluation.name", &annotation.name),
        text_attribute("evaluations.0.evaluation.annotator_kind", annotation.annotator.name()),
        text_attribute("evaluations.0.evaluation.identifier", &annotation.identifier),
        text_attribute("evaluations.0.evaluation.metadata", metadata),
    ];
    if let Some(label) = &annotation.label {
        attributes.push(text_attribute("evaluations.0.evaluation.label", label));
    }
    if let Some(score) = annotation.score {
        attributes.push((Cow::Borrowed("evaluations.0.evaluation.score"), AttributeValue::Double(score)));
    }
    if let Some(explanation) = &annotation.explanation {
        attributes.push(text_attribute("evaluations.0.evaluation.explanation", explanation));
    }
    AttributeList(attributes)
}

/// Builds the attributes of the `gen_ai.evaluation.result` event, by the GenAI semantic conventions; `gradus.outcome`
/// is our own, because they have no term for a question that does not apply.
fn build_event_attributes<'a>(annotation: &'a OutcomeAnnotation, outcome: &'a str, uid: &'a str) -> AttributeList<'a> {
    let mut attributes = vec![
        text_attribute("gen_ai.evaluation.name", &annotation.name),
        text_attribute("gradus.outcome", outcome),
        text_attribute("log.record.uid", uid),
    ];
    if let Some(label) = &annotation.label {
        attributes.push(text_attribute("gen_ai.evaluation.score.label", label));
    }
    if let Some(score) = annotation.score {
        attributes.push((Cow::Borrowed("gen_ai.evaluation.score.value"), AttributeValue::Double(score)));
    }
    if let Some(explanation) = &annotation.explanation {
        attributes.push(text_attribute("gen_ai.evaluation.explanation", explanation));
    }
    if outcome == "failed" {
        attributes.push(text_attribute("error.type", "evaluation_failed"));
    }
    AttributeList(attributes)
}
