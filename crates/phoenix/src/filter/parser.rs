//! Words into expressions, with Python's precedence. Depth is bounded: what is read here is walked by recursion later.

use super::ast::{Comparison, Expr, Loop, Node, Operator};
use super::error::{FilterError, excerpt};
use super::lexer::{Token, Word, tokens};

/// Levels of an expression. People write three or four.
pub(super) const MAX_DEPTH: usize = 64;
/// Room for a list of some thousand ids.
pub(super) const MAX_LENGTH: usize = 256 << 10;
/// Names, operators and brackets: each of them is work for every span. Constants in lists are looked up at once, however many
/// there are, and are not counted. This is enough for a hundred conditions.
pub(super) const MAX_PARTS: usize = 500;

pub(super) fn parse(text: &str) -> Result<Node, FilterError> {
    if text.len() > MAX_LENGTH {
        return Err(FilterError::TooLong { length: text.len(), limit: MAX_LENGTH });
    }
    let tokens = tokens(text)?;
    let is_part =
        |word: &Word| !matches!(word, Word::Text(_) | Word::Number(..) | Word::Mark(",") | Word::End);
    let parts = tokens.iter().filter(|token| is_part(&token.word)).count();
    if parts > MAX_PARTS {
        return Err(FilterError::TooComplex { parts, limit: MAX_PARTS });
    }
    let mut parser = Parser { tokens, next: 0 };
    let node = parser.disjunction(0)?;
    match parser.peek() {
        Word::End => Ok(node),
        Word::Mark("=") => Err(parser.unexpected("expected `==`")),
        _ => Err(parser.unexpected("expected an operator or the end")),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

type Parsed = Result<Node, FilterError>;

/// How expressions between brackets are told apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listing {
    Plain,
    Commas,
    Loop,
}

impl Parser {
    fn peek(&self) -> &Word {
        // The last token is the end, and nothing goes beyond it.
        &self.tokens[self.next].word
    }

    fn at(&self) -> usize {
        self.tokens[self.next].at
    }

    fn take(&mut self) -> Word {
        let word = self.tokens[self.next].word.clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        word
    }

    fn eat(&mut self, mark: &str) -> bool {
        let found = matches!(self.peek(), Word::Mark(found) if *found == mark);
        if found {
            self.take();
        }
        found
    }

    fn require(&mut self, mark: &str) -> Result<(), FilterError> {
        match self.eat(mark) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("expected `{mark}`"))),
        }
    }

    fn unexpected(&self, expected: &str) -> FilterError {
        let found = match self.peek() {
            Word::End => "the filter ends here".to_owned(),
            Word::Mark(mark) => format!("`{mark}`"),
            Word::Name(name) => format!("`{}`", excerpt(name)),
            Word::Text(_) => "a text".to_owned(),
            Word::Number(..) => "a number".to_owned(),
        };
        FilterError::syntax(self.at(), format!("{found}; {expected}"))
    }

    fn deeper(&self, depth: usize) -> Result<usize, FilterError> {
        match depth < MAX_DEPTH {
            true => Ok(depth + 1),
            false => Err(FilterError::TooDeep { at: self.at(), limit: MAX_DEPTH }),
        }
    }

    fn disjunction(&mut self, depth: usize) -> Parsed {
        let at = self.at();
        let first = self.conjunction(depth)?;
        if !matches!(self.peek(), Word::Mark("or")) {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.eat("or") {
            operands.push(self.conjunction(depth)?);
        }
        Ok(Node { at, expr: Expr::Or(operands) })
    }

    fn conjunction(&mut self, depth: usize) -> Parsed {
        let at = self.at();
        let first = self.negation(depth)?;
        if !matches!(self.peek(), Word::Mark("and")) {
            return Ok(first);
        }
        let mut operands = vec![first];
        while self.eat("and") {
            operands.push(self.negation(depth)?);
        }
        Ok(Node { at, expr: Expr::And(operands) })
    }

    fn negation(&mut self, depth: usize) -> Parsed {
        let at = self.at();
        if self.eat("not") {
            let operand = self.negation(self.deeper(depth)?)?;
            return Ok(Node { at, expr: Expr::Not(Box::new(operand)) });
        }
        self.comparison(depth)
    }

    fn comparison(&mut self, depth: usize) -> Parsed {
        let at = self.at();
        let first = self.sum(depth)?;
        let mut rest = Vec::new();
        while let Some(comparison) = self.comparison_operator()? {
            rest.push((comparison, self.sum(depth)?));
        }
        match rest.is_empty() {
            true => Ok(first),
            false => Ok(Node { at, expr: Expr::Compare(Box::new(first), rest) }),
        }
    }

    fn comparison_operator(&mut self) -> Result<Option<Comparison>, FilterError> {
        let Word::Mark(mark) = *self.peek() else { return Ok(None) };
        let comparison = match mark {
            "==" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            "in" => Comparison::In,
            "is" => Comparison::Is,
            "not" => Comparison::NotIn,
            _ => return Ok(None),
        };
        self.take();
        match comparison {
            Comparison::NotIn => self.require("in").map(|()| Some(comparison)),
            Comparison::Is if self.eat("not") => Ok(Some(Comparison::IsNot)),
            _ => Ok(Some(comparison)),
        }
    }

    fn sum(&mut self, depth: usize) -> Parsed {
        let at = self.at();
        let mut left = self.product(depth)?;
        let mut depth = depth;
        loop {
            let operator = match self.peek() {
                Word::Mark("+") => Operator::Add,
                Word::Mark("-") => Operator::Subtract,
                _ => return Ok(left),
            };
            // What is on the left gets one level deeper with each operator.
            depth = self.deeper(depth)?;
            self.take();
            let right = self.product(depth)?;
            left = Node { at, expr: Expr::Arithmetic(operator, Box::new(left), Box::new(right)) };
        }
    }

    fn product(&mut self, depth: usize) -> Parsed {
        let at = self.at();
        let mut left = self.unary(depth)?;
        let mut depth = depth;
        loop {
            let operator = match self.peek() {
                Word::Mark("*") => Operator::Multiply,
                Word::Mark("/") => Operator::Divide,
                Word::Mark("%") => Operator::Remainder,
                Word::Mark("//" | "**" | "@" | "<<" | ">>") => {
                    return Err(self.unexpected("arithmetic has + - * / %"));
                }
                _ => return Ok(left),
            };
            depth = self.deeper(depth)?;
            self.take();
            let right = self.unary(depth)?;
            left = Node { at, expr: Expr::Arithmetic(operator, Box::new(left), Box::new(right)) };
        }
    }

    fn unary(&mut self, depth: usize) -> Parsed {
        let at = self.at();
        if self.eat("-") {
            let operand = self.unary(self.deeper(depth)?)?;
            return Ok(Node { at, expr: Expr::Negative(Box::new(operand)) });
        }
        if self.eat("+") {
            let operand = self.unary(self.deeper(depth)?)?;
            return Ok(Node { at, expr: Expr::Positive(Box::new(operand)) });
        }
        self.postfix(depth)
    }

    fn postfix(&mut self, depth: usize) -> Parsed {
        let at = self.at();
        let mut node = self.atom(depth)?;
        let mut depth = depth;
        loop {
            if !matches!(self.peek(), Word::Mark("." | "[" | "(")) {
                return Ok(node);
            }
            depth = self.deeper(depth)?;
            let expr = if self.eat(".") {
                let Word::Name(name) = self.peek().clone() else {
                    return Err(self.unexpected("expected a name behind the dot"));
                };
                self.take();
                Expr::Attribute(Box::new(node), name)
            } else if self.eat("[") {
                let key = self.disjunction(depth)?;
                self.require("]")?;
                Expr::Subscript(Box::new(node), Box::new(key))
            } else {
                self.take();
                let (arguments, _) = self.list_until(")", depth)?;
                Expr::Call(Box::new(node), arguments)
            };
            node = Node { at, expr };
        }
    }

    fn atom(&mut self, depth: usize) -> Parsed {
        let at = self.at();
        let depth = self.deeper(depth)?;
        let expr = match self.peek().clone() {
            Word::Name(name) => Expr::Name(name),
            Word::Text(text) => Expr::Text(text),
            Word::Number(number, form) => Expr::Number(number, form),
            Word::Mark("True") => Expr::Bool(true),
            Word::Mark("False") => Expr::Bool(false),
            Word::Mark("None") => Expr::None,
            Word::Mark("[") => {
                self.take();
                let (mut items, listing) = self.list_until("]", depth)?;
                return match listing {
                    Listing::Loop => Ok(items.remove(0)),
                    _ => Ok(Node { at, expr: Expr::List(items) }),
                };
            }
            Word::Mark("(") => {
                self.take();
                let (mut items, listing) = self.list_until(")", depth)?;
                return match listing {
                    // Brackets leave no trace, but the place of what is in them.
                    Listing::Plain if items.len() == 1 => Ok(items.remove(0)),
                    Listing::Loop => Err(FilterError::syntax(
                        at,
                        "a loop can only stand in any, all, len, max, min or sum",
                    )),
                    _ => Ok(Node { at, expr: Expr::Tuple(items) }),
                };
            }
            Word::Mark("~") => return Err(self.unexpected("there are no operators on bits; use `not`")),
            Word::Mark("lambda") => return Err(self.unexpected("functions cannot be made in a filter")),
            _ => return Err(self.unexpected("expected a name, a value or an opening bracket")),
        };
        self.take();
        Ok(Node { at, expr })
    }

    /// The expressions up to a closing bracket.
    fn list_until(&mut self, close: &str, depth: usize) -> Result<(Vec<Node>, Listing), FilterError> {
        let (mut items, mut listing) = (Vec::new(), Listing::Plain);
        while !self.eat(close) {
            items.push(self.disjunction(depth)?);
            if self.eat(close) {
                break;
            }
            match (self.peek(), listing) {
                (Word::Mark("for"), Listing::Plain) => {
                    let element = items.remove(0);
                    let looped = self.looped(element, close, depth)?;
                    self.require(close)?;
                    return Ok((vec![looped], Listing::Loop));
                }
                (Word::Mark("="), _) => return Err(self.unexpected("expected `==`")),
                _ => self.require(",")?,
            }
            listing = Listing::Commas;
        }
        Ok((items, listing))
    }

    /// `for x in y if z`, behind its element.
    fn looped(&mut self, element: Node, close: &str, depth: usize) -> Parsed {
        let at = element.at;
        self.require("for")?;
        let Word::Name(variable) = self.peek().clone() else {
            return Err(self.unexpected("expected one name for what is looked at"));
        };
        self.take();
        self.require("in")?;
        let iterable = self.disjunction(depth)?;
        let mut conditions = Vec::new();
        while self.eat("if") {
            conditions.push(self.disjunction(depth)?);
        }
        let is_list = close == "]";
        Ok(Node { at, expr: Expr::Loop(Box::new(Loop { element, variable, iterable, conditions, is_list })) })
    }
}
