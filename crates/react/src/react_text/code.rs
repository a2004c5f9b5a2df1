//! Code agents act by writing Python: `print(list_issues(repo='octo/api'))`. This finds the block and the calls in it.

use std::collections::HashSet;

use serde_json::{Map, Value as Json};

use crate::bounded_json::{MAX_JSON_NODES, count_nodes};
use crate::lenient_json;

/// Maximum number of calls that are read from one block. No agent at work writes more.
const MAX_CALLS: usize = 10_000;

/// One call of a function in a code block.
#[derive(Clone, Debug, PartialEq)]
pub struct CodeCall<'t> {
    pub name: &'t str,
    /// The text between the parentheses.
    pub raw: &'t str,
    /// Keyword arguments by name, positional ones as a list under `args`; `None` when one is no literal.
    pub arguments: Option<Json>,
}

/// Splits a reply into the thought before its code and the code: `<code>`, a Python fence, or `Code:`.
pub fn find_code_block(text: &str) -> Option<(&str, &str)> {
    for (open, closes) in [
        ("<code>", ["</code>", "<end_code>"]),
        ("```python\n", ["```", "<end_code>"]),
        ("```py\n", ["```", "<end_code>"]),
    ] {
        if let Some(start) = text.find(open) {
            // A fence is an action only where the agent's format says so; elsewhere it is an example.
            let announced = text[..start].trim_end().ends_with("Code:") || text.contains("<end_code>") || start == 0;
            if open != "<code>" && !announced {
                continue;
            }
            let code = &text[start + open.len()..];
            // A stop sequence often swallows the closing mark.
            let end = closes.iter().filter_map(|close| code.find(close)).min().unwrap_or(code.len());
            return Some((thought_before(&text[..start]), code[..end].trim_matches('\n')));
        }
    }
    None
}

fn thought_before(text: &str) -> &str {
    let text = text.trim().trim_end_matches("Code:").trim_end();
    text.strip_prefix("Thought:").unwrap_or(text).trim()
}

/// The calls in a block of code, in the order they are written, without Python's own functions, methods and functions
/// that the block defines itself.
pub fn find_code_calls(code: &str) -> Vec<CodeCall<'_>> {
    let bytes = code.as_bytes();
    let mut calls = Vec::new();
    let mut at = 0;
    // Maximum bytes of arguments that are read: prevents quadratic work on code full of open parentheses.
    let mut budget = 4 * code.len();
    let own = defined_names(code);
    while at < bytes.len() && calls.len() < MAX_CALLS {
        match bytes[at] {
            b'#' => at += code[at..].find('\n').unwrap_or(code.len() - at),
            b'"' | b'\'' => at = skip_string(code, at),
            byte if byte.is_ascii_alphabetic() || byte == b'_' => {
                let start = at;
                while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_') {
                    at += 1;
                }
                let name = &code[start..at];
                let method = start > 0 && bytes[start - 1] == b'.';
                let defined = code[..start].trim_end().ends_with("def") || code[..start].trim_end().ends_with("class");
                if bytes.get(at) == Some(&b'(')
                    && !method
                    && !defined
                    && !is_python_builtin(name)
                    && !own.contains(name)
                {
                    let raw = &code[at + 1..find_call_end(code, at)];
                    budget = budget.saturating_sub(raw.len());
                    if budget == 0 {
                        break;
                    }
                    calls.push(CodeCall { name, raw, arguments: read_arguments(raw) });
                }
            }
            _ => at += 1,
        }
    }
    calls
}

/// Functions and classes that the code defines or imports itself.
fn defined_names(code: &str) -> HashSet<&str> {
    let mut names = HashSet::new();
    for line in code.lines().map(str::trim_start) {
        if let Some(rest) = line.strip_prefix("def ").or_else(|| line.strip_prefix("class ")) {
            names.extend(rest.split(['(', ':', ' ']).next());
        } else if let Some((_, imported)) = line.split_once("import ")
            && (line.starts_with("import ") || line.starts_with("from "))
        {
            names.extend(imported.split([',', ' ', '(', ')']).filter(|name| !name.is_empty() && *name != "as"));
        }
    }
    names
}

