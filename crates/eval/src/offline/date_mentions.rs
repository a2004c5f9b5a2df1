//! Collects dates that texts mention, in full, in part or relative to the current date, and checks whether a date
//! follows from them.

use jiff::civil::{Date, Weekday};

use super::text_pieces::{PieceSeparators, trim_piece};

/// Mentions with the position of the step whose result contains them; `None` before the first step.
#[derive(Debug, Default)]
pub(super) struct DateMentions {
    full: Vec<(Date, Option<u32>)>,
    /// Full dates that relative dates refer to: those of the instructions and of the user.
    anchors: Vec<Date>,
    /// Full dates that state the current day: those of the instructions and of short results.
    clocks: Vec<Date>,
    /// Month and day, without a year.
    days: Vec<(i8, i8, Option<u32>)>,
    /// "the 20th".
    ordinals: Vec<i8>,
    /// Month names without a day.
    months: u16,
    /// Weekday names, one bit each, Monday first.
    weekdays: u8,
    /// "tomorrow", "next week", "3 days ago": from and to, in days relative to an anchor.
    ranges: Vec<(i32, i32)>,
    /// "this month", "last quarter": the first or last day of a month is meant.
    has_period: bool,
}

/// Who wrote a text. Only the user's words move dates: instructions and results are full of "next" and "current".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DateWriter {
    User,
    Instructions,
    /// The tool that a step called, by its position, or the agent itself.
    Other(Option<u32>),
}

/// Maximum number of stored mentions of each kind.
const MAX_MENTIONS: usize = 2_000;
/// Maximum distance in days of a weekday from the current date.
const MAX_WEEKDAY_DAYS: i32 = 14;
/// Maximum number of anchor dates of one text.
const MAX_ANCHORS: usize = 20;
/// Maximum bytes of a result that states the current date. Longer results are lists.
const MAX_CLOCK_BYTES: usize = 120;

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const LONG_MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

const SEPARATORS: PieceSeparators = PieceSeparators::new("\"'()[]{},;`\\", char::is_whitespace);

impl DateMentions {
    /// Reads all mentions of a text.
    pub(super) fn add_text(&mut self, text: &str, writer: DateWriter) {
        let step = match writer {
            DateWriter::Other(step) => step,
            _ => None,
        };
        let known = self.full.len();
        let mut before: [&str; 2] = ["", ""];
        // Only words near digits and names matter, so one pass with the two words before each is enough.
        SEPARATORS.split(text, |piece, is_plain| {
            let word = if is_plain { piece } else { trim_piece(piece) };
            if word.is_empty() {
                return;
            }
            if word.as_bytes()[0].is_ascii_digit() {
                self.record_digit_mention(word, before, step);
            } else if word.len() <= 9 && word.is_ascii() && (writer == DateWriter::User || month_number(word).is_some())
            {
                self.record_word_mention(word, before, writer, step);
            }
            before = [before[1], word];
        });
        // A short result may be the current date that the agent asked for.
        if !matches!(writer, DateWriter::Other(_)) || text.len() < MAX_CLOCK_BYTES {
            let found = || self.full[known..].iter().map(|(date, _)| *date).take(MAX_ANCHORS);
            self.anchors.extend(found());
            if writer != DateWriter::User {
                self.clocks.extend(found());
            }
        }
    }

    fn record_digit_mention(&mut self, word: &str, before: [&str; 2], step: Option<u32>) {
        if let Some(date) = parse_full_date(word) {
            push_bounded(&mut self.full, (date, step));
            return;
        }
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        let Ok(number) = word[..digits].parse::<u32>() else { return };
        let rest = &word[digits..];
        let is_ordinal = matches!(rest.to_ascii_lowercase().as_str(), "st" | "nd" | "rd" | "th");
        if (1..=31).contains(&number) && (rest.is_empty() || is_ordinal) {
            let day = number as i8;
            // "May 20", "May the 20th"
            let month = month_number(before[1])
                .or_else(|| month_number(before[0]).filter(|_| matches!(before[1], "the" | "of")));
            if let Some(month) = month {
                push_bounded(&mut self.days, (month, day, step));
            } else if is_ordinal {
                push_bounded(&mut self.ordinals, day);
            }
        }
        // "May 20, 2024": the year completes the date before it.
        if (1900..2200).contains(&number)
            && rest.is_empty()
            && let Some((month, day, _)) = self.days.last().copied()
            && month_number(before[0]) == Some(month)
            && let Ok(date) = Date::new(number as i16, month, day)
        {
            push_bounded(&mut self.full, (date, step));
        }
        // "5/20", "20.5."
        if let Some((one, other)) = word.split_once(['/', '.'])
            && let (Ok(one), Ok(other)) = (one.parse::<i8>(), other.trim_end_matches('.').parse::<i8>())
        {
            for (month, day) in [(one, other), (other, one)] {
                if (1..=12).contains(&month) && (1..=31).contains(&day) {
                    push_bounded(&mut self.days, (month, day, step));
                }
            }
        }
    }

