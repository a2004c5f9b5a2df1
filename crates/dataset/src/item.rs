//! One item of a dataset: a request and what is expected of the agent. Doc comments of these types are the descriptions
//! in `docs/reference/dataset.schema.json`; other remarks are plain comments.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

/// One line of a dataset: a request for an agent and what is expected of it. Exactly one of `request` and `messages` is
/// given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = json!([{"required": ["request"]}, {"required": ["messages"]}])))]
pub struct DatasetItem {
    /// Unique in the dataset. Results of different versions of an agent are paired by it.
    #[schemars(length(min = 1, max = 200))]
    pub id: String,
    /// The request as one text.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "require_value")]
    #[schemars(with = "String", length(min = 1))]
    pub request: Option<String>,
    /// The request as a conversation, oldest message first. The last message is the one to answer.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "require_value")]
    #[schemars(with = "Vec<DatasetMessage>", length(min = 1))]
    pub messages: Option<Vec<DatasetMessage>>,
    /// A reference answer, which judges get as `{reference_answer}`. No check compares it with the answer of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "require_value")]
    #[schemars(with = "String")]
    pub reference: Option<String>,
    /// The tool calls that are expected. A list means the mode `in_order`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "require_value")]
    #[schemars(with = "ExpectedTools")]
    pub expected_tools: Option<ExpectedTools>,
    /// Names of tools that must not be called, also not by agents that the agent calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_not_call: Vec<String>,
    /// Texts that the answer must contain, all of them. Case and runs of white space do not matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    #[schemars(schema_with = "one_or_many_schema")]
    pub answer_contains: Vec<String>,
    /// Regular expressions that must match in the answer, all of them. `(?i)` ignores case.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "one_or_many")]
    #[schemars(schema_with = "one_or_many_schema")]
    pub answer_matches: Vec<String>,
    /// Names of groups. Pass rates are reported for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Anything else about the item. Gradus passes it on and does not interpret it.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Json>,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetMessage {
    /// `user`, `assistant`, `system`, or any other role that the agent knows.
    #[schemars(length(min = 1))]
    pub role: String,
    pub content: String,
}

/// Expected tool calls: a list of names, or a mode and a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum ExpectedTools {
    /// The mode is `in_order`.
    List(#[schemars(length(min = 1))] Vec<String>),
    WithMode(ToolExpectation),
}

/// Expected tool calls and how they are compared with the calls of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolExpectation {
    pub mode: ToolMatchMode,
    /// Names of tools. A tool that is named twice is expected twice.
    pub tools: Vec<String>,
}

/// How expected and actual tool calls are compared. Repeated calls count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolMatchMode {
    /// These calls, in this order, and no others.
    Exact,
    /// These calls in this order; other calls may come between.
    InOrder,
    /// These calls in any order, and no others.
    AnyOrder,
    /// No other calls than these; some may be missing.
    Subset,
    /// At least these calls, in any order; others may be added.
    Superset,
}

impl ToolMatchMode {
    /// Returns the name in a dataset.
    pub fn name(self) -> &'static str {
        match self {
            ToolMatchMode::Exact => "exact",
            ToolMatchMode::InOrder => "in_order",
            ToolMatchMode::AnyOrder => "any_order",
            ToolMatchMode::Subset => "subset",
            ToolMatchMode::Superset => "superset",
        }
    }
}

impl ExpectedTools {
    pub fn mode(&self) -> ToolMatchMode {
        match self {
            ExpectedTools::List(_) => ToolMatchMode::InOrder,
            ExpectedTools::WithMode(expectation) => expectation.mode,
        }
    }

    pub fn tools(&self) -> &[String] {
        match self {
            ExpectedTools::List(tools) => tools,
            ExpectedTools::WithMode(expectation) => &expectation.tools,
        }
    }
}

// By hand: the error of a derived untagged enum names neither the field nor what is wrong with it.
impl<'de> Deserialize<'de> for ExpectedTools {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        match Json::deserialize(source)? {
            list @ Json::Array(_) => serde_json::from_value(list).map(ExpectedTools::List).map_err(D::Error::custom),
            object @ Json::Object(_) => {
                serde_json::from_value(object).map(ExpectedTools::WithMode).map_err(D::Error::custom)
            }
            _ => Err(D::Error::custom("expected a list of tool names, or an object with `mode` and `tools`")),
        }
    }
}

impl DatasetItem {
    /// Returns the request as one text: `request`, else the content of the last message.
    pub fn request_text(&self) -> &str {
        match (&self.request, &self.messages) {
            (Some(request), _) => request,
            (None, Some(messages)) => messages.last().map_or("", |message| &message.content),
            (None, None) => "",
        }
    }

    /// Returns the request as messages: `messages`, else one message of the user.
    pub fn request_messages(&self) -> Vec<DatasetMessage> {
        match &self.messages {
            Some(messages) => messages.clone(),
            None => vec![DatasetMessage { role: "user".to_owned(), content: self.request_text().to_owned() }],
        }
    }

    /// Whether the item says what is expected of the agent, in a way that can be checked without a judge.
    pub fn has_checks(&self) -> bool {
        self.expected_tools.is_some()
            || [&self.must_not_call, &self.answer_contains, &self.answer_matches].iter().any(|list| !list.is_empty())
    }
}

/// Refuses null for a field: `"request": null` is usually a mistake of a script.
fn require_value<'de, D, T>(source: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(source).map(Some)
}

/// Reads a text or a list of texts.
fn one_or_many<'de, D: serde::Deserializer<'de>>(source: D) -> Result<Vec<String>, D::Error> {
    use serde::de::Error as _;
    match Json::deserialize(source)? {
        Json::String(text) => Ok(vec![text]),
        list @ Json::Array(_) => serde_json::from_value(list).map_err(D::Error::custom),
        _ => Err(D::Error::custom("expected a text or a list of texts")),
    }
}

fn one_or_many_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}}
    ]})
}
