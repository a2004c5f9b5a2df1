//! Specification of an MCP server: a command line or an address.

use std::fmt;
use std::str::FromStr;

/// Debug and display output contains no arguments, environment, query or token, since all of them may be secret.
#[derive(Clone, PartialEq, Eq)]
pub enum McpServerSpec {
    /// Started as a child process that speaks over standard input and output.
    Command { program: String, arguments: Vec<String>, environment: Vec<(String, String)> },
    /// Streamable HTTP, with a bearer token if given.
    Http { url: String, token: Option<String> },
}

/// Why a text is not a server specification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerSpecError {
    #[error("an MCP server is a command or an address, and this is empty")]
    Empty,
    #[error("the MCP server's command has a quotation mark that is not closed")]
    OpenQuote,
    #[error("the MCP server's address has a user name in it; leave it out, and give a token with --mcp-token-env")]
    UserInUrl,
}

impl FromStr for McpServerSpec {
    type Err = ServerSpecError;

    /// `http://...` or `https://...` is an address. Everything else is a command line, optionally with `NAME=value`
    /// before the program for its environment.
    fn from_str(text: &str) -> Result<McpServerSpec, ServerSpecError> {
        let text = text.trim();
        if let Some((_, rest)) = text.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https")) {
            if rest.split('/').next().is_some_and(|host| host.contains('@')) {
                return Err(ServerSpecError::UserInUrl);
            }
            return Ok(McpServerSpec::Http { url: text.to_owned(), token: None });
        }
        let mut words = split_shell_words(text)?.into_iter().peekable();
        let mut environment = Vec::new();
        while let Some((name, value)) = words.peek().and_then(|word| parse_env_assignment(word)) {
            environment.push((name.to_owned(), value.to_owned()));
            words.next();
        }
        let program = words.next().filter(|program| !program.is_empty()).ok_or(ServerSpecError::Empty)?;
        Ok(McpServerSpec::Command { program, arguments: words.collect(), environment })
    }
}

impl McpServerSpec {
    /// Returns a name for a server that does not name itself: the program or the host.
    pub(super) fn short_name(&self) -> String {
        let name = match self {
            McpServerSpec::Command { program, .. } => program.rsplit('/').next().unwrap_or(program),
            McpServerSpec::Http { url, .. } => {
                url.split("://").nth(1).and_then(|rest| rest.split(['/', ':']).next()).unwrap_or("mcp")
            }
        };
        super::sanitize_mcp_name(name, 24)
    }
}

/// Omits what may be secret: arguments, environment, query, token.
impl fmt::Display for McpServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            McpServerSpec::Command { program, .. } => write!(f, "{program:?}"),
            McpServerSpec::Http { url, .. } => f.write_str(url.split(['?', '#']).next().unwrap_or(url)),
        }
    }
}

impl fmt::Debug for McpServerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "McpServerSpec({self})")
    }
}

/// Splits `NAME=value` if the name is one of a shell variable.
fn parse_env_assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let is_name = starts_well && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

/// Splits like a POSIX shell: white space, single and double quotation marks, backslashes. Nothing is expanded.
fn split_shell_words(text: &str) -> Result<Vec<String>, ServerSpecError> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut quote = None;
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => word.get_or_insert_default().extend(characters.next()),
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err(ServerSpecError::OpenQuote);
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn commands_and_addresses() {
        let server: McpServerSpec = "TOKEN=\"a b\" npx -y 'my server' a\\ b \"\"".parse().unwrap();
        let McpServerSpec::Command { program, arguments, environment } = &server else { panic!("{server:?}") };
        assert_eq!(program, "npx");
        assert_eq!(arguments, &["-y", "my server", "a b", ""]);
        assert_eq!(environment, &[("TOKEN".to_owned(), "a b".to_owned())]);
        assert_eq!(server.to_string(), "\"npx\"");
        assert!(!format!("{server:?}").contains("a b"));

        let server: McpServerSpec = " https://example.org/mcp?key=secret ".parse().unwrap();
        assert_eq!(server.to_string(), "https://example.org/mcp");
        assert_eq!(server.short_name(), "example_org");
        assert_eq!("".parse::<McpServerSpec>(), Err(ServerSpecError::Empty));
        assert_eq!("A=b".parse::<McpServerSpec>(), Err(ServerSpecError::Empty));
        assert_eq!("run 'it".parse::<McpServerSpec>(), Err(ServerSpecError::OpenQuote));
        assert_eq!("https://me:pw@host/".parse::<McpServerSpec>(), Err(ServerSpecError::UserInUrl));
        assert!(matches!("--x=y".parse(), Ok(McpServerSpec::Command { .. })));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = text.parse::<McpServerSpec>();
        }

        #[test]
        fn quoted_words_come_back(text in proptest::collection::vec("[^'\\x00]{1,8}", 1..5)) {
            let line = text.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(split_shell_words(&line).unwrap(), text);
        }
    }
}
