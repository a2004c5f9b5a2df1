//! Line diffs: the shortest edit script by Myers' algorithm ("An O(ND) Difference Algorithm and Its Variations", 1986),
//! and the patch as GitHub shows it:
//!
//! ```text
//! @@ -1,3 +1,4 @@ heading of the section
//!  unchanged
//! -removed
//! +added
//! +added
//!  unchanged
//! ```
//!
//! In the edit graph, a step to the right removes an old line, a step down inserts a new one, and a diagonal step keeps
//! a line. For each number of edits, the algorithm finds the furthest point on every diagonal.

use std::ops::Range;

/// Maximum number of edits. With more, the middle part becomes one replacement: the algorithm takes quadratic time in
/// the number of edits, and texts may be hostile.
const MAX_EDITS: usize = 1500;
/// Number of unchanged lines around a change, as in `git diff`.
const CONTEXT_LINES: usize = 3;

/// Lines of the old text that are replaced by lines of the new one. Ranges count from 0 and may be empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiffHunk {
    pub(crate) old: Range<usize>,
    pub(crate) new: Range<usize>,
}

/// The patch of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilePatch {
    /// Counts of changed lines; 0 for binary files.
    pub(crate) additions: usize,
    pub(crate) deletions: usize,
    /// From the first `@@` on, without file headers; `None` for binary files.
    pub(crate) text: Option<String>,
}

/// Splits into lines with their line feeds, so that joining them gives the text back.
pub(crate) fn split_lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Returns the content as text; `None` if it is binary: git's rule is a zero byte in the first 8000 bytes. Invalid
/// UTF-8 counts as binary, too.
pub(crate) fn decode_if_text(bytes: &[u8]) -> Option<&str> {
    if bytes.iter().take(8000).any(|byte| *byte == 0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

/// Returns the changes from one text to another, in order and not adjacent.
pub(crate) fn diff_lines(old: &[&str], new: &[&str]) -> Vec<DiffHunk> {
    // Common lines at both ends are cut off first, which makes typical edits cheap.
    let prefix = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let rest = old.len().min(new.len()) - prefix;
    let same_end = |(one, other): &(&&str, &&str)| one == other;
    let suffix = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(same_end).count();
    let (old, new) = (&old[prefix..old.len() - suffix], &new[prefix..new.len() - suffix]);
    let mut found: Vec<DiffHunk> = Vec::new();
    for edit in find_edits(old, new) {
        let (at_old, at_new) = (edit.old.start + prefix, edit.new.start + prefix);
        let (end_old, end_new) = (edit.old.end + prefix, edit.new.end + prefix);
        match found.last_mut() {
            Some(last) if last.old.end == at_old && last.new.end == at_new => {
                last.old.end = end_old;
                last.new.end = end_new;
            }
            _ => found.push(DiffHunk { old: at_old..end_old, new: at_new..end_new }),
        }
    }
    found
}

/// Finds single insertions and deletions, in order. `furthest` holds, for each diagonal, the furthest row that the
/// current number of edits reaches (Myers 1986).
fn find_edits(old: &[&str], new: &[&str]) -> Vec<DiffHunk> {
    let (rows, columns) = (old.len() as isize, new.len() as isize);
    if rows == 0 && columns == 0 {
        return Vec::new();
    }
    let whole = || vec![DiffHunk { old: 0..old.len(), new: 0..new.len() }];
    if rows == 0 || columns == 0 {
        return whole();
    }
    let most = MAX_EDITS.min(old.len() + new.len()) as isize;
    let width = (2 * most + 3) as usize;
    let place = |diagonal: isize| (diagonal + most + 1) as usize;
    let mut furthest = vec![0_isize; width];
    // A copy of `furthest` before each round, limited to the diagonals of that round, for backtracking.
    let mut rounds: Vec<Vec<isize>> = Vec::new();
    for round in 0..=most {
        rounds.push(furthest[place(-round - 1)..=place(round + 1)].to_vec());
        let mut diagonal = -round;
        while diagonal <= round {
            // Down is an insertion, right is a deletion. The neighbour that reached further is extended.
            let down = diagonal == -round
                || (diagonal != round && furthest[place(diagonal - 1)] < furthest[place(diagonal + 1)]);
            let mut x = if down { furthest[place(diagonal + 1)] } else { furthest[place(diagonal - 1)] + 1 };
            let mut y = x - diagonal;
            while x < rows && y < columns && old[x as usize] == new[y as usize] {
                (x, y) = (x + 1, y + 1);
            }
            furthest[place(diagonal)] = x;
            if x >= rows && y >= columns {
                return backtrack_edits(&rounds, rows, columns);
            }
            diagonal += 2;
        }
    }
    whole()
}

/// Follows the stored rounds backwards from the end of both texts.
fn backtrack_edits(rounds: &[Vec<isize>], rows: isize, columns: isize) -> Vec<DiffHunk> {
    let mut found = Vec::new();
    let (mut x, mut y) = (rows, columns);
    for (round, furthest) in rounds.iter().enumerate().rev() {
        let round = round as isize;
        if round == 0 {
            break;
        }
        let at = |diagonal: isize| furthest[(diagonal + round + 1) as usize];
        let diagonal = x - y;
        let down = diagonal == -round || (diagonal != round && at(diagonal - 1) < at(diagonal + 1));
        let before = if down { diagonal + 1 } else { diagonal - 1 };
        let before_x = at(before);
        let before_y = before_x - before;
        let (from_x, from_y) = (before_x as usize, before_y as usize);
        found.push(if down {
            DiffHunk { old: from_x..from_x, new: from_y..from_y + 1 }
        } else {
            DiffHunk { old: from_x..from_x + 1, new: from_y..from_y }
        });
        (x, y) = (before_x, before_y);
    }
    found.reverse();
    found
}

/// Builds the patch between two contents, as GitHub shows it.
pub(crate) fn build_patch(old: &[u8], new: &[u8]) -> FilePatch {
    let (Some(old), Some(new)) = (decode_if_text(old), decode_if_text(new)) else { return FilePatch::default() };
    let (old, new) = (split_lines(old), split_lines(new));
    let hunks = diff_lines(&old, &new);
    let additions = hunks.iter().map(|hunk| hunk.new.len()).sum();
    let deletions = hunks.iter().map(|hunk| hunk.old.len()).sum();
    let mut text = String::new();
    let mut rest = hunks.as_slice();
    while !rest.is_empty() {
        // Changes whose context would touch share one hunk.
        let near = |pair: &[DiffHunk]| pair[1].old.start - pair[0].old.end <= 2 * CONTEXT_LINES;
        let count = 1 + rest.windows(2).take_while(|pair| near(pair)).count();
        let (group, others) = rest.split_at(count);
        write_hunk(&mut text, &old, &new, group);
        rest = others;
    }
    // The last line of a patch has no end.
    let text = text.strip_suffix('\n').unwrap_or(&text).to_owned();
    FilePatch { additions, deletions, text: (!hunks.is_empty()).then_some(text) }
}

/// Writes one hunk with its `@@` line.
fn write_hunk(text: &mut String, old: &[&str], new: &[&str], group: &[DiffHunk]) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let before = first.old.start.min(CONTEXT_LINES);
    let after = (old.len() - last.old.end).min(CONTEXT_LINES);
    let (old_start, old_end) = (first.old.start - before, last.old.end + after);
    let (new_start, new_end) = (first.new.start - before, last.new.end + after);
    let range = |start: usize, end: usize| match end - start {
        // For an empty range git writes the number of the line before it.
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    };
    text.push_str(&format!("@@ -{} +{} @@", range(old_start, old_end), range(new_start, new_end)));
    if let Some(heading) = find_hunk_heading(&old[..old_start]) {
        text.push(' ');
        text.push_str(heading);
    }
    text.push('\n');
    let mut at = old_start;
    for hunk in group {
        old[at..hunk.old.start].iter().for_each(|line| write_line(text, ' ', line));
        old[hunk.old.clone()].iter().for_each(|line| write_line(text, '-', line));
        new[hunk.new.clone()].iter().for_each(|line| write_line(text, '+', line));
        at = hunk.old.end;
    }
    old[at..old_end].iter().for_each(|line| write_line(text, ' ', line));
}

/// Finds the text after the second `@@`: the last line above that begins with a letter, as in git's default for
/// unknown languages. At most 80 bytes.
fn find_hunk_heading<'t>(above: &[&'t str]) -> Option<&'t str> {
    let begins = |line: &&&str| line.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '$');
    let line = above.iter().rev().find(begins)?.trim_end();
    Some(line[..line.floor_char_boundary(80)].trim_end())
}

