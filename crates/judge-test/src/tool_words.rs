//! Analyses the name of a tool: its words, whether it reads or changes, and the tool as a phrase.

/// What a tool does, by the verb in its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolVerb {
    Read,
    Create,
    Remove,
    Change,
    Unknown,
}

const READ: &[&str] = &[
    "get", "list", "read", "search", "find", "show", "view", "fetch", "lookup", "look", "describe", "count", "compare",
    "query", "browse", "inspect",
];
const CREATE: &[&str] = &["create", "open", "add", "new", "insert", "upload", "book", "star", "fork"];
const REMOVE: &[&str] = &["delete", "remove", "close", "cancel", "unstar", "drop", "clear", "archive"];
const CHANGE: &[&str] = &[
    "update", "edit", "set", "change", "modify", "merge", "push", "commit", "move", "rename", "write", "send", "post",
    "put", "patch", "comment", "assign", "pay", "refund", "transfer", "apply", "submit", "order", "exchange", "return",
    "reply", "schedule",
];
/// Words of tools whose result can change by itself, so that a repeated call is not needless.
const VOLATILE: &[&str] = &["status", "poll", "wait", "progress", "next", "random", "time", "now", "job"];

/// The words of a name in lower case: `listPullRequests` and `list_pull_requests` are the same.
pub(crate) fn split_tool_name(name: &str) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        if !letter.is_alphanumeric() || (was_lower && letter.is_uppercase()) {
            words.push(String::new());
        }
        was_lower = letter.is_lowercase();
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

pub(crate) fn classify_tool(name: &str) -> ToolVerb {
    split_tool_name(name).iter().find_map(|word| classify_verb(word)).unwrap_or(ToolVerb::Unknown)
}

fn classify_verb(word: &str) -> Option<ToolVerb> {
    let lists = [(READ, ToolVerb::Read), (CREATE, ToolVerb::Create), (REMOVE, ToolVerb::Remove)];
    let mut lists = lists.into_iter().chain([(CHANGE, ToolVerb::Change)]);
    lists.find(|(words, _)| words.contains(&word)).map(|(_, verb)| verb)
}

pub(crate) fn is_reading(name: &str) -> bool {
    classify_tool(name) == ToolVerb::Read
}

/// Whether the tool certainly changes something.
pub(crate) fn is_writing(name: &str) -> bool {
    matches!(classify_tool(name), ToolVerb::Create | ToolVerb::Remove | ToolVerb::Change)
}

/// Whether two calls in a row with the same arguments return the same result.
pub(crate) fn is_repeatable(name: &str) -> bool {
    is_reading(name) && !split_tool_name(name).iter().any(|word| VOLATILE.contains(&word.as_str()))
}

/// Returns the words of the tool's object in the singular: all words but the verb.
pub(crate) fn object_words(name: &str) -> Vec<String> {
    let words = split_tool_name(name).into_iter().filter(|word| classify_verb(word).is_none() && word.len() > 2);
    words.map(|word| singular(&word).to_owned()).collect()
}

/// Returns the verb and the object of a name, for sentences: `list`, `the pull requests`. `None` if one of them is
/// missing.
pub(crate) fn tool_phrase(name: &str) -> Option<(String, String)> {
    let words = split_tool_name(name);
    let (verb, object) = words.split_first()?;
    classify_verb(verb)?;
    let object = object.join(" ");
    let article = if object.starts_with("my ") { "" } else { "the " };
    (object.len() > 2).then(|| (verb.clone(), format!("{article}{object}")))
}

pub(crate) fn singular(word: &str) -> &str {
    word.strip_suffix('s').filter(|stem| stem.len() > 2 && !stem.ends_with('s')).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_tools_do() {
        assert_eq!(split_tool_name("listPull-Requests"), ["list", "pull", "requests"]);
        assert_eq!(classify_tool("open_issue"), ToolVerb::Create);
        assert_eq!(classify_tool("update_file_content"), ToolVerb::Change);
        assert!(is_reading("search_code") && is_writing("close_issue") && !is_writing("frobnicate"));
        assert!(is_repeatable("list_labels") && !is_repeatable("get_job_status") && !is_repeatable("create_tag"));
        assert_eq!(object_words("list_pull_request_files"), ["pull", "request", "file"]);
        assert_eq!(tool_phrase("list_my_repos"), Some(("list".to_owned(), "my repos".to_owned())));
        assert_eq!(tool_phrase("close_issue"), Some(("close".to_owned(), "the issue".to_owned())));
        assert_eq!(tool_phrase("frobnicate_x"), None);
    }
}
