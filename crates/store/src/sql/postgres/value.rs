//! Conversion of values between this crate and PostgreSQL's binary format.

use std::error::Error;

use ::postgres::Row;
use ::postgres::types::private::BytesMut;
use ::postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::sql::{SqlError, SqlParam, SqlValueRef};

/// A parameter. It is encoded in the type that the server expects, which knows columns that SQLite stores as integers.
#[derive(Debug)]
pub(super) struct PostgresParam(pub(super) OwnedParam);

/// A parameter that does not borrow.
#[derive(Debug)]
pub(super) enum OwnedParam {
    Null,
    Bool(bool),
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

impl From<SqlParam<'_>> for PostgresParam {
    fn from(param: SqlParam<'_>) -> PostgresParam {
        PostgresParam(match param {
            SqlParam::Null => OwnedParam::Null,
            SqlParam::Bool(is_true) => OwnedParam::Bool(is_true),
            SqlParam::Integer(number) => OwnedParam::Integer(number),
            SqlParam::Real(number) => OwnedParam::Real(number),
            SqlParam::Text(text) => OwnedParam::Text(replace_nul_chars(text)),
            SqlParam::Blob(bytes) => OwnedParam::Blob(bytes.to_vec()),
        })
    }
}

/// PostgreSQL cannot store the character NUL in texts. Recorded spans are stored as bytes, so none of them changes.
pub(crate) fn replace_nul_chars(text: &str) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text.to_owned() }
}

impl ToSql for PostgresParam {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let integer = match self.0 {
            OwnedParam::Null => return Ok(IsNull::Yes),
            OwnedParam::Bool(is_true) => Some(i64::from(is_true)),
            OwnedParam::Integer(number) => Some(number),
            _ => None,
        };
        match (ty, integer, &self.0) {
            (&Type::BOOL, Some(number), _) => (number != 0).to_sql(ty, out),
            (&Type::INT8, Some(number), _) => number.to_sql(ty, out),
            (&Type::INT4, Some(number), _) => i32::try_from(number)?.to_sql(ty, out),
            (&Type::INT2, Some(number), _) => i16::try_from(number)?.to_sql(ty, out),
            (&Type::FLOAT8, Some(number), _) => (number as f64).to_sql(ty, out),
            (&Type::FLOAT8, None, OwnedParam::Real(number)) => number.to_sql(ty, out),
            (&Type::BYTEA, None, OwnedParam::Blob(bytes)) => bytes.to_sql(ty, out),
            (_, None, OwnedParam::Text(text)) => text.as_str().to_sql(&Type::TEXT, out),
            (ty, _, value) => Err(format!("{value:?} cannot be sent as {ty}").into()),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A column as it was received.
struct RawColumn<'a> {
    ty: Type,
    bytes: Option<&'a [u8]>,
}

impl<'a> FromSql<'a> for RawColumn<'a> {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(RawColumn { ty: ty.clone(), bytes: Some(raw) })
    }

    fn from_sql_null(ty: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(RawColumn { ty: ty.clone(), bytes: None })
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The value of a column.
pub(crate) fn read_value(row: &Row, column: usize) -> Result<SqlValueRef<'_>, SqlError> {
    let raw: RawColumn<'_> = row.try_get(column)?;
    let Some(bytes) = raw.bytes else { return Ok(SqlValueRef::Null) };
    let wrong = |error: Box<dyn Error + Sync + Send>| SqlError::WrongType { column, reason: error.to_string() };
    let ty = &raw.ty;
    Ok(match *ty {
        Type::BOOL => SqlValueRef::Bool(bool::from_sql(ty, bytes).map_err(wrong)?),
        Type::INT8 => SqlValueRef::Integer(i64::from_sql(ty, bytes).map_err(wrong)?),
        Type::INT4 => SqlValueRef::Integer(i64::from(i32::from_sql(ty, bytes).map_err(wrong)?)),
        Type::INT2 => SqlValueRef::Integer(i64::from(i16::from_sql(ty, bytes).map_err(wrong)?)),
        Type::FLOAT8 => SqlValueRef::Real(f64::from_sql(ty, bytes).map_err(wrong)?),
        Type::FLOAT4 => SqlValueRef::Real(f64::from(f32::from_sql(ty, bytes).map_err(wrong)?)),
        Type::NUMERIC => SqlValueRef::Integer(
            read_whole_numeric(bytes).map_err(|reason| SqlError::WrongType { column, reason: reason.to_owned() })?,
        ),
        Type::TEXT | Type::VARCHAR | Type::NAME | Type::UNKNOWN => SqlValueRef::Text(bytes),
        Type::BYTEA => SqlValueRef::Blob(bytes),
        _ => return Err(SqlError::WrongType { column, reason: format!("a value of the unexpected type {ty}") }),
    })
}

/// A whole number in the type `numeric`, which sums of integers have.
///
/// Format: four 16-bit numbers (count of digits, weight of the first digit, sign, scale), then the digits to base 10,000.
fn read_whole_numeric(bytes: &[u8]) -> Result<i64, &'static str> {
    const TOO_SHORT: &str = "a number is cut off";
    let word = |index: usize| -> Result<u16, &'static str> {
        let pair = bytes.get(2 * index..2 * index + 2).ok_or(TOO_SHORT)?;
        Ok(u16::from_be_bytes([pair[0], pair[1]]))
    };
    let (count, weight, sign) = (usize::from(word(0)?), word(1)? as i16, word(2)?);
    let mut number: i64 = 0;
    for position in 0..=i32::from(weight) {
        let digit = match usize::try_from(position).ok().filter(|index| *index < count) {
            Some(index) => i64::from(word(4 + index)?),
            // Trailing zeros are left out.
            None => 0,
        };
        number = number.checked_mul(10_000).and_then(|sum| sum.checked_add(digit)).ok_or("a sum is too large")?;
    }
    match sign {
        0x0000 => Ok(number),
        0x4000 => Ok(-number),
        _ => Err("a sum is not a number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(weight: i16, sign: u16, digits: &[u16]) -> Vec<u8> {
        let head = [digits.len() as u16, weight as u16, sign, 0];
        head.iter().chain(digits).flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn sums_are_read_as_whole_numbers() {
        assert_eq!(read_whole_numeric(&numeric(0, 0, &[])), Ok(0));
        assert_eq!(read_whole_numeric(&numeric(0, 0, &[42])), Ok(42));
        assert_eq!(read_whole_numeric(&numeric(1, 0x4000, &[1, 5])), Ok(-10_005));
        assert_eq!(read_whole_numeric(&numeric(2, 0, &[7])), Ok(700_000_000));
        assert!(read_whole_numeric(&numeric(9, 0, &[7])).is_err());
        assert!(read_whole_numeric(&numeric(0, 0xC000, &[])).is_err());
        assert!(read_whole_numeric(&[0, 1]).is_err());
    }
}
