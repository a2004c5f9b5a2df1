//! Long texts: the page contains their beginning, and the whole text is loaded on request.

use axum::response::IntoResponse;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use gradus_core::trajectory::Trajectory;
use gradus_core::visible::make_printable;
use gradus_report::html::text;
use serde::Deserialize;

use super::address::PageUrl;
use super::display_text::format_byte_size;
use super::loaded_trace;
use super::render::{PageError, PageQuery};
use super::run_addresses::format_run_text_url;
use crate::http_error::{ApiError, run_large_query};
use crate::state::ServerState;

/// Maximum size of the beginning that the page contains. Whichever limit is reached first applies.
const MAX_PREVIEW_BYTES: usize = 1_500;
const MAX_PREVIEW_LINES: usize = 18;
/// Maximum size in bytes of JSON that is indented. Larger JSON is shown as recorded, since formatting would take too
/// long.
const MAX_INDENTED_JSON_BYTES: usize = 200_000;

/// A text or its beginning, ready to be displayed.
pub(super) struct TextPreview {
    pub(super) text: String,
    /// URL and size of the whole text. None if all of it is shown.
    pub(super) rest: Option<(String, String)>,
}

impl TextPreview {
    /// Whether it needs no folding: two lines on most screens.
    pub(super) fn is_short(&self) -> bool {
        self.rest.is_none() && self.text.len() <= 160 && !self.text.contains('\n')
    }

    /// Truncates a text. `whole` gives the URL of the whole text and is only called if the text is truncated.
    pub(super) fn from_text(given: &str, whole: impl FnOnce() -> PageUrl) -> TextPreview {
        let moved = indent_small_json(given);
        let shown = moved.as_deref().unwrap_or(given);
        let mut end = shown.floor_char_boundary(MAX_PREVIEW_BYTES);
        if let Some((line_end, _)) = shown.match_indices('\n').nth(MAX_PREVIEW_LINES - 1) {
            end = end.min(line_end);
        }
        // A rest of a few bytes or lines is shown, since the link to it would take as much space.
        let is_cut = shown.len() > end + MAX_PREVIEW_BYTES / 4 || shown[end..].matches('\n').count() > 4;
        let shown = if is_cut { &shown[..end] } else { shown };
        TextPreview {
            text: make_printable(&shown.replace("\r\n", "\n")).into_owned(),
            rest: is_cut.then(|| (whole().to_string(), format_byte_size(given.len()))),
        }
    }
}

/// Returns the text as indented JSON; none if it is not JSON or too large.
fn indent_small_json(given: &str) -> Option<String> {
    (given.len() <= MAX_INDENTED_JSON_BYTES).then(|| text::indent_whole_json(given)).flatten()
}

/// Selects a text: without `step` the query or the answer, else `thought`, `arguments` or `observation` of that step.
#[derive(Deserialize)]
pub(super) struct TextPartQuery {
    trajectory: Option<String>,
    step: Option<u32>,
    part: String,
}

/// Whether a trajectory comes from the store or from a run, which decides the URLs of its texts.
#[derive(Clone, Copy)]
pub(super) enum TrajectoryLocation<'s> {
    Trace { trace: &'s str, trajectory: &'s str },
    Run { run: &'s str, trajectory: &'s str },
}

impl TrajectoryLocation<'_> {
    /// Builds the preview; None for a missing or empty text.
    pub(super) fn preview_text(self, given: Option<&str>, step: Option<u32>, part: &str) -> Option<TextPreview> {
        let given = given.filter(|given| !given.is_empty())?;
        Some(TextPreview::from_text(given, || self.text_url(step, part)))
    }

    /// Returns the URL that serves the whole text.
    fn text_url(self, step: Option<u32>, part: &str) -> PageUrl {
        let step = step.map(|step| step.to_string());
        let text = match self {
            TrajectoryLocation::Trace { trace, trajectory } => {
                PageUrl::from_path(format!("/traces/{trace}/text")).with("trajectory", Some(trajectory))
            }
            TrajectoryLocation::Run { run, trajectory } => PageUrl::from_path(format_run_text_url(run, trajectory)),
        };
        text.with("step", step.as_deref()).with("part", Some(part))
    }
}

