//! The right side of a gate: the operator, and the bar that a metric is compared with.

use std::fmt;

/// What a metric is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GateBar {
    /// A share is stored as 0 to 1, even if it was written in percent.
    Value(f64),
    /// The same metric of the baseline, changed by this.
    Baseline(BaselineOffset),
}

/// The distance of the bar from the value of the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BaselineOffset {
    /// In the unit of the metric; points of a share are 0.01 each.
    Difference(f64),
    /// A part of the value of the baseline, 0.1 for `baseline + 10%` of an amount.
    Part(f64),
}

impl BaselineOffset {
    /// The bar for this value of the baseline.
    pub fn apply(self, baseline: f64) -> f64 {
        match self {
            BaselineOffset::Difference(offset) => baseline + offset,
            // The absolute value, since a baseline may be negative.
            BaselineOffset::Part(part) => baseline + part * baseline.abs(),
        }
    }
}

/// `>=`, `>`, `<=` and `<`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOperator {
    AtLeast,
    More,
    AtMost,
    Less,
}

/// Why the text after the operator is not a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BarFault {
    /// Neither a number nor a baseline with an offset.
    Form,
    /// A share above 1, which can never be met: the author probably meant percent.
    AboveAll,
    /// A share below 0, which is always or never met.
    BelowNone,
    /// Percent of nothing.
    PercentOfAmount,
}

impl GateOperator {
    /// Splits an operator off the beginning of a text.
    pub(super) fn split_from(text: &str) -> (GateOperator, &str) {
        match (text.strip_prefix(">="), text.strip_prefix("<=")) {
            (Some(rest), _) => (GateOperator::AtLeast, rest),
            (_, Some(rest)) => (GateOperator::AtMost, rest),
            _ if text.starts_with('>') => (GateOperator::More, &text[1..]),
            _ => (GateOperator::Less, &text[1..]),
        }
    }

    pub(super) fn is_met(self, number: f64, bar: f64) -> bool {
        match self {
            GateOperator::AtLeast => number >= bar,
            GateOperator::More => number > bar,
            GateOperator::AtMost => number <= bar,
            GateOperator::Less => number < bar,
        }
    }
}

impl fmt::Display for GateOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GateOperator::AtLeast => ">=",
            GateOperator::More => ">",
            GateOperator::AtMost => "<=",
            GateOperator::Less => "<",
        })
    }
}

impl GateBar {
    /// `0.85`, `85%`, `$5`, `baseline`, `baseline - 0.02`, `baseline + 2%`. Percent are points of a share; of an amount,
    /// percent of the baseline.
    pub(super) fn parse(text: &str, is_share: bool) -> Result<GateBar, BarFault> {
        let Some(rest) = text.strip_prefix("baseline") else {
            return match parse_number(text).ok_or(BarFault::Form)? {
                (_, true) if !is_share => Err(BarFault::PercentOfAmount),
                (number, _) if is_share && number > 1.0 => Err(BarFault::AboveAll),
                (number, _) if is_share && number < 0.0 => Err(BarFault::BelowNone),
                (number, _) => Ok(GateBar::Value(number)),
            };
        };
        let rest = rest.trim_start();
        let (sign, number) = match (rest.strip_prefix('+'), rest.strip_prefix('-')) {
            _ if rest.is_empty() => return Ok(GateBar::Baseline(BaselineOffset::Difference(0.0))),
            (Some(number), _) => (1.0, number),
            (_, Some(number)) => (-1.0, number),
            (None, None) => return Err(BarFault::Form),
        };
        match parse_number(number).ok_or(BarFault::Form)? {
            (part, true) if !is_share => Ok(GateBar::Baseline(BaselineOffset::Part(sign * part))),
            (number, _) if is_share && number > 1.0 => Err(BarFault::AboveAll),
            (number, _) => Ok(GateBar::Baseline(BaselineOffset::Difference(sign * number))),
        }
    }

    /// The number to compare with; `None` if it is relative to a value that the baseline lacks.
    pub fn resolve(self, baseline: Option<f64>) -> Option<f64> {
        match self {
            GateBar::Value(bar) => Some(bar),
            GateBar::Baseline(offset) => baseline.map(|value| offset.apply(value)),
        }
    }
}

impl fmt::Display for GateBar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match self {
            GateBar::Value(bar) => return write!(f, "{bar}"),
            GateBar::Baseline(BaselineOffset::Difference(offset)) => (*offset, ""),
            // Ten digits: more than users write, and few enough to hide rounding errors.
            GateBar::Baseline(BaselineOffset::Part(part)) => ((part * 1e10).round() / 1e8, "%"),
        };
        match number {
            number if number > 0.0 => write!(f, "baseline + {number}{unit}"),
            number if number < 0.0 => write!(f, "baseline - {}{unit}", -number),
            _ => f.write_str("baseline"),
        }
    }
}

/// Parses a number, and returns whether it was in percent; then it is divided by 100.
fn parse_number(text: &str) -> Option<(f64, bool)> {
    let text = text.trim();
    let (number, is_percent) = match text.strip_suffix('%') {
        Some(number) => (number.trim(), true),
        None => (text.trim_start_matches('$'), false),
    };
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite())?;
    Some((if is_percent { number / 100.0 } else { number }, is_percent))
}
