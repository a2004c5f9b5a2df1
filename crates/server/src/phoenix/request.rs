//! Parts of Phoenix requests: query parameters, which may repeat, JSON bodies within the memory budget, and the lookup
//! of projects.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Query};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use gradus_store::ProjectInfo;
use serde::de::DeserializeOwned;

use super::error::{PhoenixApiError, run_short_query};
use super::ids;
use crate::clock::now_ns;
use crate::memory::MemoryLease;
use crate::receive::{parse_body, parse_json};
use crate::state::ServerState;

/// Query parameters in their order. As in Phoenix, unknown ones are ignored.
pub(super) struct PhoenixQueryParams(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for PhoenixQueryParams {
    type Rejection = PhoenixApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<PhoenixQueryParams, PhoenixApiError> {
        let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        query
            .map(|Query(pairs)| PhoenixQueryParams(pairs))
            .map_err(|rejection| PhoenixApiError::unprocessable(rejection.body_text()))
    }
}

impl PhoenixQueryParams {
    /// Returns the last value of a parameter, as FastAPI does. An empty one counts as missing.
    pub(super) fn last_value(&self, name: &str) -> Option<&str> {
        let last = self.0.iter().rev().find(|(key, _)| key == name);
        last.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns all values of a parameter that may repeat, in their order, empty ones included.
    pub(super) fn all_values(&self, name: &str) -> Vec<String> {
        let values = self.0.iter().filter(|(key, _)| key == name);
        values.map(|(_, value)| value.clone()).collect()
    }

    pub(super) fn parse_number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, PhoenixApiError> {
        let Some(text) = self.last_value(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| PhoenixApiError::unprocessable(format!("{name}={text}: give a number")))
    }

    /// Parses `limit` and checks its range, with Phoenix's bounds for each route.
    pub(super) fn parse_limit(&self, default: usize, most: usize) -> Result<usize, PhoenixApiError> {
        let limit = self.parse_number("limit")?.unwrap_or(default);
        if (1..=most).contains(&limit) {
            Ok(limit)
        } else {
            Err(PhoenixApiError::unprocessable(format!("limit={limit}: from 1 to {most}")))
        }
    }

    /// Parses a boolean in any form that Pydantic accepts.
    pub(super) fn parse_flag(&self, name: &str) -> Result<Option<bool>, PhoenixApiError> {
        Ok(Some(match self.last_value(name).map(str::to_ascii_lowercase).as_deref() {
            None => return Ok(None),
            Some("true" | "1" | "on" | "t" | "y" | "yes") => true,
            Some("false" | "0" | "off" | "f" | "n" | "no") => false,
            Some(other) => {
                return Err(PhoenixApiError::unprocessable(format!("{name}={other}: true or false")));
            }
        }))
    }

    /// Parses a time to microseconds since 1970, which is Phoenix's resolution.
    pub(super) fn parse_time_us(&self, name: &str) -> Result<Option<i64>, PhoenixApiError> {
        let Some(text) = self.last_value(name) else { return Ok(None) };
        let read = parse_iso_time_us(text);
        read.map(Some).ok_or_else(|| {
            PhoenixApiError::unprocessable(format!("{name}={text}: write it as 2026-11-15T08:00:00+00:00"))
        })
    }

    /// Reads a parameter with two allowed values: true for the first one.
    pub(super) fn is_first_option(&self, name: &str, ways: [&str; 2], default: &str) -> Result<bool, PhoenixApiError> {
        match self.last_value(name).unwrap_or(default) {
            way if way == ways[0] => Ok(true),
            way if way == ways[1] => Ok(false),
            other => Err(PhoenixApiError::unprocessable(format!("{name}={other}: {} or {}", ways[0], ways[1]))),
        }
    }
}

/// Parses ISO 8601 to microseconds. A time without an offset is UTC, as in Phoenix.
pub(super) fn parse_iso_time_us(text: &str) -> Option<i64> {
    let mut text = text.trim().to_owned();
    // A plus sign that was not escaped in a URL arrives as a space before the offset. A space at the position of the
    // `T` is a separator and stays.
    const TIME_FROM: usize = "2026-01-01T".len();
    if let Some(at) = text.rfind(' ').filter(|at| *at >= TIME_FROM) {
        text.replace_range(at..=at, "+");
    }
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time.as_microsecond());
    }
    let civil: jiff::civil::DateTime = text.parse().ok()?;
    Some(jiff::tz::Offset::UTC.to_timestamp(civil).ok()?.as_microsecond())
}

/// Parses a JSON body on a worker thread. Keep the lease as long as the value.
pub(super) async fn parse_json_body<T: DeserializeOwned + Send + 'static>(
    server: &Arc<ServerState>,
    headers: &HeaderMap,
    body: Body,
) -> Result<(T, MemoryLease), PhoenixApiError> {
    parse_body(server, headers, body, |text, lease| Ok(parse_json(&text, lease)?)).await
}

/// The project that always exists in Phoenix. Here it is stored with the first span; until then reads find it empty.
pub(super) const DEFAULT_PROJECT: &str = "default";
/// Row number of the default project before it is stored. Row numbers start at 1.
const UNSTORED_PROJECT_NO: i64 = 0;

fn unstored_default_project() -> ProjectInfo {
    ProjectInfo {
        no: UNSTORED_PROJECT_NO,
        name: DEFAULT_PROJECT.to_owned(),
        description: Some("Default project".to_owned()),
    }
}