/// Marks a last line without a line feed as git does.
fn write_line(text: &mut String, mark: char, line: &str) {
    text.push(mark);
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_line_changed() {
        let patch = build_patch(b"# Demo\n\nhello\n", b"# Demo\n\nhello world\n");
        assert_eq!((patch.additions, patch.deletions), (1, 1));
        assert_eq!(patch.text.as_deref(), Some("@@ -1,3 +1,3 @@\n # Demo\n \n-hello\n+hello world"));
    }

    #[test]
    fn files_that_begin_and_end() {
        assert_eq!(build_patch(b"", b"a\n").text.as_deref(), Some("@@ -0,0 +1 @@\n+a"));
        assert_eq!(
            build_patch(b"a\nb", b"").text.as_deref(),
            Some("@@ -1,2 +0,0 @@\n-a\n-b\n\\ No newline at end of file")
        );
        assert_eq!(build_patch(b"a\n", b"a\n"), FilePatch::default());
        assert_eq!(build_patch(b"a\0", b"b").text, None);
    }

    #[test]
    fn texts_without_anything_in_common_end_soon() {
        let text = |from: usize| (from..from + 100_000).map(|n| format!("{n}\n")).collect::<String>();
        let patch = build_patch(text(0).as_bytes(), text(500_000).as_bytes());
        assert_eq!((patch.additions, patch.deletions), (100_000, 100_000));
    }

    proptest! {
        #[test]
        fn hunks_turn_the_old_text_into_the_new(old in "[ab\n]{0,60}", new in "[ab\n]{0,60}") {
            let (old, new) = (split_lines(&old), split_lines(&new));
            let mut made: Vec<&str> = Vec::new();
            let mut at = 0;
            for hunk in diff_lines(&old, &new) {
                made.extend(&old[at..hunk.old.start]);
                prop_assert_eq!(made.len(), hunk.new.start);
                made.extend(&new[hunk.new.clone()]);
                at = hunk.old.end;
            }
            made.extend(&old[at..]);
            prop_assert_eq!(made, new);
        }
    }
}
