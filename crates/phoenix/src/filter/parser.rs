//! A recursive-descent parser with Python's operator precedence. Depth is bounded, since later passes recurse over the
//! tree.

use super::ast::{ArithmeticOperator, ComprehensionExpression, ExpressionKind, ExpressionNode, FilterComparison};
use super::error::{FilterError, format_excerpt};
use super::lexer::{FilterToken, FilterTokenKind, tokenize_filter};

/// Maximum nesting of an expression. People write three or four levels.
pub(super) const MAX_DEPTH: usize = 64;
/// Maximum bytes of a filter: enough for a list of some thousand ids.
pub(super) const MAX_LENGTH: usize = 256 << 10;
/// Maximum number of names, operators and brackets, each of which costs work for every span. Literals are not
/// counted, because long lists are looked up by hash. Enough for a hundred conditions.
pub(super) const MAX_PARTS: usize = 500;

/// Parses a whole text. The limits are checked before the parser runs.
pub(super) fn parse_filter(text: &str) -> Result<ExpressionNode, FilterError> {
    if text.len() > MAX_LENGTH {
        return Err(FilterError::TooLong { length: text.len(), limit: MAX_LENGTH });
    }
    let tokens = tokenize_filter(text)?;
    // Commas and literals are free, see [`MAX_PARTS`].
    let is_part = |token_kind: &FilterTokenKind| {
        !matches!(
            token_kind,
            FilterTokenKind::Text(_) | FilterTokenKind::Number(..) | FilterTokenKind::Mark(",") | FilterTokenKind::End
        )
    };
    let parts = tokens.iter().filter(|token| is_part(&token.token_kind)).count();
    if parts > MAX_PARTS {
        return Err(FilterError::TooComplex { parts, limit: MAX_PARTS });
    }
    let mut parser = FilterParser { tokens, next: 0 };
    let node = parser.parse_disjunction(0)?;
    match parser.peek() {
        FilterTokenKind::End => Ok(node),
        // The most common mistake gets a hint of its own.
        FilterTokenKind::Mark("=") => Err(parser.unexpected_token_error("expected `==`")),
        _ => Err(parser.unexpected_token_error("expected an operator or the end")),
    }
}

/// The tokens and the index of the next one.
struct FilterParser {
    tokens: Vec<FilterToken>,
    next: usize,
}

/// What every rule of the grammar returns.
type FilterParseResult = Result<ExpressionNode, FilterError>;

/// What a pair of brackets contains: one expression, a list with commas, or a loop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BracketContent {
    Plain,
    Commas,
    Loop,
}

impl FilterParser {
    fn peek(&self) -> &FilterTokenKind {
        // The last token is the end, and nothing goes beyond it.
        &self.tokens[self.next].token_kind
    }

    /// Position of the next token, for error messages.
    fn position(&self) -> usize {
        self.tokens[self.next].at
    }

    /// Consumes a token; the end token is never passed.
    fn take_token(&mut self) -> FilterTokenKind {
        let token_kind = self.tokens[self.next].token_kind.clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token_kind
    }

    /// Consumes the mark if it is next.
    fn eat_mark(&mut self, mark: &str) -> bool {
        let found = matches!(self.peek(), FilterTokenKind::Mark(found) if *found == mark);
        if found {
            self.take_token();
        }
        found
    }

    /// Consumes the mark or fails.
    fn require_mark(&mut self, mark: &str) -> Result<(), FilterError> {
        match self.eat_mark(mark) {
            true => Ok(()),
            false => Err(self.unexpected_token_error(&format!("expected `{mark}`"))),
        }
    }

    /// "found; expected", at the next token.
    fn unexpected_token_error(&self, expected: &str) -> FilterError {
        let found = match self.peek() {
            FilterTokenKind::End => "the filter ends here".to_owned(),
            FilterTokenKind::Mark(mark) => format!("`{mark}`"),
            FilterTokenKind::Name(name) => format!("`{}`", format_excerpt(name)),
            FilterTokenKind::Text(_) => "a text".to_owned(),
            FilterTokenKind::Number(..) => "a number".to_owned(),
        };
        FilterError::syntax(self.position(), format!("{found}; {expected}"))
    }

    /// The next level, or an error at the limit. Every recursion goes through it.
    fn increase_depth(&self, depth: usize) -> Result<usize, FilterError> {
        match depth < MAX_DEPTH {
            true => Ok(depth + 1),
            false => Err(FilterError::TooDeep { at: self.position(), limit: MAX_DEPTH }),
        }
    }