/// `GET /traces/{trace}/text`: one whole text.
pub(super) async fn serve_trace_text(
    State(server): State<Arc<ServerState>>,
    Path(id): Path<String>,
    PageQuery(which): PageQuery<TextPartQuery>,
) -> Result<Response, PageError> {
    respond_with_text(&server, move |server| {
        let opened = loaded_trace::load_trace(server, &id, which.trajectory.as_deref())?;
        Ok((opened.trajectory.unwrap_or_default(), which))
    })
    .await
}

/// Sends the selected text as `text/plain`, so that a browser never interprets recorded HTML.
pub(super) async fn respond_with_text(
    server: &Arc<ServerState>,
    open: impl FnOnce(&ServerState) -> Result<(Trajectory, TextPartQuery), ApiError> + Send + 'static,
) -> Result<Response, PageError> {
    let text = run_large_query(server, move |server| {
        let (trajectory, which) = open(server)?;
        let found = find_text_part(&trajectory, which.step, &which.part);
        let text = found.ok_or_else(|| ApiError::not_found("This trace has no such text."))?;
        let text = indent_small_json(&text).unwrap_or(text);
        Ok(make_printable(&text.replace("\r\n", "\n")).into_owned())
    })
    .await?;
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
    ];
    Ok((headers, text).into_response())
}

/// Finds the selected text; None for unknown parts and missing texts.
fn find_text_part(trajectory: &Trajectory, step: Option<u32>, part: &str) -> Option<String> {
    let Some(number) = step else {
        return match part {
            "query" => trajectory.query.clone(),
            "answer" => trajectory.final_answer.clone(),
            _ => None,
        };
    };
    if part == "thought" && trajectory.final_thought_index() == Some(number) {
        return trajectory.final_thought.clone();
    }
    let step = trajectory.steps.iter().find(|step| step.index == number)?;
    match part {
        "thought" => step.thought.clone(),
        "arguments" => step.arguments_text().map(std::borrow::Cow::into_owned),
        "observation" => step.observation.clone(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(text: &str) -> TextPreview {
        TextPreview::from_text(text, || PageUrl::from_path("/x"))
    }

    #[test]
    fn short_texts_are_whole_and_long_ones_are_cut_at_a_line() {
        assert!(folded("one\ntwo").rest.is_none());
        let long = folded(&"a line\n".repeat(1_000));
        assert_eq!(long.text.lines().count(), MAX_PREVIEW_LINES);
        assert_eq!(long.rest.unwrap().1.replace('\u{a0}', " "), "7.0 KB");
        let wide = folded(&"é".repeat(600_000));
        assert!(wide.text.len() <= MAX_PREVIEW_BYTES && wide.rest.is_some());
        // Nearly all of it is all of it.
        assert!(folded(&"x".repeat(MAX_PREVIEW_BYTES + 100)).rest.is_none());
    }

    #[test]
    fn json_is_moved_in_and_nothing_steers_the_text() {
        assert_eq!(folded(r#"{"a":1}"#).text, "{\n  \"a\": 1\n}");
        // Whatever its size, and the whole as its beginning.
        let long = format!("[{}1]", "{\"a\":\"b\"},".repeat(1_000));
        let whole = indent_small_json(&long).unwrap();
        let folded_long = folded(&long);
        assert!(whole.starts_with(&folded_long.text) && folded_long.text.lines().count() == MAX_PREVIEW_LINES);
        assert!(folded_long.rest.is_some() && whole.lines().count() > 3_000);
        assert_eq!(folded("{oops\u{202e}\u{1b}[31m").text, "{oops\\u{202e}\\u{1b}[31m");
    }
}
