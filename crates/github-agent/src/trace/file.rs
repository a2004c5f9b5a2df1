//! Exports spans to a file: concatenated OTLP requests, which are one valid request again.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prost::Message as _;

use super::AgentTracer;

/// Appends to a file, so that several runs can share one.
#[derive(Debug)]
pub struct FileExporter {
    file: File,
    resource: ResourceAttributesWithSchema,
}

impl FileExporter {
    /// Opens the file, or fails at once if it cannot be written. Only the user can read a new file, since spans
    /// contain what the agent has read.
    pub fn open(path: &Path, traces: &AgentTracer) -> std::io::Result<FileExporter> {
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let resource = ResourceAttributesWithSchema::default();
        let mut exporter = FileExporter { file: options.open(path)?, resource };
        traces.configure_exporter(&mut exporter);
        Ok(exporter)
    }

    /// Appends a request. On failure the file is truncated: half a request would make everything after it unreadable.
    fn append(&self, bytes: &[u8]) -> std::io::Result<()> {
        let before = self.file.metadata()?.len();
        (&self.file).write_all(bytes).inspect_err(|_| {
            // Half a request would make everything after it unreadable.
            let _ = self.file.set_len(before);
        })
    }
}

impl SpanExporter for FileExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let request = ExportTraceServiceRequest { resource_spans };
        self.append(&request.encode_to_vec()).map_err(|error| OTelSdkError::InternalFailure(error.to_string()))
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}
