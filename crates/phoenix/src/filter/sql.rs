//! SQL semantics. Phoenix turns filters into queries, so that comparisons of missing values, of numbers in texts and of
//! lists in attributes have the result that SQLite gives them.

use std::borrow::Cow;
use std::cmp::Ordering;

use serde_json::{Map, Number, Value as Json};

use super::ast::{ArithmeticOperator, FilterComparison};
use super::names::AttributePathStep;

/// A value with SQLite's storage classes, as far as filters need them.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SqlValue<'a> {
    /// SQL's NULL. Every comparison with it is unknown.
    Null,
    Number(f64),
    /// A number from a column with numeric affinity: a text that it is compared with is converted to a number first.
    Score(f64),
    /// Borrowed from the span where possible: texts can be megabytes.
    Text(Cow<'a, str>),
}

/// Three-valued logic: none is unknown.
pub(super) type SqlTruth = Option<bool>;

impl<'a> SqlValue<'a> {
    pub(super) fn from_text(text: impl Into<Cow<'a, str>>) -> SqlValue<'a> {
        SqlValue::Text(text.into())
    }

    /// 1, 0 or null, as SQLite represents booleans.
    pub(super) fn from_truth(truth: SqlTruth) -> SqlValue<'a> {
        truth.map_or(SqlValue::Null, |truth| SqlValue::Number(f64::from(u8::from(truth))))
    }

    /// `CAST(x AS REAL)`; none for null.
    pub(super) fn to_number(&self) -> Option<f64> {
        match self {
            SqlValue::Null => None,
            SqlValue::Number(number) | SqlValue::Score(number) => Some(*number),
            SqlValue::Text(text) => Some(leading_number(text)),
        }
    }

    /// `CAST(x AS TEXT)`; none for null.
    pub(super) fn into_text(self) -> Option<Cow<'a, str>> {
        match self {
            SqlValue::Null => None,
            SqlValue::Number(number) | SqlValue::Score(number) => Some(Cow::Owned(format_sql_number(number))),
            SqlValue::Text(text) => Some(text),
        }
    }
}

/// The value at a path; none if it does not exist or is null.
pub(super) fn find_path_value<'a>(attributes: &'a Map<String, Json>, path: &[AttributePathStep]) -> Option<&'a Json> {
    let (first, rest) = path.split_first()?;
    let AttributePathStep::Key(key) = first else { return None };
    let mut value = attributes.get(key)?;
    for step in rest {
        value = match (step, value) {
            (AttributePathStep::Key(key), Json::Object(below)) => below.get(key)?,
            (AttributePathStep::Index(index), Json::Array(items)) => items.get(*index)?,
            _ => return None,
        };
    }
    (!value.is_null()).then_some(value)
}

/// An attribute as SQLite's `json_extract` prints it: booleans are 1 and 0, lists and objects are JSON.
pub(super) fn as_text(value: &Json) -> Cow<'_, str> {
    match value {
        Json::String(text) => Cow::Borrowed(text),
        Json::Bool(value) => Cow::Borrowed(if *value { "1" } else { "0" }),
        Json::Number(number) => match number.as_f64() {
            Some(real) if number.is_f64() => Cow::Owned(format_sql_real(real)),
            _ => Cow::Owned(number.to_string()),
        },
        other => Cow::Owned(other.to_string()),
    }
}

/// A number, a boolean, or a text that is a JSON number.
pub(super) fn as_number(value: &Json) -> Option<f64> {
    match value {
        Json::Bool(value) => Some(f64::from(u8::from(*value))),
        Json::Number(number) => number.as_f64(),
        Json::String(text) => parse_whole_json_number(text),
        _ => None,
    }
}

/// A text that is a JSON number as a whole.
pub(super) fn parse_whole_json_number(text: &str) -> Option<f64> {
    // The first character saves parsing what is mostly prose.
    if !text.trim_start().starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return None;
    }
    serde_json::from_str::<Number>(text).ok()?.as_f64()
}

/// A boolean, 1 or 0, or a text that is a boolean.
pub(super) fn as_flag(value: &Json) -> SqlTruth {
    match value {
        Json::Bool(value) => Some(*value),
        Json::Number(number) => one_or_zero_as_flag(number),
        Json::String(text) => parse_true_or_false(text),
        _ => None,
    }
}

