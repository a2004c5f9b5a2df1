//! The queries behind data frames: select, filter, explode, concat, rename and index. They are parsed here and executed
//! in `rows`.

use std::collections::HashMap;

use gradus_phoenix::filter::{FilterError, FilterExpression};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::projection::{SpanProjection, SpanProjectionError};

/// A request of any client version. Unknown fields are ignored, as in Phoenix.
#[derive(Deserialize)]
pub(super) struct QueryBody {
    pub(super) queries: Vec<RawQuery>,
    pub(super) start_time: Option<String>,
    pub(super) end_time: Option<String>,
    /// The earlier name of `end_time`.
    pub(super) stop_time: Option<String>,
    pub(super) limit: Option<i64>,
    /// Only spans without a parent. With `orphan_span_as_root_span`, which is the default, a span whose parent was not
    /// received counts as one.
    pub(super) root_spans_only: Option<bool>,
    pub(super) orphan_span_as_root_span: Option<bool>,
    pub(super) project_name: Option<String>,
}

/// One query as JSON. The values are untyped, because clients of different versions write them differently.
#[derive(Default, Deserialize)]
pub(super) struct RawQuery {
    select: Option<Map<String, Value>>,
    filter: Option<Map<String, Value>>,
    explode: Option<Map<String, Value>>,
    concat: Option<Map<String, Value>>,
    rename: Option<Map<String, Value>>,
    index: Option<Map<String, Value>>,
}

/// A checked query.
pub(super) struct SpanQuery {
    /// Columns with their projections, in order.
    pub(super) select: Vec<(String, SpanProjection)>,
    pub(super) filter: Option<FilterExpression>,
    pub(super) explode: Option<SpanListProjection>,
    pub(super) concat: Option<SpanListProjection>,
    /// New names of columns, by their names in the query.
    pub(super) rename: HashMap<String, String>,
    /// The first level of the index; the span id by default.
    pub(super) index: SpanProjection,
}

/// A list in each span, and the columns that are taken from its items.
pub(super) struct SpanListProjection {
    pub(super) list: SpanProjection,
    /// Column names with paths inside of an item. Empty means all values of an item.
    pub(super) columns: Vec<(String, String)>,
    /// Joins the texts of a `concat`.
    pub(super) separator: String,
}

const SPAN_ID_COLUMN: &str = "context.span_id";
/// Phoenix's default separator of `concat`.
const DEFAULT_SEPARATOR: &str = "\n\n";

/// Why a query cannot be answered. Handlers answer it with status 422 and `Invalid query: ` before the message, as
/// Phoenix does.
#[derive(Debug, thiserror::Error)]
pub(super) enum DataFrameError {
    /// The path of a column, an index or a list is invalid.
    #[error(transparent)]
    Projection(#[from] SpanProjectionError),
    /// The condition is not in Phoenix's filter language.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

impl SpanQuery {
    /// Checks a query before anything is read from the store. Entries of another type than Phoenix documents are
    /// treated as left out, as Phoenix does.
    pub(super) fn read(raw: &RawQuery) -> Result<SpanQuery, DataFrameError> {
        let mut select = Vec::new();
        for (name, projection) in raw.select.iter().flatten() {
            let key = projection.get("key").and_then(Value::as_str).unwrap_or_default();
            select.push((resolve_column_alias(name).to_owned(), SpanProjection::parse(key)?));
        }
        let condition = raw.filter.as_ref().and_then(|filter| filter.get("condition")).and_then(Value::as_str);
        let filter = match condition.map(str::trim).filter(|condition| !condition.is_empty()) {
            Some(condition) => Some(FilterExpression::parse(condition)?),
            None => None,
        };
        let key = raw.index.as_ref().and_then(|index| index.get("key")).and_then(Value::as_str);
        let rename = raw.rename.iter().flatten();
        Ok(SpanQuery {
            select,
            filter,
            explode: parse_list_projection(raw.explode.as_ref())?,
            concat: parse_list_projection(raw.concat.as_ref())?,
            rename: rename.filter_map(|(from, to)| Some((from.clone(), to.as_str()?.to_owned()))).collect(),
            index: SpanProjection::parse(key.filter(|key| !key.is_empty()).unwrap_or(SPAN_ID_COLUMN))?,
        })
    }

    /// Whether the query returns every attribute, because it has no select, explode and concat.
    pub(super) fn wants_all_attributes(&self) -> bool {
        self.select.is_empty() && self.explode.is_none() && self.concat.is_none()
    }

    /// Returns the names of the index levels. `explode` adds the position of the item.
    pub(super) fn index_names(&self) -> Vec<String> {
        let mut names = vec![self.index.key.clone()];
        if let Some(explode) = &self.explode {
            let is_documents =
                matches!(explode.list.key.as_str(), "retrieval.documents" | "attributes.retrieval.documents");
            names.push(if is_documents { "document_position" } else { "position" }.to_owned());
        }
        names
    }

    /// Returns the name of a column in the response, after `rename`.
    pub(super) fn output_column_name<'n>(&'n self, name: &'n str) -> &'n str {
        let name = resolve_column_alias(name);
        self.rename.get(name).map_or(name, String::as_str)
    }
}

/// Resolves short names that older clients use.
fn resolve_column_alias(name: &str) -> &str {
    match name {
        "span_id" => SPAN_ID_COLUMN,
        "trace_id" => "context.trace_id",
        other => other,
    }
}

/// Reads `explode` or `concat`. `None` without a key: clients send the entry empty where it is not used.
fn parse_list_projection(raw: Option<&Map<String, Value>>) -> Result<Option<SpanListProjection>, SpanProjectionError> {
    let Some(raw) = raw else { return Ok(None) };
    let text = |name: &str| raw.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(key) = text("key") else { return Ok(None) };
    let columns = raw.get("kwargs").and_then(Value::as_object).into_iter().flatten();
    Ok(Some(SpanListProjection {
        list: SpanProjection::parse(key)?,
        columns: columns.filter_map(|(name, key)| Some((name.clone(), key.as_str()?.to_owned()))).collect(),
        separator: text("separator").unwrap_or(DEFAULT_SEPARATOR).to_owned(),
    }))
}