/// Reads `repo='x', number=3` into an object; `None` when one is no literal or all together are too many values.
pub(super) fn read_arguments(raw: &str) -> Option<Json> {
    let mut object = Map::new();
    let mut positional = Vec::new();
    let mut nodes_left = MAX_JSON_NODES;
    let mut rest = raw.trim();
    while !rest.is_empty() {
        let name_end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let behind = rest[name_end..].trim_start();
        if name_end > 0 && behind.starts_with('=') && !behind.starts_with("==") {
            let (value, after) = lenient_json::parse_prefix(&behind[1..])?;
            nodes_left = nodes_left.checked_sub(count_nodes(&value))?;
            object.insert(rest[..name_end].to_owned(), value);
            rest = after;
        } else {
            let (value, after) = lenient_json::parse_prefix(rest)?;
            nodes_left = nodes_left.checked_sub(count_nodes(&value))?;
            positional.push(value);
            rest = after;
        }
        rest = rest.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if rest.is_empty() => rest,
            None => return None,
        };
    }
    if !positional.is_empty() {
        object.insert("args".to_owned(), Json::Array(positional));
    }
    Some(Json::Object(object))
}

/// The position of the parenthesis that closes the one at `open`, or the end of the code.
fn find_call_end(code: &str, open: usize) -> usize {
    let bytes = code.as_bytes();
    let (mut depth, mut at) = (0usize, open);
    // Maximum bytes of a call that are searched.
    let stop = bytes.len().min(open + 65_536);
    while at < stop {
        match bytes[at] {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at;
                }
            }
            b'"' | b'\'' => {
                at = skip_string(code, at);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    // Cut at a character's border.
    code.floor_char_boundary(at)
}

/// Returns the position after the string literal that begins at `start`.
fn skip_string(code: &str, start: usize) -> usize {
    let bytes = code.as_bytes();
    let quote = bytes[start];
    let triple = [quote; 3];
    if bytes[start..].starts_with(&triple) {
        let body = &bytes[start + 3..];
        return body.windows(3).position(|window| window == triple).map_or(bytes.len(), |end| start + 3 + end + 3);
    }
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'\n' => return at,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn is_python_builtin(name: &str) -> bool {
    const OWN: [&str; 64] = [
        "abs",
        "all",
        "and",
        "any",
        "assert",
        "await",
        "bool",
        "bytes",
        "dict",
        "dir",
        "elif",
        "enumerate",
        "except",
        "filter",
        "float",
        "for",
        "format",
        "frozenset",
        "getattr",
        "hasattr",
        "hash",
        "hex",
        "id",
        "if",
        "in",
        "input",
        "int",
        "is",
        "isinstance",
        "issubclass",
        "iter",
        "lambda",
        "len",
        "list",
        "map",
        "max",
        "min",
        "next",
        "not",
        "open",
        "or",
        "ord",
        "pow",
        "print",
        "range",
        "repr",
        "return",
        "reversed",
        "round",
        "set",
        "setattr",
        "slice",
        "sorted",
        "str",
        "sum",
        "super",
        "tuple",
        "type",
        "vars",
        "while",
        "with",
        "yield",
        "zip",
        "chr",
    ];
    OWN.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_are_found_with_their_arguments() {
        let code = "x = read_file(repo='o/a', path=\"b\")\nprint(list_issues('o/a', state='open'))\nx.strip()\n# no(call)\nprint('no(call)')";
        let calls: Vec<_> = find_code_calls(code).into_iter().map(|call| (call.name, call.arguments)).collect();
        assert_eq!(
            calls,
            vec![
                ("read_file", Some(json!({"repo": "o/a", "path": "b"}))),
                ("list_issues", Some(json!({"state": "open", "args": ["o/a"]}))),
            ]
        );
    }

    #[test]
    fn functions_of_the_code_itself_are_no_tools() {
        let code = "from math import sqrt\ndef fib(n):\n    return fib(n - 1)\nprint(fib(3), sqrt(4), look())";
        assert_eq!(find_code_calls(code).iter().map(|call| call.name).collect::<Vec<_>>(), ["look"]);
    }

    #[test]
    fn calls_and_their_arguments_are_bounded() {
        assert_eq!(find_code_calls(&"a()\n".repeat(MAX_CALLS + 5)).len(), MAX_CALLS);
        let many = "0,".repeat(MAX_JSON_NODES + 1);
        assert_eq!(read_arguments(&many), None);
        assert!(read_arguments(&many[..2 * MAX_JSON_NODES]).is_some());
    }

    #[test]
    fn arguments_that_are_no_literals_stay_raw() {
        let calls = find_code_calls("send(to=name, text=f'{x}')");
        assert_eq!((calls[0].raw, &calls[0].arguments), ("to=name, text=f'{x}'", &None));
    }

    #[test]
    fn the_thought_before_the_code_is_kept() {
        assert_eq!(find_code_block("Thought: I look.\n<code>\nlook()\n"), Some(("I look.", "look()")));
        assert_eq!(
            find_code_block("Thought: I look.\nCode:\n```py\nlook()\n```<end_code>"),
            Some(("I look.", "look()"))
        );
        assert_eq!(find_code_block("no code"), None);
    }
}