/// Only 1 and 0 are booleans.
pub(super) fn one_or_zero_as_flag(number: &Number) -> SqlTruth {
    match number.as_i64() {
        Some(1) => Some(true),
        Some(0) => Some(false),
        _ => None,
    }
}

/// "true" and "false" in any case.
pub(super) fn parse_true_or_false(text: &str) -> SqlTruth {
    let is_true = text.eq_ignore_ascii_case("true");
    (is_true || text.eq_ignore_ascii_case("false")).then_some(is_true)
}

/// Compares by SQLite's rules; unknown if one side is null. Texts compare by bytes.
pub(super) fn compare_values(left: &SqlValue<'_>, comparison: FilterComparison, right: &SqlValue<'_>) -> SqlTruth {
    let ordering = match (left, right) {
        (SqlValue::Null, _) | (_, SqlValue::Null) => return None,
        (SqlValue::Text(left), SqlValue::Text(right)) => left.as_bytes().cmp(right.as_bytes()),
        // A numeric column converts a text to a number if it is one; all other texts sort after all numbers.
        (SqlValue::Score(score), SqlValue::Text(text)) => {
            text.trim().parse().map_or(Ordering::Less, |number| compare_floats(*score, number))
        }
        (SqlValue::Text(text), SqlValue::Score(score)) => {
            text.trim().parse().map_or(Ordering::Greater, |number| compare_floats(number, *score))
        }
        // Without affinity the number is compared as the text that SQLite prints for it.
        (SqlValue::Text(left), SqlValue::Number(right)) => left.as_ref().cmp(&format_sql_number(*right)),
        (SqlValue::Number(left), SqlValue::Text(right)) => format_sql_number(*left).as_str().cmp(right),
        (SqlValue::Number(left) | SqlValue::Score(left), SqlValue::Number(right) | SqlValue::Score(right)) => {
            compare_floats(*left, *right)
        }
    };
    Some(match comparison {
        FilterComparison::Equal | FilterComparison::Is | FilterComparison::In => ordering.is_eq(),
        FilterComparison::NotEqual | FilterComparison::IsNot | FilterComparison::NotIn => ordering.is_ne(),
        FilterComparison::Less => ordering.is_lt(),
        FilterComparison::LessOrEqual => ordering.is_le(),
        FilterComparison::Greater => ordering.is_gt(),
        FilterComparison::GreaterOrEqual => ordering.is_ge(),
    })
}

/// None for division by zero and for results that are not a number. The remainder truncates its operands to integers,
/// as SQLite does.
pub(super) fn apply_arithmetic(left: f64, operator: ArithmeticOperator, right: f64) -> Option<f64> {
    let result = match operator {
        ArithmeticOperator::Add => left + right,
        ArithmeticOperator::Subtract => left - right,
        ArithmeticOperator::Multiply => left * right,
        ArithmeticOperator::Divide | ArithmeticOperator::Remainder if right == 0.0 => return None,
        ArithmeticOperator::Divide => left / right,
        ArithmeticOperator::Remainder => (left as i64).checked_rem(right as i64)? as f64,
    };
    (!result.is_nan()).then_some(result)
}

/// Case folding for substring search.
pub(super) fn fold_unicode_case(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_ascii() => folded.push(c.to_ascii_lowercase()),
            'ς' => folded.push('σ'),
            c => folded.extend(c.to_lowercase()),
        }
    }
    folded
}

/// Whether a text contains an already folded one. ASCII texts, the common case, are folded window by window instead of
/// being copied as a whole.
pub(super) fn contains_folded_needle(text: &str, folded: &str) -> bool {
    if !text.is_ascii() {
        return fold_unicode_case(text).contains(folded);
    }
    if text.len() < folded.len() || !folded.is_ascii() {
        return false;
    }
    // Windows overlap by the length of the needle. The total work is linear in the text for any needle.
    let step = WINDOW_BYTES.max(4 * folded.len());
    let mut window = String::with_capacity(step.min(text.len()) + folded.len());
    let mut begin = 0;
    loop {
        let end = (begin + step + folded.len()).min(text.len());
        window.clear();
        window.push_str(&text[begin..end]);
        window.make_ascii_lowercase();
        if window.contains(folded) {
            return true;
        }
        if end == text.len() {
            return false;
        }
        begin += step;
    }
}

/// Bytes that are folded at once.
const WINDOW_BYTES: usize = 16 << 10;

