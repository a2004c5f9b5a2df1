//! The clock of the store: nanoseconds since 1970 as `i64`, which last until the year 2262.

/// Length of a UTC day.
pub(crate) const DAY_NS: i64 = 86_400_000_000_000;

/// Returns the start of the current UTC day, where daily budgets reset.
pub(super) fn today_ns() -> i64 {
    now_ns().div_euclid(DAY_NS) * DAY_NS
}

/// Nanoseconds since 1970.
pub fn now_ns() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}
