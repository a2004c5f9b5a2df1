//! Counts as people read them. Used by all formats, not only by HTML.

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