/// The number at the beginning of a text, or 0, as `CAST` gives it.
pub(super) fn leading_number(text: &str) -> f64 {
    let text = text.trim_start();
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let sign = usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let mut end = sign + digits(sign);
    if bytes.get(end) == Some(&b'.') {
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let exponent = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let count = if exponent <= bytes.len() { digits(exponent) } else { 0 };
        if count > 0 {
            end = exponent + count;
        }
    }
    text[..end].parse().unwrap_or(0.0)
}

/// NaN cannot occur: JSON has none and arithmetic filters it.
fn compare_floats(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).unwrap_or(Ordering::Equal)
}

/// Integers without a decimal point up to the precision of a double.
fn format_sql_number(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 { format!("{number:.0}") } else { format_sql_real(number) }
}

/// A REAL as SQLite prints it: 15 significant digits if they suffice, otherwise 17, and always a decimal point.
fn format_sql_real(number: f64) -> String {
    let short = format!("{number:.14e}");
    let written = if short.parse() == Ok(number) { short } else { format!("{number:.16e}") };
    let Some((digits, exponent)) = written.split_once('e') else { return written };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    if number != 0.0 && !(-4..17).contains(&exponent) {
        let point = if digits.contains('.') { "" } else { ".0" };
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}{point}e{sign}{:02}", exponent.abs());
    }
    // As many decimals as there are digits after the point, and at least one.
    let count = digits.bytes().filter(u8::is_ascii_digit).count() as i32;
    let decimals = usize::try_from(count - 1 - exponent).unwrap_or(0).max(1);
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attributes_as_texts() {
        let written = [
            (json!("x"), "x"),
            (json!(true), "1"),
            (json!(12), "12"),
            (json!(0.5), "0.5"),
            (json!(100.0), "100.0"),
            (json!(1e16), "10000000000000000.0"),
            (json!(1.5e17), "1.5e+17"),
            (json!(1e20), "1.0e+20"),
            (json!(1_234_567.891_234_567), "1234567.8912345669"),
            (json!(0.1 + 0.2), "0.30000000000000004"),
            (json!(0.00001), "1.0e-05"),
            (json!({"a": [1, "é"]}), "{\"a\":[1,\"é\"]}"),
        ];
        for (value, text) in written {
            assert_eq!(as_text(&value), text);
        }
    }

    #[test]
    fn attributes_as_numbers_and_flags() {
        let numbers = [
            (json!("12"), Some(12.0)),
            (json!(" 1e3"), Some(1000.0)),
            (json!("+5"), None),
            (json!("12 apples"), None),
            (json!(true), Some(1.0)),
            (json!([1]), None),
        ];
        for (value, number) in numbers {
            assert_eq!(as_number(&value), number, "{value}");
        }
        let flags = [
            (json!(true), Some(true)),
            (json!(0), Some(false)),
            (json!("TRUE"), Some(true)),
            (json!(2), None),
            (json!(1.0), None),
            (json!("1"), None),
        ];
        for (value, flag) in flags {
            assert_eq!(as_flag(&value), flag, "{value}");
        }
    }

    #[test]
    fn numbers_at_the_beginning_of_texts() {
        let texts = [
            ("12apples", 12.0),
            ("  -1.5e2x", -150.0),
            ("abc", 0.0),
            ("", 0.0),
            ("1e", 1.0),
            (".5", 0.5),
            ("1e+", 1.0),
            ("-", 0.0),
        ];
        for (text, number) in texts {
            assert_eq!(leading_number(text), number, "{text}");
        }
    }

    #[test]
    fn searching_takes_no_heed_of_case() {
        assert!(contains_folded_needle("The REFUND desk", "refund"));
        assert!(contains_folded_needle("ÉTÉ", &fold_unicode_case("été")));
        assert!(contains_folded_needle("x", ""));
        assert!(!contains_folded_needle("fund", "refund"));
        assert!(!contains_folded_needle("", "x"));
    }

    #[test]
    fn arithmetic_has_no_division_by_zero() {
        assert_eq!(apply_arithmetic(1.0, ArithmeticOperator::Divide, 0.0), None);
        assert_eq!(apply_arithmetic(5.9, ArithmeticOperator::Remainder, 2.0), Some(1.0));
        assert_eq!(apply_arithmetic(5.0, ArithmeticOperator::Remainder, 0.5), None);
        assert_eq!(apply_arithmetic(i64::MIN as f64, ArithmeticOperator::Remainder, -1.0), None);
    }
}
