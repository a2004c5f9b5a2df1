//! Values that are bound to statements and read from rows.

use std::borrow::Cow;
use std::sync::Arc;

use super::SqlError;

/// A value to bind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SqlParam<'a> {
    Null,
    Bool(bool),
    Integer(i64),
    Real(f64),
    Text(&'a str),
    Blob(&'a [u8]),
}

/// A value to bind that is not known at compile time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SqlValue {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SqlValueRef<'a> {
    Null,
    /// SQLite has integers instead.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    Bool(bool),
    Integer(i64),
    Real(f64),
    /// Text as the engine stores it, which may be damaged in a damaged file.
    Text(&'a [u8]),
    Blob(&'a [u8]),
}

impl SqlValueRef<'_> {
    /// The bytes of a blob; none for every other value.
    pub(crate) fn as_blob(&self) -> &[u8] {
        match self {
            SqlValueRef::Blob(bytes) => bytes,
            _ => &[],
        }
    }
}

/// Types that can be bound.
pub(crate) trait ToSqlParam {
    fn to_param(&self) -> Result<SqlParam<'_>, SqlError>;
}

/// Implements [`ToSqlParam`] for types that convert without failing.
macro_rules! to_param {
    ($($type:ty => |$value:ident| $param:expr;)+) => {$(
        impl ToSqlParam for $type {
            fn to_param(&self) -> Result<SqlParam<'_>, SqlError> {
                let $value = self;
                Ok($param)
            }
        }
    )+};
}

to_param! {
    bool => |value| SqlParam::Bool(*value);
    i32 => |value| SqlParam::Integer(i64::from(*value));
    u32 => |value| SqlParam::Integer(i64::from(*value));
    i64 => |value| SqlParam::Integer(*value);
    f64 => |value| SqlParam::Real(*value);
    str => |value| SqlParam::Text(value);
    String => |value| SqlParam::Text(value);
    Arc<str> => |value| SqlParam::Text(value);
    Cow<'_, str> => |value| SqlParam::Text(value);
    [u8] => |value| SqlParam::Blob(value);
    [u8; 16] => |value| SqlParam::Blob(value);
    [u8; 32] => |value| SqlParam::Blob(value);
    Vec<u8> => |value| SqlParam::Blob(value);
    SqlValue => |value| match value {
        SqlValue::Null => SqlParam::Null,
        SqlValue::Integer(number) => SqlParam::Integer(*number),
        SqlValue::Real(number) => SqlParam::Real(*number),
        SqlValue::Text(text) => SqlParam::Text(text),
        SqlValue::Blob(bytes) => SqlParam::Blob(bytes),
    };
}

// Both engines store signed numbers only.
impl ToSqlParam for u64 {
    fn to_param(&self) -> Result<SqlParam<'_>, SqlError> {
        match i64::try_from(*self) {
            Ok(number) => Ok(SqlParam::Integer(number)),
            Err(_) => Err(SqlError::WrongType { column: 0, reason: format!("{self} is too large to be stored") }),
        }
    }
}

impl ToSqlParam for usize {
    fn to_param(&self) -> Result<SqlParam<'_>, SqlError> {
        match i64::try_from(*self) {
            Ok(number) => Ok(SqlParam::Integer(number)),
            Err(_) => Err(SqlError::WrongType { column: 0, reason: format!("{self} is too large to be stored") }),
        }
    }
}

impl ToSqlParam for SqlParam<'_> {
    fn to_param(&self) -> Result<SqlParam<'_>, SqlError> {
        Ok(*self)
    }
}

impl<T: ToSqlParam + ?Sized> ToSqlParam for &T {
    fn to_param(&self) -> Result<SqlParam<'_>, SqlError> {
        (**self).to_param()
    }
}

impl<T: ToSqlParam> ToSqlParam for Option<T> {
    fn to_param(&self) -> Result<SqlParam<'_>, SqlError> {
        self.as_ref().map_or(Ok(SqlParam::Null), T::to_param)
    }
}

/// Receives the parameters of a statement one by one, with their position from 1.
pub(crate) type ParamVisitor<'v> = dyn FnMut(usize, SqlParam<'_>) -> Result<(), SqlError> + 'v;

/// The parameters of a statement.
pub(crate) trait SqlParams {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) -> Result<(), SqlError>;
}

impl SqlParams for &[&dyn ToSqlParam] {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) -> Result<(), SqlError> {
        self.iter().enumerate().try_for_each(|(index, value)| visitor(index + 1, value.to_param()?))
    }
}

impl<const N: usize> SqlParams for &[&dyn ToSqlParam; N] {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) -> Result<(), SqlError> {
        (&self[..]).visit(visitor)
    }
}

impl<T: ToSqlParam, const N: usize> SqlParams for [T; N] {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) -> Result<(), SqlError> {
        self.iter().enumerate().try_for_each(|(index, value)| visitor(index + 1, value.to_param()?))
    }
}

/// No parameters. Written as `[]`, this is an array without elements of this type.
impl SqlParams for () {
    fn visit(&self, _: &mut ParamVisitor<'_>) -> Result<(), SqlError> {
        Ok(())
    }
}

/// Parameters whose number is not known at compile time.
pub(crate) struct ParamList<T>(Vec<T>);

