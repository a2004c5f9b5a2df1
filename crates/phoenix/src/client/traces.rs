//! Selects traces of a project by time and root name on the server, so that only spans of wanted traces are
//! transferred.

use std::collections::HashSet;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::error::PhoenixClientError;
use super::paging::{self, PageSize};
use super::rest_client::PhoenixClient;
use gradus_http::percent_encode;
use gradus_ingest::TraceSelection;

/// A page of `/traces` or `/spans`; attributes are skipped without being parsed into memory.
#[derive(Deserialize)]
struct RemoteTracePage {
    data: Vec<RemoteTraceEntry>,
}

/// An element of either list: a trace has `trace_id`, a span has it in `context`.
#[derive(Deserialize)]
struct RemoteTraceEntry {
    trace_id: Option<String>,
    context: Option<RemoteSpanContext>,
    #[serde(rename = "attributes")]
    _attributes: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct RemoteSpanContext {
    trace_id: String,
}

const WHAT: &str = "choosing traces";

/// Ids of the selected traces, in Phoenix's order. Without root names the list of traces is used, since it also has
/// traces whose root span never arrived. Old versions lack that route; root spans are listed instead.
pub(super) async fn select_trace_ids(
    client: &PhoenixClient,
    project_id: &str,
    selection: &TraceSelection,
) -> Result<Vec<String>, PhoenixClientError> {
    let project = format!("/v1/projects/{}", percent_encode(project_id));
    let range = format_time_range(selection);
    if selection.root_names.is_empty() {
        // The list of traces has start times, also of traces whose root span never arrived.
        match list_trace_ids(client, &format!("{project}/traces?{range}")).await {
            Err(PhoenixClientError::NoRoute { .. }) => {}
            found => return found,
        }
    }
    let names: Vec<String> =
        selection.root_names.iter().map(|name| format!("name={}&", percent_encode(name))).collect();
    list_trace_ids(client, &format!("{project}/spans?parent_id=null&{range}{}", names.concat())).await
}

/// All pages of a list, without duplicates. Known ids are kept as digests to save memory.
async fn list_trace_ids(client: &PhoenixClient, path: &str) -> Result<Vec<String>, PhoenixClientError> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    let (mut size, mut cursor) = (PageSize::default(), None);
    loop {
        let (answer, next) = paging::request_list_page(client, path, cursor.as_deref(), &mut size, WHAT).await?;
        let page: RemoteTracePage =
            serde_json::from_slice(&answer.body).map_err(|_| client.unexpected_response_error(&answer, path, WHAT))?;
        for entry in page.data {
            let id = entry.trace_id.or(entry.context.map(|context| context.trace_id));
            found.extend(id.filter(|id| known.insert(gradus_core::stable_digest(id.as_bytes()))));
        }
        if next.is_none() {
            return Ok(found);
        }
        cursor = next;
    }
}

/// The time range as query parameters, each with `&` behind it. Phoenix has microseconds, so bounds are rounded
/// outwards; spans that are then too early or too late are filtered after the download.
fn format_time_range(selection: &TraceSelection) -> String {
    let parameter = |name: &str, ns: Option<u64>| {
        let time = ns.and_then(|ns| Timestamp::from_nanosecond(i128::from(ns)).ok())?;
        Some(format!("{name}={}&", percent_encode(&time.to_string())))
    };
    let from = selection.from_ns.map(|ns| ns / 1000 * 1000);
    let to = selection.to_ns.map(|ns| ns.div_ceil(1000).saturating_mul(1000));
    let both = [parameter("start_time", from), parameter("end_time", to)];
    both.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_moved_outwards_to_microseconds() {
        let selection = TraceSelection {
            from_ns: Some(1_700_000_000_000_000_999),
            to_ns: Some(1_700_000_001_000_000_001),
            ..TraceSelection::default()
        };
        assert_eq!(
            format_time_range(&selection),
            "start_time=2023-11-14T22%3A13%3A20Z&end_time=2023-11-14T22%3A13%3A21.000001Z&"
        );
        assert_eq!(format_time_range(&TraceSelection::default()), "");
    }
}