/// Returns the default project if it is not stored and belongs on this page of the list: up to the number `up_to`,
/// with names that contain `part`.
pub(super) fn listed_default_project(
    server: &ServerState,
    up_to: i64,
    part: Option<&str>,
) -> Result<Option<ProjectInfo>, PhoenixApiError> {
    let is_listed = up_to >= UNSTORED_PROJECT_NO
        && part.is_none_or(|part| DEFAULT_PROJECT.contains(&part.to_lowercase()))
        && server.store.project_named(DEFAULT_PROJECT)?.is_none();
    Ok(is_listed.then(unstored_default_project))
}

/// Finds a project by id or name for reading. Never creates one.
pub(super) async fn find_project(server: &Arc<ServerState>, identifier: &str) -> Result<ProjectInfo, PhoenixApiError> {
    let number = ids::decode_numeric_id("Project", identifier);
    // An id that was handed out before the project was stored is still valid.
    let is_default = number == Some(UNSTORED_PROJECT_NO) || identifier == DEFAULT_PROJECT;
    let name = if is_default { DEFAULT_PROJECT } else { identifier }.to_owned();
    let found = run_short_query(server, move |server| {
        Ok(match number.filter(|_| !is_default) {
            Some(number) => server.store.project_numbered(number)?,
            None => server.store.project_named(&name)?,
        })
    })
    .await?;
    match found {
        Some(found) => Ok(found),
        None if is_default => Ok(unstored_default_project()),
        None if number.is_some() => Err(PhoenixApiError::not_found(format!("Project with ID {identifier} not found"))),
        None => Err(PhoenixApiError::not_found(format!("Project with name {identifier} not found"))),
    }
}

/// As [`find_project`] for writing: stores the default project if necessary.
pub(super) async fn find_or_store_project(
    server: &Arc<ServerState>,
    identifier: &str,
) -> Result<ProjectInfo, PhoenixApiError> {
    let found = find_project(server, identifier).await?;
    if found.no != UNSTORED_PROJECT_NO {
        return Ok(found);
    }
    let made = server.store.add_project(found.name, found.description, now_ns())?.wait_async().await?;
    match made {
        Some(made) => Ok(made),
        // Another request stored it meanwhile.
        None => find_project(server, identifier).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_and_without_an_offset() {
        assert_eq!(parse_iso_time_us("2026-01-01T12:00:00.5Z"), Some(1_767_268_800_500_000));
        assert_eq!(parse_iso_time_us("2026-01-01T13:00:00.5+01:00"), Some(1_767_268_800_500_000));
        assert_eq!(parse_iso_time_us("2026-01-01T13:00:00.5 01:00"), Some(1_767_268_800_500_000));
        assert_eq!(parse_iso_time_us("2026-01-01T12:00:00"), Some(1_767_268_800_000_000));
        assert_eq!(parse_iso_time_us("2026-01-01 12:00:00"), Some(1_767_268_800_000_000));
        assert_eq!(parse_iso_time_us("2026-01-01 13:00:00.5 01:00"), Some(1_767_268_800_500_000));
        assert_eq!(parse_iso_time_us("2026-01-01 13:00:00.5+01:00"), Some(1_767_268_800_500_000));
        assert_eq!(parse_iso_time_us("yesterday"), None);
        assert_eq!(parse_iso_time_us("ä ö ü 2026 01 01"), None);
    }

    #[test]
    fn parameters_repeat() {
        let params =
            PhoenixQueryParams(vec![("a".into(), "1".into()), ("a".into(), "2".into()), ("b".into(), String::new())]);
        assert_eq!(params.all_values("a"), ["1", "2"]);
        assert_eq!((params.last_value("a"), params.last_value("b")), (Some("2"), None));
        assert_eq!(params.parse_limit(5, 10).ok(), Some(5));
        assert!(params.parse_flag("a").is_err() && params.parse_time_us("a").is_err());
    }

    #[tokio::test]
    async fn reading_the_default_project_stores_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let running = crate::RunningServer::start_private(folder.path()).await.expect("a server");
        let server = &running.server;
        let stored = || server.store.project_named(DEFAULT_PROJECT).expect("a store").map(|project| project.no);
        let unstored_id = ids::encode_node_id("Project", UNSTORED_PROJECT_NO);
        for identifier in [DEFAULT_PROJECT, unstored_id.as_str()] {
            let found = find_project(server, identifier).await.expect("a project");
            assert_eq!((found.no, found.name.as_str()), (UNSTORED_PROJECT_NO, DEFAULT_PROJECT));
        }
        let listed = |part| listed_default_project(server, i64::MAX, part).expect("a store").is_some();
        assert!(listed(None) && listed(Some("FAULT")) && !listed(Some("shop")));
        assert_eq!(stored(), None);
        // Something is written to it.
        let written = find_or_store_project(server, DEFAULT_PROJECT).await.expect("a project");
        assert_eq!(stored(), Some(written.no));
        assert!(written.no != UNSTORED_PROJECT_NO && !listed(None));
        // An id from before still finds it.
        assert_eq!(find_project(server, &unstored_id).await.expect("a project").no, written.no);
        assert_eq!(find_or_store_project(server, &unstored_id).await.expect("a project").no, written.no);
        running.stop().await;
    }
}
