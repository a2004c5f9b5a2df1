//! The coverage report as text: how much of each source was read, and what is missing in it. Unreadable data is counted
//! here, never hidden.

use std::io::{self, Write};

use gradus_core::coverage::SourceCoverage;

use super::{BOLD, DIM};
use gradus_core::visible::printable_line;

/// Maximum number of listed sources; a folder can have thousands.
const MAX_SOURCES: usize = 20;

/// Maximum number of listed skipped files.
const MAX_SKIPPED: usize = 50;

/// Prints each source and then the total; with a single source only that one. Names of sources and examples of defects
/// are made printable.
pub fn print_coverage(sources: &[SourceCoverage], total: &SourceCoverage, out: &mut dyn Write) -> io::Result<()> {
    if sources.len() > 1 {
        for source in sources.iter().take(MAX_SOURCES) {
            print_source(source, out)?;
            writeln!(out)?;
        }
        if sources.len() > MAX_SOURCES {
            writeln!(
                out,
                "{DIM}... and {} more sources; --format json lists all{DIM:#}\n",
                sources.len() - MAX_SOURCES
            )?;
        }
    }
    print_source(if let [one] = sources { one } else { total }, out)
}

/// Prints the counts of one source. The shares of trajectories and steps show which questions can be judged: without
/// thoughts, for example, those about thoughts do not apply.
fn print_source(coverage: &SourceCoverage, out: &mut dyn Write) -> io::Result<()> {
    let c = coverage;
    writeln!(out, "{BOLD}{}{BOLD:#}", printable_line(&c.source))?;
    let mut read = format!("{} spans in {} traces", c.spans, c.traces);
    for (count, what) in
        [(c.log_records, "log records"), (c.documents, "documents"), (c.skipped_files, "non-trace files skipped")]
    {
        if count > 0 {
            read.push_str(&format!(", {count} {what}"));
        }
    }
    writeln!(out, "  read          {read}")?;
    if c.repeated_turns > 0 {
        writeln!(out, "  repeated      {} turns of resumed sessions, counted once", c.repeated_turns)?;
    }
    if c.unrequested_runs > 0 {
        writeln!(out, "  left out      {} runs that answer no request", c.unrequested_runs)?;
    }
    for reason in c.skipped_examples.iter().take(MAX_SKIPPED) {
        writeln!(out, "    {DIM}skipped {}{DIM:#}", printable_line(reason))?;
    }
    if c.skipped_files as usize > MAX_SKIPPED {
        let more = c.skipped_files as usize - MAX_SKIPPED;
        writeln!(out, "    {DIM}skipped {more} more; --format json lists the first 200{DIM:#}")?;
    }
    writeln!(out, "  trajectories  {}", c.trajectories)?;
    print_share(out, "    with query", c.trajectories_with_query, c.trajectories)?;
    print_share(out, "    with answer", c.trajectories_with_answer, c.trajectories)?;
    print_share(out, "    with tools", c.trajectories_with_tools, c.trajectories)?;
    writeln!(out, "  steps         {}", c.steps)?;
    print_share(out, "    thought", c.steps_with_thought, c.steps)?;
    print_share(out, "    tool", c.steps_with_tool, c.steps)?;
    print_share(out, "    arguments", c.steps_with_arguments, c.steps)?;
    print_share(out, "    observation", c.steps_with_observation, c.steps)?;
    if c.defects.is_empty() {
        return writeln!(out, "  defects       none");
    }
    writeln!(out, "  defects       {}", c.defects.values().map(|class| class.count).sum::<u64>())?;
    for (kind, class) in &c.defects {
        let examples: Vec<String> = class.examples.iter().map(|example| printable_line(example)).collect();
        writeln!(out, "    {:<26} {:>7}  {DIM}{}{DIM:#}", kind.name(), class.count, examples.join(", "))?;
    }
    Ok(())
}

/// Prints one line with a count and its share of `of`; nothing if `of` is 0.
fn print_share(out: &mut dyn Write, name: &str, count: u64, of: u64) -> io::Result<()> {
    if of == 0 {
        return Ok(());
    }
    writeln!(out, "{name:<15} {count:>7}  {:5.1} %", 100.0 * count as f64 / of as f64)
}

#[cfg(test)]
mod tests {
    use gradus_core::trajectory::{DefectKind, ExtractionDefect};

    use super::*;
    use crate::example::{booking_trajectory, show_styles, sparse_trajectory};

    fn print_to_text(sources: &[SourceCoverage], total: &SourceCoverage) -> String {
        let mut printed = Vec::new();
        print_coverage(sources, total, &mut printed).expect("coverage is printed");
        show_styles(&printed)
    }

    fn example_source() -> SourceCoverage {
        let mut source = SourceCoverage {
            traces: 2,
            spans: 14,
            log_records: 3,
            documents: 1,
            skipped_files: 2,
            ..SourceCoverage::new("traces/2026-03.jsonl")
        };
        source.add(&booking_trajectory());
        source.add(&sparse_trajectory());
        source.add_defect(&ExtractionDefect {
            kind: DefectKind::UnreadableRecord,
            detail: "line 7: \u{1b}[2J is no JSON".to_owned(),
            span_id: None,
        });
        source
    }

    #[test]
    fn one_source_is_shown_alone() {
        let source = example_source();
        insta::assert_snapshot!(print_to_text(std::slice::from_ref(&source), &source));
    }

    #[test]
    fn several_sources_have_a_total() {
        let sources = [example_source(), SourceCoverage::new("empty\u{1b}[31m.jsonl")];
        let mut total = SourceCoverage::new("total");
        for source in &sources {
            total.merge(source);
        }
        let printed = print_to_text(&sources, &total);
        assert!(!printed.contains('\u{1b}'), "{printed:?}");
        insta::assert_snapshot!(printed);
    }

    #[test]
    fn a_source_without_anything_has_no_shares() {
        insta::assert_snapshot!(print_to_text(&[], &SourceCoverage::new("nothing")));
    }

    #[test]
    fn many_sources_are_counted() {
        let sources: Vec<SourceCoverage> = (0..25).map(|at| SourceCoverage::new(format!("{at}.jsonl"))).collect();
        let printed = print_to_text(&sources, &SourceCoverage::new("total"));
        assert!(printed.contains("<dim>... and 5 more sources; --format json lists all</>"), "{printed}");
        assert!(printed.contains("19.jsonl") && !printed.contains("20.jsonl"), "{printed}");
    }
}
