//! The paths that Rust source names, found in its tokens: `use` trees, and `crate::`, `super::`, `self::` or `gradus_…::`
//! anywhere else, also in the arguments of macros.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};

/// What one module names.
#[derive(Debug, Default)]
pub(crate) struct NamedPaths {
    /// `mod name;`, with the file of a `#[path]` attribute.
    pub(crate) file_modules: Vec<(String, Option<String>)>,
    pub(crate) inline_modules: Vec<(String, NamedPaths)>,
    pub(crate) paths: Vec<Vec<String>>,
    /// Names that `use` brings into the module, so that others can reach through it.
    pub(crate) bindings: Vec<(String, Vec<String>)>,
}

impl NamedPaths {
    pub(crate) fn read(source: &str) -> Result<NamedPaths, String> {
        let tokens: TokenStream = source.parse().map_err(|error| format!("{error}"))?;
        let mut named = NamedPaths::default();
        named.read_tokens(tokens);
        Ok(named)
    }

    fn read_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        let mut file = None;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    if let Some(TokenTree::Group(attribute)) = tokens.get(at + 1) {
                        let text = attribute.stream().to_string().replace(' ', "");
                        if text == "cfg(test)" || text.starts_with("cfg(all(test,") {
                            at = end_of_item(&tokens, at + 2);
                            continue;
                        }
                        file = text
                            .strip_prefix("path=\"")
                            .and_then(|rest| Some(rest.strip_suffix('"')?.to_owned()))
                            .or(file);
                    }
                    at += 1;
                }
                TokenTree::Ident(word) if word == "mod" => match (tokens.get(at + 1), tokens.get(at + 2)) {
                    (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) => {
                        let mut inner = NamedPaths::default();
                        inner.read_tokens(body.stream());
                        self.inline_modules.push((name.to_string(), inner));
                        at += 3;
                    }
                    (Some(TokenTree::Ident(name)), _) => {
                        self.file_modules.push((name.to_string(), file.take()));
                        at += 2;
                    }
                    _ => at += 1,
                },
                TokenTree::Ident(word) if word == "use" => {
                    let end = (at..tokens.len()).find(|&end| is_punct(&tokens[end], ';')).unwrap_or(tokens.len());
                    self.read_use(&tokens[at + 1..end], &[]);
                    at = end;
                }
                TokenTree::Ident(word) if begins_path(word) && !follows_colons(&tokens, at) => {
                    let (path, end) = read_path(&tokens, at);
                    if path.len() > 1 {
                        self.paths.push(path);
                    }
                    at = end;
                }
                TokenTree::Group(group) if !is_visibility(group) => {
                    self.read_tokens(group.stream());
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    /// One `use` tree below `prefix`.
    fn read_use(&mut self, tokens: &[TokenTree], prefix: &[String]) {
        let mut path = prefix.to_vec();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    let name = tokens.get(at + 1).map(ToString::to_string).unwrap_or_default();
                    return self.import(path, name);
                }
                TokenTree::Ident(word) => path.push(word.to_string()),
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for part in inner.split(|token| is_punct(token, ',')).filter(|part| !part.is_empty()) {
                        self.read_use(part, &path);
                    }
                    return;
                }
                TokenTree::Punct(punct) if punct.as_char() == '*' => {
                    self.paths.push(path);
                    return;
                }
                _ => {}
            }
        }
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = path.last().cloned().unwrap_or_default();
        self.import(path, name);
    }

    fn import(&mut self, path: Vec<String>, name: String) {
        self.bindings.push((name, path.clone()));
        self.paths.push(path);
    }
}

fn begins_path(word: &Ident) -> bool {
    let word = word.to_string();
    matches!(word.as_str(), "crate" | "super" | "self") || word.starts_with("gradus_")
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    tokens.get(at).is_some_and(|one| is_punct(one, ':')) && tokens.get(at + 1).is_some_and(|one| is_punct(one, ':'))
}

fn follows_colons(tokens: &[TokenTree], at: usize) -> bool {
    at >= 2 && is_colons(tokens, at - 2)
}

fn read_path(tokens: &[TokenTree], begin: usize) -> (Vec<String>, usize) {
    let mut path = vec![tokens[begin].to_string()];
    let mut at = begin + 1;
    while is_colons(tokens, at) {
        let Some(TokenTree::Ident(word)) = tokens.get(at + 2) else { break };
        path.push(word.to_string());
        at += 3;
    }
    (path, at)
}

/// `pub(crate)` and `pub(in crate::page)` import nothing.
fn is_visibility(group: &Group) -> bool {
    let first = group.stream().into_iter().next();
    group.delimiter() == Delimiter::Parenthesis
        && first.is_some_and(|first| matches!(first.to_string().as_str(), "in" | "crate"))
        && group.stream().to_string().chars().all(|one| one.is_alphanumeric() || ": _".contains(one))
}

/// Behind the item that begins at `at`: its body, or the semicolon or comma that ends it.
fn end_of_item(tokens: &[TokenTree], mut at: usize) -> usize {
    let mut has_body = true;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(word) if word == "use" || word == "const" || word == "static" || word == "let" => {
                has_body = false
            }
            TokenTree::Ident(word) if word == "fn" => has_body = true,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && has_body => return at + 1,
            token if is_punct(token, ';') || is_punct(token, ',') => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}
