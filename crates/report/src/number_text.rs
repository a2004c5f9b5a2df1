//! Counts and dollars as people read them. Used by all formats, not only by HTML.

/// `12,345`
pub fn format_count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 step`, `2 steps`
pub fn format_counted_noun(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", format_count(number), if number == 1 { one } else { many })
}

/// Dollars: `$0.0123`, `$12.30`. A tiny cost is `less than $0.0001` and never `$0`, which means that nothing was paid.
pub fn format_usd(dollars: f64) -> String {
    match dollars {
        0.0 => "$0".to_owned(),
        d if d > 0.0 && d < 0.0001 => "less than $0.0001".to_owned(),
        d if d.abs() < 1.0 => format!("${d:.4}"),
        d => format!("${d:.2}"),
    }
}

/// `None` for NaN and infinities, which hostile files of a run can contain.
pub fn filter_finite(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.is_finite())
}
