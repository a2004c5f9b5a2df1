//! Formats counts and dollars for people, in all output formats.

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

/// An amount with at least `decimals` decimals and two digits that are not 0: `12.50`, `0.0042`. A number that is not
/// 0 must not look like 0.
pub fn format_amount(number: f64, decimals: usize) -> String {
    const MAX_DECIMALS: f64 = 12.0;
    let needed = match number.abs() {
        size if size > 0.0 && size < 1.0 => (1.0 - size.log10().floor()).min(MAX_DECIMALS) as usize,
        _ => 0,
    };
    format!("{number:.0$}", decimals.max(needed))
}

/// `None` for NaN and infinities, which hostile files of a run can contain.
pub fn filter_finite(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_amounts_are_not_zero() {
        let shown = [0.0, 0.5, 0.05, 0.004_23, 12.5, -0.000_31].map(|number| format_amount(number, 2));
        assert_eq!(shown, ["0.00", "0.50", "0.050", "0.0042", "12.50", "-0.00031"]);
        assert_eq!([0.02, 0.000_031].map(|dollars| format_amount(dollars, 4)), ["0.0200", "0.000031"]);
    }
}
