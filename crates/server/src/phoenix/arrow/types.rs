//! Infers the Arrow type of a column of JSON values: the narrowest type that fits all of them.

use serde_json::Value;

use crate::phoenix::dataframe_rows::DataFrameCell;

/// A type that can only widen. `Null` fits in every other type, and `Mixed` accepts everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum ArrowColumnType {
    /// Nothing but nulls.
    #[default]
    Null,
    Bool,
    Int,
    Float,
    Text,
    Time,
    List(Box<ArrowColumnType>),
    Struct(Vec<(String, ArrowColumnType)>),
    /// Values without a common type, written as texts: strings as they are, the rest as JSON.
    Mixed,
}

/// Maximum nesting. Readers of Arrow refuse nesting a few times deeper than this. Deeper values are written as JSON.
const MAX_DEPTH: usize = 16;
/// Maximum number of fields of one object. Objects with more are used as maps and are written as JSON.
const MAX_FIELDS: usize = 1000;

impl ArrowColumnType {
    /// Widens the type to fit a cell.
    pub(super) fn widen(&mut self, cell: &DataFrameCell) {
        match cell {
            DataFrameCell::Json(value) => self.widen_by(value, 0),
            DataFrameCell::Time(_) if matches!(self, ArrowColumnType::Null | ArrowColumnType::Time) => {
                *self = ArrowColumnType::Time
            }
            DataFrameCell::Time(_) => *self = ArrowColumnType::Mixed,
        }
    }

    /// Widens the outer type first, then the items of a list and the fields of an object. Integers widen to floats;
    /// any other difference is `Mixed`.
    fn widen_by(&mut self, value: &Value, depth: usize) {
        let kind = match value {
            Value::Null => return,
            Value::Bool(_) => ArrowColumnType::Bool,
            Value::Number(number) if number.is_f64() || number.as_i64().is_none() => ArrowColumnType::Float,
            Value::Number(_) => ArrowColumnType::Int,
            Value::String(_) => ArrowColumnType::Text,
            Value::Array(_) if depth < MAX_DEPTH => ArrowColumnType::List(Box::default()),
            Value::Object(_) if depth < MAX_DEPTH => ArrowColumnType::Struct(Vec::new()),
            Value::Array(_) | Value::Object(_) => ArrowColumnType::Mixed,
        };
        match (&mut *self, kind) {
            (ArrowColumnType::Null, kind) => *self = kind,
            (ArrowColumnType::Int, ArrowColumnType::Float) => *self = ArrowColumnType::Float,
            (ArrowColumnType::Float, ArrowColumnType::Int)
            | (ArrowColumnType::List(_), ArrowColumnType::List(_))
            | (ArrowColumnType::Struct(_), ArrowColumnType::Struct(_)) => {}
            (mine, kind) if *mine == kind => {}
            _ => *self = ArrowColumnType::Mixed,
        }
        match (&mut *self, value) {
            (ArrowColumnType::List(item), Value::Array(items)) => {
                items.iter().for_each(|value| item.widen_by(value, depth + 1))
            }
            (ArrowColumnType::Struct(fields), Value::Object(entries)) => {
                let mut is_wide = false;
                for (name, value) in entries {
                    let known = fields.len();
                    match fields.iter_mut().find(|(known, _)| known == name) {
                        Some((_, field)) => field.widen_by(value, depth + 1),
                        None if known >= MAX_FIELDS => {
                            is_wide = true;
                            break;
                        }
                        None => {
                            let mut field = ArrowColumnType::Null;
                            field.widen_by(value, depth + 1);
                            fields.push((name.clone(), field));
                        }
                    }
                }
                if is_wide {
                    *self = ArrowColumnType::Mixed;
                }
            }
            _ => {}
        }
    }

    /// Returns the names of the logical type and of the numpy type in pandas' metadata.
    pub(super) fn pandas_type_names(&self) -> (&'static str, &'static str) {
        match self {
            ArrowColumnType::Null => ("empty", "object"),
            ArrowColumnType::Bool => ("bool", "object"),
            ArrowColumnType::Int => ("int64", "int64"),
            ArrowColumnType::Float => ("float64", "float64"),
            ArrowColumnType::Text | ArrowColumnType::Mixed => ("unicode", "object"),
            ArrowColumnType::Time => ("datetimetz", "datetime64[ns, UTC]"),
            ArrowColumnType::List(_) => ("list", "object"),
            ArrowColumnType::Struct(_) => ("object", "object"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn from_values(values: &[Value]) -> ArrowColumnType {
        let mut kind = ArrowColumnType::default();
        values.iter().for_each(|value| kind.widen(&DataFrameCell::Json(value.clone())));
        kind
    }

    #[test]
    fn types_fit_all_values() {
        assert_eq!(from_values(&[json!(null)]), ArrowColumnType::Null);
        assert_eq!(from_values(&[json!(1), json!(null), json!(2.5)]), ArrowColumnType::Float);
        assert_eq!(from_values(&[json!(1), json!("x")]), ArrowColumnType::Mixed);
        assert_eq!(from_values(&[json!([1]), json!([null, 2])]), ArrowColumnType::List(Box::new(ArrowColumnType::Int)));
        let wanted = vec![("a".to_owned(), ArrowColumnType::Int), ("b".to_owned(), ArrowColumnType::Text)];
        assert_eq!(from_values(&[json!({"a": 1}), json!({"b": "x"})]), ArrowColumnType::Struct(wanted));
        assert_eq!(from_values(&[json!({"a": 1}), json!([1])]), ArrowColumnType::Mixed);
        let object = |fields: usize| (0..fields).map(|number| (number.to_string(), json!(1))).collect();
        assert!(matches!(from_values(&[Value::Object(object(MAX_FIELDS))]), ArrowColumnType::Struct(_)));
        assert_eq!(from_values(&[Value::Object(object(MAX_FIELDS + 1))]), ArrowColumnType::Mixed);
        let mut deep = json!(1);
        for _ in 0..40 {
            deep = json!([deep]);
        }
        let mut kind = &from_values(&[deep]);
        let mut depth = 0;
        while let ArrowColumnType::List(below) = kind {
            (kind, depth) = (below, depth + 1);
        }
        assert_eq!((kind, depth), (&ArrowColumnType::Mixed, MAX_DEPTH));
    }
}