    fn record_word_mention(&mut self, word: &str, before: [&str; 2], writer: DateWriter, step: Option<u32>) {
        let lower = word.to_ascii_lowercase();
        if let Some(month) = month_number(&lower) {
            // "20 May", "20th of May"
            for said in before {
                let digits = said.bytes().take_while(u8::is_ascii_digit).count();
                if let Ok(day) = said[..digits].parse::<i8>()
                    && (1..=31).contains(&day)
                    && said.len() <= digits + 2
                {
                    push_bounded(&mut self.days, (month, day, step));
                }
            }
            self.months |= u16::from(writer == DateWriter::User) << month;
            return;
        }
        if writer != DateWriter::User {
            return;
        }
        let stem = lower.strip_suffix('s').unwrap_or(&lower);
        let is_weekday = |name: &&str| *name == stem || (3..=4).contains(&stem.len()) && name.starts_with(stem);
        if let Some(day) = WEEKDAYS.iter().position(is_weekday) {
            self.weekdays |= 1 << day;
            return;
        }
        let count = super::number_text::parse_count(before[1]).map(|count| count.min(10_000.0) as i32);
        let is_past =
            before.iter().any(|said| matches!(said.to_ascii_lowercase().as_str(), "last" | "past" | "previous"));
        let both = |days: i32, slack: i32| [(days - slack, days + slack), (-days - slack, -days + slack)];
        let mut push = |range: (i32, i32)| push_bounded(&mut self.ranges, range);
        match (stem, count) {
            ("today" | "tonight" | "now", _) => push((0, 0)),
            ("morning" | "afternoon" | "evening", _) => push((0, 1)),
            ("tomorrow", _) => push((1, if before[1] == "after" { 2 } else { 1 })),
            ("yesterday", _) => push((if before[1] == "before" { -2 } else { -1 }, -1)),
            ("day" | "night", Some(count)) => both(count, 1).into_iter().for_each(push),
            ("week", Some(count)) => both(count.saturating_mul(7), 1).into_iter().for_each(push),
            ("month", Some(count)) => both(count.saturating_mul(30), 3).into_iter().for_each(push),
            ("year", Some(count)) => both(count.saturating_mul(365), 3).into_iter().for_each(push),
            ("week", None) if is_past => push((-14, 0)),
            ("week", None) => push((-7, 14)),
            ("weekend", _) => self.weekdays |= 0b110_0000,
            ("month" | "quarter" | "year", None) => self.has_period = true,
            _ => {}
        }
    }

    /// Returns whether the date is mentioned, or follows from a mention, before the step at `before`. `None` if
    /// neither holds.
    pub(super) fn explain(&self, date: Date, before: usize) -> Option<DateOrigin> {
        let is_known = |step: &Option<u32>| step.is_none_or(|step| (step as usize) < before);
        if self.full.iter().any(|(known, step)| *known == date && is_known(step)) {
            return Some(DateOrigin::Mentioned);
        }
        if self.days.iter().any(|(month, day, step)| (*month, *day) == (date.month(), date.day()) && is_known(step)) {
            return Some(DateOrigin::Derived);
        }
        let is_first_or_last = date.day() == 1 || date == date.last_of_month();
        if self.months & (1 << date.month()) != 0 && (is_first_or_last || self.ordinals.contains(&date.day())) {
            return Some(DateOrigin::Derived);
        }
        let follows = self.anchors.iter().any(|from| {
            let days = (date - *from).get_days();
            let is_near = days.abs() <= MAX_WEEKDAY_DAYS;
            // "Since Monday" ends today or yesterday, which need not be mentioned.
            days.abs() <= 1 && self.clocks.contains(from)
                || self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&days))
                || is_near && self.weekdays & weekday_bit(date) != 0
                || self.ordinals.contains(&date.day()) && days.abs() <= 366
                || self.has_period && is_first_or_last && days.abs() <= 366
        });
        follows.then_some(DateOrigin::Derived)
    }

    /// Whether any date is known that others could follow from.
    pub(super) fn has_anchor(&self) -> bool {
        !self.anchors.is_empty()
    }
}

/// How a date is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DateOrigin {
    Mentioned,
    /// From a part of a date, or relative to another one.
    Derived,
}