    /// `or`, the lowest precedence.
    fn parse_disjunction(&mut self, depth: usize) -> FilterParseResult {
        let at = self.position();
        let first = self.parse_conjunction(depth)?;
        if !matches!(self.peek(), FilterTokenKind::Mark("or")) {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.eat_mark("or") {
            operands.push(self.parse_conjunction(depth)?);
        }
        Ok(ExpressionNode { at, expr: ExpressionKind::Or(operands) })
    }

    /// `and`.
    fn parse_conjunction(&mut self, depth: usize) -> FilterParseResult {
        let at = self.position();
        let first = self.parse_negation(depth)?;
        if !matches!(self.peek(), FilterTokenKind::Mark("and")) {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.eat_mark("and") {
            operands.push(self.parse_negation(depth)?);
        }
        Ok(ExpressionNode { at, expr: ExpressionKind::And(operands) })
    }

    /// `not`, which binds less tightly than comparisons in Python.
    fn parse_negation(&mut self, depth: usize) -> FilterParseResult {
        let at = self.position();
        if self.eat_mark("not") {
            let operand = self.parse_negation(self.increase_depth(depth)?)?;
            return Ok(ExpressionNode { at, expr: ExpressionKind::Not(Box::new(operand)) });
        }
        self.parse_comparison(depth)
    }

    /// Chained comparisons are kept as one node.
    fn parse_comparison(&mut self, depth: usize) -> FilterParseResult {
        let at = self.position();
        let first = self.parse_sum(depth)?;
        let mut rest = Vec::new();
        while let Some(comparison) = self.parse_comparison_operator()? {
            rest.push((comparison, self.parse_sum(depth)?));
        }
        match rest.is_empty() {
            true => Ok(first),
            false => Ok(ExpressionNode { at, expr: ExpressionKind::Compare(Box::new(first), rest) }),
        }
    }

    /// Consumes a comparison operator, if one follows. `not in` and `is not` are two tokens each.
    fn parse_comparison_operator(&mut self) -> Result<Option<FilterComparison>, FilterError> {
        let FilterTokenKind::Mark(mark) = *self.peek() else { return Ok(None) };
        let comparison = match mark {
            "==" => FilterComparison::Equal,
            "!=" => FilterComparison::NotEqual,
            "<" => FilterComparison::Less,
            "<=" => FilterComparison::LessOrEqual,
            ">" => FilterComparison::Greater,
            ">=" => FilterComparison::GreaterOrEqual,
            "in" => FilterComparison::In,
            "is" => FilterComparison::Is,
            "not" => FilterComparison::NotIn,
            _ => return Ok(None),
        };
        self.take_token();
        match comparison {
            FilterComparison::NotIn => self.require_mark("in").map(|()| Some(comparison)),
            FilterComparison::Is if self.eat_mark("not") => Ok(Some(FilterComparison::IsNot)),
            _ => Ok(Some(comparison)),
        }
    }

    /// `+` and `-`, left-associative. Each operator adds a level to the tree on the left, which counts towards the
    /// depth.
    fn parse_sum(&mut self, depth: usize) -> FilterParseResult {
        let at = self.position();
        let mut left = self.parse_product(depth)?;
        let mut depth = depth;
        loop {
            let operator = match self.peek() {
                FilterTokenKind::Mark("+") => ArithmeticOperator::Add,
                FilterTokenKind::Mark("-") => ArithmeticOperator::Subtract,
                _ => return Ok(left),
            };
            // Each operator adds a level to the tree on its left.
            depth = self.increase_depth(depth)?;
            self.take_token();
            let right = self.parse_product(depth)?;
            left = ExpressionNode { at, expr: ExpressionKind::Arithmetic(operator, Box::new(left), Box::new(right)) };
        }
    }

    /// `*`, `/` and `%`. Operators of Python that SQL lacks are refused by name.
    fn parse_product(&mut self, depth: usize) -> FilterParseResult {
        let at = self.position();
        let mut left = self.parse_unary(depth)?;
        let mut depth = depth;
        loop {
            let operator = match self.peek() {
                FilterTokenKind::Mark("*") => ArithmeticOperator::Multiply,
                FilterTokenKind::Mark("/") => ArithmeticOperator::Divide,
                FilterTokenKind::Mark("%") => ArithmeticOperator::Remainder,
                FilterTokenKind::Mark("//" | "**" | "@" | "<<" | ">>") => {
                    return Err(self.unexpected_token_error("arithmetic has + - * / %"));
                }
                _ => return Ok(left),
            };
            depth = self.increase_depth(depth)?;
            self.take_token();
            let right = self.parse_unary(depth)?;
            left = ExpressionNode { at, expr: ExpressionKind::Arithmetic(operator, Box::new(left), Box::new(right)) };
        }
    }

    /// A sign binds less tightly than a subscript or call.
    fn parse_unary(&mut self, depth: usize) -> FilterParseResult {
        let at = self.position();
        if self.eat_mark("-") {
            let operand = self.parse_unary(self.increase_depth(depth)?)?;
            return Ok(ExpressionNode { at, expr: ExpressionKind::Negative(Box::new(operand)) });
        }
        if self.eat_mark("+") {
            let operand = self.parse_unary(self.increase_depth(depth)?)?;
            return Ok(ExpressionNode { at, expr: ExpressionKind::Positive(Box::new(operand)) });
        }
        self.parse_postfix(depth)
    }

    /// Attributes, subscripts and calls behind an atom.
    fn parse_postfix(&mut self, depth: usize) -> FilterParseResult {
        let at = self.position();
        let mut node = self.parse_atom(depth)?;
        let mut depth = depth;
        loop {
            if !matches!(self.peek(), FilterTokenKind::Mark("." | "[" | "(")) {
                return Ok(node);
            }
            depth = self.increase_depth(depth)?;
            let expr = if self.eat_mark(".") {
                let FilterTokenKind::Name(name) = self.peek().clone() else {
                    return Err(self.unexpected_token_error("expected a name behind the dot"));
                };
                self.take_token();
                ExpressionKind::Attribute(Box::new(node), name)
            } else if self.eat_mark("[") {
                let key = self.parse_disjunction(depth)?;
                self.require_mark("]")?;
                ExpressionKind::Subscript(Box::new(node), Box::new(key))
            } else {
                self.take_token();
                let (arguments, _) = self.parse_list_until(")", depth)?;
                ExpressionKind::Call(Box::new(node), arguments)
            };
            node = ExpressionNode { at, expr };
        }
    }

    /// Literals, names, and whatever is in brackets.
    fn parse_atom(&mut self, depth: usize) -> FilterParseResult {
        let at = self.position();
        let depth = self.increase_depth(depth)?;
        let expr = match self.peek().clone() {
            FilterTokenKind::Name(name) => ExpressionKind::Name(name),
            FilterTokenKind::Text(text) => ExpressionKind::Text(text),
            FilterTokenKind::Number(number, form) => ExpressionKind::Number(number, form),
            FilterTokenKind::Mark("True") => ExpressionKind::Bool(true),
            FilterTokenKind::Mark("False") => ExpressionKind::Bool(false),
            FilterTokenKind::Mark("None") => ExpressionKind::None,
            FilterTokenKind::Mark("[") => {
                self.take_token();
                let (mut items, listing) = self.parse_list_until("]", depth)?;
                return match listing {
                    BracketContent::Loop => Ok(items.remove(0)),
                    _ => Ok(ExpressionNode { at, expr: ExpressionKind::List(items) }),
                };
            }
            FilterTokenKind::Mark("(") => {
                self.take_token();
                let (mut items, listing) = self.parse_list_until(")", depth)?;
                return match listing {
                    // Brackets around one expression add no node.
                    BracketContent::Plain if items.len() == 1 => Ok(items.remove(0)),
                    BracketContent::Loop => {
                        Err(FilterError::syntax(at, "a loop can only stand in any, all, len, max, min or sum"))
                    }
                    _ => Ok(ExpressionNode { at, expr: ExpressionKind::Tuple(items) }),
                };
            }
            FilterTokenKind::Mark("~") => {
                return Err(self.unexpected_token_error("there are no operators on bits; use `not`"));
            }
            FilterTokenKind::Mark("lambda") => {
                return Err(self.unexpected_token_error("functions cannot be made in a filter"));
            }
            _ => return Err(self.unexpected_token_error("expected a name, a value or an opening bracket")),
        };
        self.take_token();
        Ok(ExpressionNode { at, expr })
    }

    /// Expressions up to a closing bracket, and how they are separated.
    fn parse_list_until(
        &mut self,
        close: &str,
        depth: usize,
    ) -> Result<(Vec<ExpressionNode>, BracketContent), FilterError> {
        let (mut items, mut listing) = (Vec::new(), BracketContent::Plain);
        while !self.eat_mark(close) {
            items.push(self.parse_disjunction(depth)?);
            if self.eat_mark(close) {
                break;
            }
            match (self.peek(), listing) {
                // Only after the first expression: `f(a, x for x in y)` is not valid Python either.
                (FilterTokenKind::Mark("for"), BracketContent::Plain) => {
                    let element = items.remove(0);
                    let looped = self.parse_comprehension(element, close, depth)?;
                    self.require_mark(close)?;
                    return Ok((vec![looped], BracketContent::Loop));
                }
                (FilterTokenKind::Mark("="), _) => return Err(self.unexpected_token_error("expected `==`")),
                _ => self.require_mark(",")?,
            }
            listing = BracketContent::Commas;
        }
        Ok((items, listing))
    }

    /// `for x in y if z` behind its element. Only one name and one `for` are allowed.
    fn parse_comprehension(&mut self, element: ExpressionNode, close: &str, depth: usize) -> FilterParseResult {
        let at = element.at;
        self.require_mark("for")?;
        let FilterTokenKind::Name(variable) = self.peek().clone() else {
            return Err(self.unexpected_token_error("expected one name for what is looked at"));
        };
        self.take_token();
        self.require_mark("in")?;
        let iterable = self.parse_disjunction(depth)?;
        let mut conditions = Vec::new();
        while self.eat_mark("if") {
            conditions.push(self.parse_disjunction(depth)?);
        }
        let is_list = close == "]";
        Ok(ExpressionNode {
            at,
            expr: ExpressionKind::Loop(Box::new(ComprehensionExpression {
                element,
                variable,
                iterable,
                conditions,
                is_list,
            })),
        })
    }
}
