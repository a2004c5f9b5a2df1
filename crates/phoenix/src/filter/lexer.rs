//! Tokens of a filter: the part of Python's lexical grammar that filters use.

use super::error::{FilterError, format_excerpt};

/// A token with its position.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FilterToken {
    /// In characters, from 1.
    pub(super) at: usize,
    pub(super) token_kind: FilterTokenKind,
}

/// The kind of a token. `End` is always the last one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FilterTokenKind {
    Name(String),
    Text(String),
    /// Integers beyond 2⁵³ lose precision, as they do in Phoenix's JSON columns.
    Number(f64, NumberForm),
    /// An operator, a delimiter or a keyword of Python.
    Mark(&'static str),
    End,
}

/// Whether a number is written as an integer: only integers can be indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberForm {
    Whole,
    Fraction,
}

/// Operators and delimiters, longer ones first, so that `<=` is not read as `<`. Those without a meaning in filters are
/// known too, to give a better error.
const MARKS: [&str; 33] = [
    "**=", "//=", "<<=", ">>=", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", ":=", "(", ")", "[", "]", "{", "}",
    ",", ":", ".", ";", "@", "=", "<", ">", "+", "-", "*", "/", "%", "~",
];

/// All keywords of Python: none of them can be a name.
const KEYWORDS: [&str; 35] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Tokenises a filter. Adjacent string literals are joined, as in Python.
pub(super) fn tokenize_filter(text: &str) -> Result<Vec<FilterToken>, FilterError> {
    let mut lexer = FilterLexer { chars: text.chars().collect(), at: 0, open: 0 };
    let mut tokens: Vec<FilterToken> = Vec::new();
    while let Some(token) = lexer.next()? {
        match (tokens.last_mut().map(|last| &mut last.token_kind), token.token_kind) {
            (Some(FilterTokenKind::Text(before)), FilterTokenKind::Text(text)) => before.push_str(&text),
            (_, token_kind) => tokens.push(FilterToken { at: token.at, token_kind }),
        }
    }
    tokens.push(FilterToken { at: lexer.at + 1, token_kind: FilterTokenKind::End });
    Ok(tokens)
}

/// State of the lexer. It works on characters, because positions in messages count characters.
struct FilterLexer {
    chars: Vec<char>,
    at: usize,
    /// Depth of open brackets, within which a line may end.
    open: usize,
}

impl FilterLexer {
    /// The next token; none at the end of the text.
    fn next(&mut self) -> Result<Option<FilterToken>, FilterError> {
        self.skip_space()?;
        let at = self.at + 1;
        let Some(c) = self.peek(0) else { return Ok(None) };
        // A dot begins a number only if a digit follows; otherwise it is attribute access.
        let token_kind = if c.is_ascii_digit() || (c == '.' && self.peek(1).is_some_and(|c| c.is_ascii_digit())) {
            self.read_number()?
        } else if c == '\'' || c == '"' {
            FilterTokenKind::Text(self.read_text(false)?)
        } else if begins_name(c) {
            self.read_name_or_text()?
        } else {
            self.read_mark()?
        };
        Ok(Some(FilterToken { at, token_kind }))
    }