fn push_bounded<T>(list: &mut Vec<T>, item: T) {
    if list.len() < MAX_MENTIONS {
        list.push(item);
    }
}

fn month_number(word: &str) -> Option<i8> {
    // Called for every word of every result, and most of them begin with another letter.
    if !matches!(word.as_bytes().first()? | 0x20, b'j' | b'f' | b'm' | b'a' | b's' | b'o' | b'n' | b'd') {
        return None;
    }
    let start = word.get(..3)?;
    let at = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(start))?;
    let is_month = word.len() == 3 || [LONG_MONTHS[at], "sept"].iter().any(|name| name.eq_ignore_ascii_case(word));
    is_month.then_some(at as i8 + 1)
}

fn weekday_bit(date: Date) -> u8 {
    1 << match date.weekday() {
        Weekday::Monday => 0,
        Weekday::Tuesday => 1,
        Weekday::Wednesday => 2,
        Weekday::Thursday => 3,
        Weekday::Friday => 4,
        Weekday::Saturday => 5,
        Weekday::Sunday => 6,
    }
}

/// Parses the date in `2031-05-20`, `2031/5/20`, `20.05.2031`, `5/20/2031`, `20310520`, with or without a time after
/// it. If day and month are ambiguous, the more usual order is used; see [`swapped_date`].
pub(super) fn parse_full_date(text: &str) -> Option<Date> {
    let text = text.split(['T', ' ']).next().unwrap_or_default();
    if text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let (year, rest) = text.split_at(4);
        let date = Date::new(year.parse().ok()?, rest[..2].parse().ok()?, rest[2..].parse().ok()?).ok()?;
        return (1990..2100).contains(&date.year()).then_some(date);
    }
    let mut parts = text.split(['-', '/', '.']);
    let (one, two, three) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'/' | b'.')) {
        return None;
    }
    if one.len() == 4 && two.len() <= 2 && three.len() <= 2 {
        return Date::new(one.parse().ok()?, two.parse().ok()?, three.parse().ok()?).ok();
    }
    if three.len() == 4 && one.len() <= 2 && two.len() <= 2 {
        let (one, two, year) = (one.parse().ok()?, two.parse().ok()?, three.parse().ok()?);
        let american = Date::new(year, one, two).ok();
        let european = Date::new(year, two, one).ok();
        return if text.contains('/') { american.or(european) } else { european.or(american) };
    }
    None
}

/// Returns the other reading of a date with ambiguous day and month: `05-12-2031`.
pub(super) fn swapped_date(text: &str, date: Date) -> Option<Date> {
    let is_year_first = text.as_bytes().iter().take_while(|byte| byte.is_ascii_digit()).count() >= 4;
    if is_year_first { None } else { Date::new(date.year(), date.day(), date.month()).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explains(text: &str, date: &str) -> bool {
        let mut mentions = DateMentions::default();
        mentions.add_text(text, DateWriter::User);
        mentions.explain(parse_full_date(date).unwrap(), 0).is_some()
    }

    #[test]
    fn dates_in_any_form_are_mentions() {
        for text in
            ["on 2031-05-20 at 9", "May 20", "20th of May", "May 20th, 2031", "5/20/2031", "20.05.2031", "20 May 2031"]
        {
            assert!(explains(text, "2031-05-20"), "{text}");
            assert!(!explains(text, "2031-05-21"), "{text}");
        }
        assert!(explains("2031-05-20 10:00", "2031-05-20"));
    }

    #[test]
    fn relative_words_need_a_known_date() {
        assert!(explains("Today is 2031-05-20. Move it to tomorrow.", "2031-05-21"));
        assert!(explains("Today is 2031-05-20. Move it to Friday.", "2031-05-23"));
        assert!(!explains("Today is 2031-05-20. Move it to Friday.", "2031-05-22"));
        assert!(!explains("Today is 2031-05-20. Move it to Friday.", "2031-05-26"));
        assert!(!explains("Move it to tomorrow.", "2031-05-21"));
        assert!(explains("Today is 2031-05-20. In the last 30 days?", "2031-04-20"));
        assert!(!explains("Today is 2031-05-20. Close it.", "2031-05-22"));
        assert!(explains("Today is 2031-05-20. Ask again in two weeks.", "2031-06-03"));
        let mut mentions = DateMentions::default();
        mentions.add_text("The current date is 2031-05-20; look at next week, too.", DateWriter::Instructions);
        assert!(mentions.explain(parse_full_date("2031-05-27").unwrap(), 0).is_none(), "not the user's words");
    }
}
