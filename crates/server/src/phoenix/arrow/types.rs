//! Which type a column of JSON values has in Arrow: the narrowest that all of them fit.

use serde_json::Value;

use crate::phoenix::frame::Cell;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Type {
    /// Nothing but nulls.
    #[default]
    Null,
    Bool,
    Int,
    Float,
    Text,
    Time,
    List(Box<Type>),
    Struct(Vec<(String, Type)>),
    /// Values that have nothing in common: texts as they are, the rest as JSON.
    Mixed,
}

/// Readers of Arrow refuse what is nested deeper than a few times this.
const MAX_DEPTH: usize = 16;
/// Fields of one object.
const MAX_FIELDS: usize = 1000;

impl Type {
    pub(super) fn widen(&mut self, cell: &Cell) {
        match cell {
            Cell::Json(value) => self.widen_by(value, 0),
            Cell::Time(_) if matches!(self, Type::Null | Type::Time) => *self = Type::Time,
            Cell::Time(_) => *self = Type::Mixed,
        }
    }

    fn widen_by(&mut self, value: &Value, depth: usize) {
        let kind = match value {
            Value::Null => return,
            Value::Bool(_) => Type::Bool,
            Value::Number(number) if number.is_f64() || number.as_i64().is_none() => Type::Float,
            Value::Number(_) => Type::Int,
            Value::String(_) => Type::Text,
            Value::Array(_) if depth < MAX_DEPTH => Type::List(Box::default()),
            Value::Object(_) if depth < MAX_DEPTH => Type::Struct(Vec::new()),
            Value::Array(_) | Value::Object(_) => Type::Mixed,
        };
        match (&mut *self, kind) {
            (Type::Null, kind) => *self = kind,
            (Type::Int, Type::Float) => *self = Type::Float,
            (Type::Float, Type::Int)
            | (Type::List(_), Type::List(_))
            | (Type::Struct(_), Type::Struct(_)) => {}
            (mine, kind) if *mine == kind => {}
            _ => *self = Type::Mixed,
        }
        match (&mut *self, value) {
            (Type::List(item), Value::Array(items)) => {
                items.iter().for_each(|value| item.widen_by(value, depth + 1))
            }
            (Type::Struct(fields), Value::Object(entries)) => {
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
                            let mut field = Type::Null;
                            field.widen_by(value, depth + 1);
                            fields.push((name.clone(), field));
                        }
                    }
                }
                if is_wide {
                    *self = Type::Mixed;
                }
            }
            _ => {}
        }
    }

    /// What pandas and numpy call it.
    pub(super) fn names(&self) -> (&'static str, &'static str) {
        match self {
            Type::Null => ("empty", "object"),
            Type::Bool => ("bool", "object"),
            Type::Int => ("int64", "int64"),
            Type::Float => ("float64", "float64"),
            Type::Text | Type::Mixed => ("unicode", "object"),
            Type::Time => ("datetimetz", "datetime64[ns, UTC]"),
            Type::List(_) => ("list", "object"),
            Type::Struct(_) => ("object", "object"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(values: &[Value]) -> Type {
        let mut kind = Type::default();
        values.iter().for_each(|value| kind.widen(&Cell::Json(value.clone())));
        kind
    }

    #[test]
    fn types_fit_all_values() {
        assert_eq!(of(&[json!(null)]), Type::Null);
        assert_eq!(of(&[json!(1), json!(null), json!(2.5)]), Type::Float);
        assert_eq!(of(&[json!(1), json!("x")]), Type::Mixed);
        assert_eq!(of(&[json!([1]), json!([null, 2])]), Type::List(Box::new(Type::Int)));
        let wanted = vec![("a".to_owned(), Type::Int), ("b".to_owned(), Type::Text)];
        assert_eq!(of(&[json!({"a": 1}), json!({"b": "x"})]), Type::Struct(wanted));
        assert_eq!(of(&[json!({"a": 1}), json!([1])]), Type::Mixed);
        let object = |fields: usize| (0..fields).map(|number| (number.to_string(), json!(1))).collect();
        assert!(matches!(of(&[Value::Object(object(MAX_FIELDS))]), Type::Struct(_)));
        assert_eq!(of(&[Value::Object(object(MAX_FIELDS + 1))]), Type::Mixed);
        let mut deep = json!(1);
        for _ in 0..40 {
            deep = json!([deep]);
        }
        let mut kind = &of(&[deep]);
        let mut depth = 0;
        while let Type::List(below) = kind {
            (kind, depth) = (below, depth + 1);
        }
        assert_eq!((kind, depth), (&Type::Mixed, MAX_DEPTH));
    }
}
