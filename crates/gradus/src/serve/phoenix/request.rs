//! What a request says: parameters, which may repeat, and bodies of JSON, within the memory budget.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Query};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use gradus_store::ProjectInfo;
use serde::de::DeserializeOwned;

use super::error::{PhoenixError, blocking};
use super::ids;
use crate::serve::memory::MemoryLease;
use crate::serve::receive::{parse_body, parse_json};
use crate::serve::state::{Server, now_ns};

/// Query parameters. As with Phoenix, those that are not known are passed over.
pub(super) struct Params(Vec<(String, String)>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = PhoenixError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Params, PhoenixError> {
        let query = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        query
            .map(|Query(pairs)| Params(pairs))
            .map_err(|rejection| PhoenixError::invalid(rejection.body_text()))
    }
}

impl Params {
    /// The last of those with this name counts; an empty one is as good as none.
    pub(super) fn one(&self, name: &str) -> Option<&str> {
        let last = self.0.iter().rev().find(|(key, _)| key == name);
        last.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(super) fn all(&self, name: &str) -> Vec<String> {
        let values = self.0.iter().filter(|(key, _)| key == name);
        values.map(|(_, value)| value.clone()).collect()
    }

    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, PhoenixError> {
        let Some(text) = self.one(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| PhoenixError::invalid(format!("{name}={text}: give a number")))
    }

    pub(super) fn limit(&self, default: usize, most: usize) -> Result<usize, PhoenixError> {
        let limit = self.number("limit")?.unwrap_or(default);
        if (1..=most).contains(&limit) {
            Ok(limit)
        } else {
            Err(PhoenixError::invalid(format!("limit={limit}: from 1 to {most}")))
        }
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, PhoenixError> {
        Ok(Some(match self.one(name).map(str::to_ascii_lowercase).as_deref() {
            None => return Ok(None),
            Some("true" | "1" | "on" | "t" | "y" | "yes") => true,
            Some("false" | "0" | "off" | "f" | "n" | "no") => false,
            Some(other) => return Err(PhoenixError::invalid(format!("{name}={other}: true or false"))),
        }))
    }

    /// Microseconds since 1970.
    pub(super) fn time(&self, name: &str) -> Result<Option<i64>, PhoenixError> {
        let Some(text) = self.one(name) else { return Ok(None) };
        let read = read_time(text);
        read.map(Some).ok_or_else(|| {
            PhoenixError::invalid(format!("{name}={text}: write it as 2026-11-15T08:00:00+00:00"))
        })
    }

    /// True for the first way that is named, false for the second.
    pub(super) fn choice(&self, name: &str, ways: [&str; 2], default: &str) -> Result<bool, PhoenixError> {
        match self.one(name).unwrap_or(default) {
            way if way == ways[0] => Ok(true),
            way if way == ways[1] => Ok(false),
            other => Err(PhoenixError::invalid(format!("{name}={other}: {} or {}", ways[0], ways[1]))),
        }
    }
}

/// A time in ISO 8601, in microseconds; one without an offset is UTC.
pub(super) fn read_time(text: &str) -> Option<i64> {
    let mut text = text.trim().to_owned();
    // A plus sign that was not escaped in an address arrives as a space, and stands before the offset; a space between the
    // day and the time is one.
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

/// Reads a body of JSON, on a thread for that. What it holds in memory is released with the lease.
pub(super) async fn json<T: DeserializeOwned + Send + 'static>(
    server: &Arc<Server>,
    headers: &HeaderMap,
    body: Body,
) -> Result<(T, MemoryLease), PhoenixError> {
    parse_body(server, headers, body, |text, lease| Ok(parse_json(&text, lease)?)).await
}

/// The project that Phoenix always has.
pub(super) const DEFAULT_PROJECT: &str = "default";

/// Finds a project by its id or its name.
pub(super) async fn project(server: &Arc<Server>, identifier: &str) -> Result<ProjectInfo, PhoenixError> {
    let wanted = identifier.to_owned();
    let found = blocking(server, move |server| {
        Ok(match ids::decode_number("Project", &wanted) {
            Some(number) => server.store.project_numbered(number)?,
            None => server.store.project_named(&wanted)?,
        })
    })
    .await?;
    match found {
        Some(found) => Ok(found),
        None if identifier == DEFAULT_PROJECT => default_project(server).await,
        None if ids::decode_number("Project", identifier).is_some() => {
            Err(PhoenixError::missing(format!("Project with ID {identifier} not found")))
        }
        None => Err(PhoenixError::missing(format!("Project with name {identifier} not found"))),
    }
}

/// Clients count on a project of this name from the start.
pub(super) async fn default_project(server: &Arc<Server>) -> Result<ProjectInfo, PhoenixError> {
    let find = |server: &Server| Ok(server.store.project_named(DEFAULT_PROJECT)?);
    if let Some(known) = blocking(server, find).await? {
        return Ok(known);
    }
    let description = Some("Default project".to_owned());
    let made = server.store.add_project(DEFAULT_PROJECT.to_owned(), description, now_ns())?.done().await?;
    match made {
        Some(made) => Ok(made),
        // Somebody else was faster.
        None => {
            blocking(server, find).await?.ok_or_else(|| PhoenixError::missing("there is no default project"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_and_without_an_offset() {
        assert_eq!(read_time("2026-01-01T12:00:00.5Z"), Some(1_767_268_800_500_000));
        assert_eq!(read_time("2026-01-01T13:00:00.5+01:00"), Some(1_767_268_800_500_000));
        assert_eq!(read_time("2026-01-01T13:00:00.5 01:00"), Some(1_767_268_800_500_000));
        assert_eq!(read_time("2026-01-01T12:00:00"), Some(1_767_268_800_000_000));
        assert_eq!(read_time("2026-01-01 12:00:00"), Some(1_767_268_800_000_000));
        assert_eq!(read_time("2026-01-01 13:00:00.5 01:00"), Some(1_767_268_800_500_000));
        assert_eq!(read_time("2026-01-01 13:00:00.5+01:00"), Some(1_767_268_800_500_000));
        assert_eq!(read_time("yesterday"), None);
        assert_eq!(read_time("ä ö ü 2026 01 01"), None);
    }

    #[test]
    fn parameters_repeat() {
        let params =
            Params(vec![("a".into(), "1".into()), ("a".into(), "2".into()), ("b".into(), String::new())]);
        assert_eq!(params.all("a"), ["1", "2"]);
        assert_eq!((params.one("a"), params.one("b")), (Some("2"), None));
        assert_eq!(params.limit(5, 10).ok(), Some(5));
        assert!(params.flag("a").is_err() && params.time("a").is_err());
    }
}
