//! Values read out of texts: issue numbers, counts, lines, rows of tables. All functions accept any text, since final
//! messages are written by models.

use serde::Deserialize;
use serde_json::{Value, json};

/// The key `read_as` of a check: how a text becomes a value that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TextReadMode {
    /// 5 and 12 of `#5, #12`, each once, in order of appearance.
    IssueNumbers,
    /// Lines that are not blank, trimmed.
    Lines,
    /// Rows of Markdown tables, cell by cell, without the header row. Back quotes and a leading `@` are removed from
    /// cells.
    TableRows,
    /// The text without white space around it.
    Trimmed,
}

impl TextReadMode {
    /// Reads values from a text. Never fails: a text without such content gives an empty list.
    pub(super) fn read(self, text: &str) -> Value {
        match self {
            TextReadMode::IssueNumbers => json!(issue_numbers(text)),
            TextReadMode::Lines => {
                json!(text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>())
            }
            TextReadMode::TableRows => json!(table_rows(text)),
            TextReadMode::Trimmed => json!(text.trim()),
        }
    }
}

fn issue_numbers(text: &str) -> Vec<u64> {
    let mut found = Vec::new();
    for piece in text.split('#').skip(1) {
        let digits: String = piece.chars().take_while(char::is_ascii_digit).collect();
        if let Ok(number) = digits.parse()
            && !found.contains(&number)
        {
            found.push(number);
        }
    }
    found
}

/// Returns the rows of all tables of the text, one after the other.
fn table_rows(text: &str) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some(inner) = line.strip_prefix('|') else { continue };
        let cells: Vec<String> = inner
            .strip_suffix('|')
            .unwrap_or(inner)
            .split('|')
            .map(|cell| cell.trim().trim_matches('`').trim_start_matches('@').to_owned())
            .collect();
        // The delimiter row `|---|:-:|`: the row before it was the header, which is removed.
        let is_rule = cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| "-:".contains(c)));
        if is_rule {
            found.pop();
        } else {
            found.push(cells);
        }
    }
    found
}

const COUNT_WORDS: [&str; 13] =
    ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// Returns the value of an English number word from zero to twelve; larger ones are rare in answers.
pub(crate) fn parse_number_word(word: &str) -> Option<u64> {
    COUNT_WORDS.iter().position(|known| word.eq_ignore_ascii_case(known)).map(|number| number as u64)
}

/// Extracts the counts that a text states: `117`, `1,200`, `two`. Numbers that are part of a reference (`#5`), a
/// version (`v2`, `1.0.0`), a date or a word are not counts.
pub(super) fn extract_counts(text: &str) -> Vec<u64> {
    let is_part = |c: char| c.is_alphanumeric() || "#_-/:.,'".contains(c);
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_matches(|c: char| "-/:.,'".contains(c)));
    words
        .filter_map(|word| {
            if let Some(number) = parse_number_word(word) {
                return Some(number);
            }
            let digits: String = word.split(',').collect();
            // Commas are accepted only as thousands separators; `3,5` is a list.
            let grouped = word.split(',').skip(1).all(|group| group.len() == 3);
            if grouped && digits.chars().all(|c| c.is_ascii_digit()) { digits.parse().ok() } else { None }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_told_from_other_numbers() {
        assert_eq!(extract_counts("There are 117 open issues (of 1,300), see #5 and v2 of 2026-03-02."), [117, 1300]);
        assert_eq!(extract_counts("Two: #5, #12; **3** more, \"4\"."), [2, 3, 4]);
        assert_eq!(extract_counts("version 1.0.0"), Vec::<u64>::new());
    }

    #[test]
    fn readings() {
        assert_eq!(TextReadMode::IssueNumbers.read("- #12 x\n- #5 (#12)"), json!([12, 5]));
        let table = "# T\n\n| login | commits |\n|---|--:|\n| `octo` | 3 |\n|mona|2|\n";
        assert_eq!(TextReadMode::TableRows.read(table), json!([["octo", "3"], ["mona", "2"]]));
        assert_eq!(TextReadMode::Lines.read("a\n\n b \n"), json!(["a", "b"]));
    }

    proptest::proptest! {
        #[test]
        fn any_text_can_be_read(text in "[-|#:, 0-9a-zß`@\\n]{0,80}", other in ".{0,80}") {
            for text in [text, other] {
                for reading in [TextReadMode::IssueNumbers, TextReadMode::Lines, TextReadMode::TableRows, TextReadMode::Trimmed] {
                    reading.read(&text);
                }
                extract_counts(&text);
            }
        }

        #[test]
        fn a_count_is_found_among_words(count in 0..1_000_000_u64, before in "[a-y ]{0,9} ", after in "[ .:;!)]") {
            let found = extract_counts(&format!("{before}{count}{after}"));
            proptest::prop_assert!(found.contains(&count), "{:?}", found);
        }
    }
}