impl<T: ToSqlParam> SqlParams for ParamList<T> {
    fn visit(&self, visitor: &mut ParamVisitor<'_>) -> Result<(), SqlError> {
        self.0.iter().enumerate().try_for_each(|(index, value)| visitor(index + 1, value.to_param()?))
    }
}

/// Collects parameters whose number is not known at compile time.
pub(crate) fn params_from_iter<T: ToSqlParam>(values: impl IntoIterator<Item = T>) -> ParamList<T> {
    ParamList(values.into_iter().collect())
}

/// Parameters of different types.
macro_rules! params {
    ($($value:expr),* $(,)?) => {
        (&[$(&$value as &dyn $crate::sql::ToSqlParam),*] as &[&dyn $crate::sql::ToSqlParam])
    };
}
pub(crate) use params;

/// A value that is not of the type that the program expects, and why.
#[derive(Debug)]
pub(crate) struct ValueMismatch(pub(crate) String);

/// Types that can be read from a row.
pub(crate) trait FromSqlValue: Sized {
    /// An error says why the value is none of this type.
    fn from_value(value: SqlValueRef<'_>) -> Result<Self, ValueMismatch>;
}

fn wrong_type_error<T>(wanted: &str, value: SqlValueRef<'_>) -> Result<T, ValueMismatch> {
    let found = match value {
        SqlValueRef::Null => "null",
        SqlValueRef::Bool(_) => "a boolean",
        SqlValueRef::Integer(_) => "an integer",
        SqlValueRef::Real(_) => "a floating-point number",
        SqlValueRef::Text(_) => "text",
        SqlValueRef::Blob(_) => "bytes",
    };
    Err(ValueMismatch(format!("{found} instead of {wanted}")))
}

impl FromSqlValue for i64 {
    fn from_value(value: SqlValueRef<'_>) -> Result<i64, ValueMismatch> {
        match value {
            SqlValueRef::Integer(number) => Ok(number),
            SqlValueRef::Bool(is_true) => Ok(i64::from(is_true)),
            other => wrong_type_error("an integer", other),
        }
    }
}

/// Implements [`FromSqlValue`] for smaller integers.
macro_rules! from_integer {
    ($($type:ty),+) => {$(
        impl FromSqlValue for $type {
            fn from_value(value: SqlValueRef<'_>) -> Result<$type, ValueMismatch> {
                let number = i64::from_value(value)?;
                <$type>::try_from(number).map_err(|_| ValueMismatch(format!("{number} is out of range")))
            }
        }
    )+};
}
from_integer!(i32, u32, u64, usize);

impl FromSqlValue for f64 {
    fn from_value(value: SqlValueRef<'_>) -> Result<f64, ValueMismatch> {
        match value {
            SqlValueRef::Real(number) => Ok(number),
            SqlValueRef::Integer(number) => Ok(number as f64),
            other => wrong_type_error("a number", other),
        }
    }
}

impl FromSqlValue for bool {
    fn from_value(value: SqlValueRef<'_>) -> Result<bool, ValueMismatch> {
        match value {
            SqlValueRef::Bool(is_true) => Ok(is_true),
            SqlValueRef::Integer(number) => Ok(number != 0),
            other => wrong_type_error("a boolean", other),
        }
    }
}

impl FromSqlValue for String {
    fn from_value(value: SqlValueRef<'_>) -> Result<String, ValueMismatch> {
        match value {
            SqlValueRef::Text(text) => match std::str::from_utf8(text) {
                Ok(text) => Ok(text.to_owned()),
                Err(error) => Err(ValueMismatch(error.to_string())),
            },
            other => wrong_type_error("text", other),
        }
    }
}

impl FromSqlValue for Arc<str> {
    fn from_value(value: SqlValueRef<'_>) -> Result<Arc<str>, ValueMismatch> {
        String::from_value(value).map(Arc::from)
    }
}

impl FromSqlValue for Vec<u8> {
    fn from_value(value: SqlValueRef<'_>) -> Result<Vec<u8>, ValueMismatch> {
        match value {
            SqlValueRef::Blob(bytes) => Ok(bytes.to_vec()),
            other => wrong_type_error("bytes", other),
        }
    }
}

impl<const N: usize> FromSqlValue for [u8; N] {
    fn from_value(value: SqlValueRef<'_>) -> Result<[u8; N], ValueMismatch> {
        match value {
            SqlValueRef::Blob(bytes) => {
                bytes.try_into().map_err(|_| ValueMismatch(format!("{} bytes instead of {N}", bytes.len())))
            }
            other => wrong_type_error("bytes", other),
        }
    }
}

impl<T: FromSqlValue> FromSqlValue for Option<T> {
    fn from_value(value: SqlValueRef<'_>) -> Result<Option<T>, ValueMismatch> {
        match value {
            SqlValueRef::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

impl FromSqlValue for SqlValue {
    fn from_value(value: SqlValueRef<'_>) -> Result<SqlValue, ValueMismatch> {
        Ok(match value {
            SqlValueRef::Null => SqlValue::Null,
            SqlValueRef::Bool(is_true) => SqlValue::Integer(i64::from(is_true)),
            SqlValueRef::Integer(number) => SqlValue::Integer(number),
            SqlValueRef::Real(number) => SqlValue::Real(number),
            SqlValueRef::Text(text) => SqlValue::Text(String::from_utf8_lossy(text).into_owned()),
            SqlValueRef::Blob(bytes) => SqlValue::Blob(bytes.to_vec()),
        })
    }
}