    /// The character `ahead` positions further; none behind the end.
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Skips white space, line continuations and comments. A line end outside of brackets is an error, as in Python.
    fn skip_space(&mut self) -> Result<(), FilterError> {
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\u{c}' => self.at += 1,
                '\\' if self.peek(1) == Some('\n') => self.at += 2,
                '\n' | '\r' if self.open > 0 => self.at += 1,
                '\n' | '\r' => {
                    return Err(FilterError::syntax(self.at + 1, "the line ends here; put the filter into brackets"));
                }
                '#' => {
                    while self.peek(0).is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// Reads the longest operator or delimiter at the position.
    fn read_mark(&mut self) -> Result<FilterTokenKind, FilterError> {
        let rest = &self.chars[self.at..];
        let begins = |mark: &&str| mark.starts_with(rest[0]) && mark.chars().eq(rest.iter().copied().take(mark.len()));
        let Some(mark) = MARKS.into_iter().find(begins) else {
            let what = format!("`{}` has no meaning in a filter", format_excerpt(&rest[0].to_string()));
            return Err(FilterError::syntax(self.at + 1, what));
        };
        match mark {
            // Unbalanced brackets are the parser's concern; here they only decide whether a line may end.
            "(" | "[" | "{" => self.open += 1,
            ")" | "]" | "}" => self.open = self.open.saturating_sub(1),
            _ => {}
        }
        self.at += mark.len();
        Ok(FilterTokenKind::Mark(mark))
    }

    /// A name, a keyword, or a string with a prefix. Prefixes other than `u` and `r` are refused.
    fn read_name_or_text(&mut self) -> Result<FilterTokenKind, FilterError> {
        let start = self.at;
        while self.peek(0).is_some_and(|c| begins_name(c) || c.is_ascii_digit()) {
            self.at += 1;
        }
        let name: String = self.chars[start..self.at].iter().collect();
        if matches!(self.peek(0), Some('\'' | '"')) {
            match name.to_ascii_lowercase().as_str() {
                "u" => return Ok(FilterTokenKind::Text(self.read_text(false)?)),
                "r" => return Ok(FilterTokenKind::Text(self.read_text(true)?)),
                "b" | "f" | "t" | "br" | "rb" | "fr" | "rf" | "tr" | "rt" => {
                    let what = format!("a text with `{name}` before it is not supported; write a plain text");
                    return Err(FilterError::syntax(start + 1, what));
                }
                _ => {}
            }
        }
        // Python normalises identifiers to NFKC, so that such a letter would silently be another.
        if let Some(look_alike) = name.chars().find(|c| !c.is_ascii() && is_look_alike(*c)) {
            let what = format!("`{look_alike}` stands for another letter; use plain letters in names");
            return Err(FilterError::syntax(start + 1, what));
        }
        match KEYWORDS.into_iter().find(|keyword| *keyword == name) {
            Some(keyword) => Ok(FilterTokenKind::Mark(keyword)),
            None => Ok(FilterTokenKind::Name(name)),
        }
    }

    /// A decimal number with optional fraction and exponent. Underscores between digits are allowed, leading zeros are
    /// not.
    fn read_number(&mut self) -> Result<FilterTokenKind, FilterError> {
        let start = self.at;
        if self.peek(0) == Some('0') && self.peek(1).is_some_and(|c| "xXoObB".contains(c)) {
            return self.read_number_in_base(start);
        }
        let (mut digits, mut form) = (String::new(), NumberForm::Whole);
        self.read_digits(&mut digits);
        let whole = digits.clone();
        if self.peek(0) == Some('.') {
            form = NumberForm::Fraction;
            digits.push('.');
            self.at += 1;
            self.read_digits(&mut digits);
        }
        // The exponent counts only if a digit follows, with or without a sign. `1e` is otherwise a number that runs
        // into a name.
        let exponent_digits = if matches!(self.peek(1), Some('+' | '-')) { 2 } else { 1 };
        if matches!(self.peek(0), Some('e' | 'E')) && self.peek(exponent_digits).is_some_and(|c| c.is_ascii_digit()) {
            form = NumberForm::Fraction;
            digits.extend(&self.chars[self.at..self.at + exponent_digits]);
            self.at += exponent_digits;
            self.read_digits(&mut digits);
        }
        let leads_with_zero = whole.len() > 1 && whole.starts_with('0') && whole.bytes().any(|b| b != b'0');
        if form == NumberForm::Whole && leads_with_zero {
            return Err(FilterError::syntax(start + 1, "a number does not begin with 0"));
        }
        self.finish_number(start, digits.parse().ok(), form)
    }

    /// A hexadecimal, octal or binary integer.
    fn read_number_in_base(&mut self, start: usize) -> Result<FilterTokenKind, FilterError> {
        let base = match self.peek(1) {
            Some('x' | 'X') => 16,
            Some('o' | 'O') => 8,
            _ => 2,
        };
        self.at += 2;
        let mut number: Option<f64> = None;
        while let Some(c) = self.peek(0) {
            match c.to_digit(base) {
                Some(digit) => number = Some(number.unwrap_or(0.0) * f64::from(base) + f64::from(digit)),
                None if c == '_' && self.peek(1).is_some_and(|c| c.is_digit(base)) => {}
                None => break,
            }
            self.at += 1;
        }
        self.finish_number(start, number, NumberForm::Whole)
    }

    /// Refuses numbers that overflow to infinity and numbers that run into a name.
    fn finish_number(
        &self,
        start: usize,
        number: Option<f64>,
        form: NumberForm,
    ) -> Result<FilterTokenKind, FilterError> {
        let written: String = self.chars[start..self.at].iter().collect();
        match number {
            Some(number)
                if number.is_finite() && !self.peek(0).is_some_and(|c| begins_name(c) || c.is_ascii_digit()) =>
            {
                Ok(FilterTokenKind::Number(number, form))
            }
            Some(number) if !number.is_finite() => {
                Err(FilterError::syntax(start + 1, format!("`{}` is too large for a number", format_excerpt(&written))))
            }
            _ => Err(FilterError::syntax(start + 1, format!("`{}` is no number", format_excerpt(&written)))),
        }
    }

    /// Digits with single underscores between them.
    fn read_digits(&mut self, out: &mut String) {
        while let Some(c) = self.peek(0) {
            if c.is_ascii_digit() {
                out.push(c);
            } else if !(c == '_'
                && out.ends_with(|c: char| c.is_ascii_digit())
                && self.peek(1).is_some_and(|c| c.is_ascii_digit()))
            {
                break;
            }
            self.at += 1;
        }
    }

    /// A string literal with one or three quotation marks. NUL characters are refused, since databases cannot hold
    /// them.
    fn read_text(&mut self, is_raw: bool) -> Result<String, FilterError> {
        let start = self.at;
        let Some(quote) = self.peek(0) else { return Ok(String::new()) };
        // Three quotation marks begin a text that may contain line ends.
        let is_long = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        let quotes = if is_long { 3 } else { 1 };
        self.at += quotes;
        let mut text = String::new();
        loop {
            let c = match self.peek(0) {
                Some('\n') if !is_long => None,
                other => other,
            };
            let Some(c) = c else { return Err(FilterError::syntax(start + 1, "this text has no end")) };
            if c == quote && (0..quotes).all(|ahead| self.peek(ahead) == Some(quote)) {
                self.at += quotes;
                break;
            }
            self.at += 1;
            match c {
                '\\' if is_raw => {
                    text.push(c);
                    // A quote behind it does not end a raw text either.
                    text.extend(self.peek(0));
                    self.at += 1;
                }
                '\\' => self.read_escape(&mut text)?,
                c => text.push(c),
            }
        }
        match text.contains('\0') {
            true => Err(FilterError::syntax(start + 1, "a text cannot contain a NUL character")),
            false => Ok(text),
        }
    }

    /// The character of a backslash escape. Named escapes (`\N{...}`) are not supported.
    fn read_escape(&mut self, text: &mut String) -> Result<(), FilterError> {
        let start = self.at;
        let Some(c) = self.peek(0) else { return Ok(()) };
        self.at += 1;
        let code = match c {
            '\n' => return Ok(()),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'v' => Some(11),
            '\\' | '\'' | '"' => Some(c as u32),
            'x' => self.read_char_code(2, 16),
            'u' => self.read_char_code(4, 16),
            'U' => self.read_char_code(8, 16),
            '0'..='7' => {
                self.at -= 1;
                let digits = (0..3).take_while(|ahead| self.peek(*ahead).is_some_and(|c| c.is_digit(8))).count();
                self.read_char_code(digits, 8)
            }
            'N' => None,
            // Python lets a backslash before anything else stand.
            other => {
                text.push('\\');
                Some(other as u32)
            }
        };
        let Some(c) = code.and_then(char::from_u32) else {
            return Err(FilterError::syntax(start, "this escape stands for no character"));
        };
        text.push(c);
        Ok(())
    }

    /// A number of exactly `digits` digits; none if one is missing.
    fn read_char_code(&mut self, digits: usize, base: u32) -> Option<u32> {
        let mut code = 0_u32;
        for _ in 0..digits {
            code = code.checked_mul(base)?.checked_add(self.peek(0)?.to_digit(base)?)?;
            self.at += 1;
        }
        Some(code)
    }
}

/// First characters of an identifier.
fn begins_name(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic() || (!c.is_ascii() && c.is_alphabetic())
}

/// Letters that NFKC maps to other letters. A name that contains one looks like another name, so it is refused.
fn is_look_alike(c: char) -> bool {
    matches!(c, 'ª' | 'º' | '\u{132}'..='\u{133}' | '\u{13f}'..='\u{140}' | '\u{149}' | '\u{17f}'
        | '\u{1c4}'..='\u{1cc}' | '\u{1f1}'..='\u{1f3}' | '\u{2b0}'..='\u{2b8}' | '\u{1d2c}'..='\u{1d6a}'
        | '\u{2071}'..='\u{209c}' | '\u{2100}'..='\u{214f}' | '\u{2160}'..='\u{217f}' | '\u{24b6}'..='\u{24e9}'
        | '\u{fb00}'..='\u{fdff}' | '\u{fe70}'..='\u{ffef}' | '\u{1d400}'..='\u{1d7ff}' | '\u{1f130}'..='\u{1f169}')
}
