//! Measures scrubbing: `measure_scrub samples FILE`, `measure_scrub personal FILE`, `measure_scrub tripwire FILE`,
//! `measure_scrub texts [--show N] PATH...`. Results are JSON on the standard output. `benches/run_scrubbing.py` runs
//! it and keeps the results.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use gradus_scrub::{LeakDetector, LeakKind, ScrubSettings, Scrubber};
use serde::Deserialize;
use serde_json::{Value as Json, json};

type AnyError = Box<dyn std::error::Error>;
const MAX_LISTED: usize = 400;
const MIN_MEASURED_SECONDS: f64 = 2.0;
const MAX_MEASURED_ROUNDS: u32 = 500;

/// A line of `scripts/extract_scrub_samples.py`.
#[derive(Deserialize)]
struct RuleSample {
    rule: String,
    is_secret: bool,
    path: String,
    text: String,
    secrets: Vec<String>,
}

#[derive(Default)]
struct SampleCounts {
    positives: u64,
    positives_without_pattern: u64,
    found: u64,
    found_by_own_rule: u64,
    found_in_json: u64,
    found_in_nested_json: u64,
    found_after_scrub_by_tripwire: u64,
    leaked_without_scrub_by_tripwire: u64,
    positive_plain_bytes: u64,
    positive_plain_replaced: u64,
    negatives: u64,
    negatives_hit_by_own_rule: u64,
    negatives_hit_by_other_vendored_rule: u64,
    negatives_hit_by_our_rules: u64,
    negative_bytes: u64,
    negative_replaced_by_own_rule: u64,
    negative_replaced: u64,
}

fn main() -> Result<(), AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.split_first() {
        Some((mode, [file])) if mode == "samples" => measure_samples(Path::new(file))?,
        Some((mode, [file])) if mode == "personal" => measure_personal(Path::new(file))?,
        Some((mode, [file])) if mode == "tripwire" => measure_tripwire(Path::new(file))?,
        Some((mode, rest)) if mode == "texts" => measure_texts(rest)?,
        _ => {
            return Err(
                "usage: measure_scrub samples FILE | personal FILE | tripwire FILE | texts [--show N] PATH...".into()
            );
        }
    };
    writeln!(std::io::stdout(), "{result:#}")?;
    Ok(())
}

fn measure_samples(file: &Path) -> Result<Json, AnyError> {
    let mut counts = SampleCounts::default();
    let mut missed: BTreeMap<String, Vec<Json>> = BTreeMap::new();
    let mut hit: Vec<Json> = Vec::new();
    let mut by_rule: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let vendored = vendored_rule_ids()?;
    let detector = LeakDetector::new([]);
    for line in std::fs::read_to_string(file)?.lines() {
        let sample: RuleSample = serde_json::from_str(line)?;
        let mut scrubber = Scrubber::new(ScrubSettings::secrets_only());
        let scrubbed = scrubber.scrub_text(&sample.text).into_owned();
        let rules = &scrubber.statistics().by_rule;
        let replaced = scrubber.statistics().replaced_bytes;
        if sample.is_secret {
            if sample.secrets.is_empty() {
                counts.positives_without_pattern += 1;
                continue;
            }
            counts.positives += 1;
            let is_found = !sample.secrets.iter().any(|secret| scrubbed.contains(trim_quotes(secret)));
            let entry = by_rule.entry(sample.rule.clone()).or_default();
            entry.0 += 1;
            entry.1 += u64::from(is_found);
            counts.found += u64::from(is_found);
            let secrets: Vec<&str> = sample.secrets.iter().map(|secret| trim_quotes(secret)).collect();
            counts.found_in_json += u64::from(is_found_in_json(json!({"content": sample.text}), &secrets));
            let nested = json!({"content": sample.text, "n": 1}).to_string();
            counts.found_in_nested_json += u64::from(is_found_in_json(json!([{"arguments": nested}]), &secrets));
            counts.found_by_own_rule += u64::from(rules.contains_key(&sample.rule));
            counts.leaked_without_scrub_by_tripwire += u64::from(detector.find_leak(&sample.text).is_some());
            counts.found_after_scrub_by_tripwire += u64::from(detector.find_leak(&scrubbed).is_some());
            let secret_bytes: u64 = sample.secrets.iter().map(|secret| trim_quotes(secret).len() as u64).sum();
            counts.positive_plain_bytes += (sample.text.len() as u64).saturating_sub(secret_bytes);
            counts.positive_plain_replaced += replaced.saturating_sub(secret_bytes);
            if !is_found {
                missed
                    .entry(sample.rule)
                    .or_default()
                    .push(json!({"text": sample.text, "scrubbed": scrubbed, "path": sample.path}));
            }
        } else {
            counts.negatives += 1;
            counts.negative_bytes += sample.text.len() as u64;
            counts.negative_replaced += replaced;
            let is_hit_by_own = rules.contains_key(&sample.rule);
            if is_hit_by_own {
                counts.negatives_hit_by_own_rule += 1;
                counts.negative_replaced_by_own_rule += replaced;
            }
            let others = rules.keys().filter(|rule| **rule != sample.rule);
            let (other_vendored, ours): (Vec<_>, Vec<_>) = others.partition(|rule| vendored.contains(rule));
            counts.negatives_hit_by_other_vendored_rule += u64::from(!other_vendored.is_empty());
            counts.negatives_hit_by_our_rules += u64::from(!ours.is_empty());
            if !rules.is_empty() {
                hit.push(json!({"rule": sample.rule, "hit_by": rules, "text": sample.text, "path": sample.path}));
            }
        }
    }
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { (part as f64 / whole as f64 * 1e5).round() / 1e5 };
    let worst: BTreeMap<_, _> = by_rule.iter().filter(|(_, (all, found))| found < all).collect();
    Ok(json!({
        "positives": counts.positives,
        "positives_without_pattern": counts.positives_without_pattern,
        "rules_with_positives": by_rule.len(),
        "recall": share(counts.found, counts.positives),
        "recall_in_a_json_string": share(counts.found_in_json, counts.positives),
        "recall_in_json_in_a_json_string": share(counts.found_in_nested_json, counts.positives),
        "named_by_its_own_rule": share(counts.found_by_own_rule, counts.positives),
        "rules_below_full_recall": worst,
        "positive_plain_bytes": counts.positive_plain_bytes,
        "over_redaction_in_positives": share(counts.positive_plain_replaced, counts.positive_plain_bytes),
        "negatives": counts.negatives,
        "negatives_hit_by_own_rule": counts.negatives_hit_by_own_rule,
        "negatives_hit_by_other_vendored_rule": counts.negatives_hit_by_other_vendored_rule,
        "negatives_hit_by_our_rules": counts.negatives_hit_by_our_rules,
        "negative_bytes": counts.negative_bytes,
        "over_redaction_by_own_rule_bytes": share(counts.negative_replaced_by_own_rule, counts.negative_bytes),
        "over_redaction_by_all_rules_bytes": share(counts.negative_replaced, counts.negative_bytes),
        "tripwire_fires_on_raw_positives": share(counts.leaked_without_scrub_by_tripwire, counts.positives),
        "tripwire_fires_on_scrubbed_positives": share(counts.found_after_scrub_by_tripwire, counts.positives),
        "missed": missed,
        "hit": hit,
    }))
}

/// Whether no secret is left in any form of writing: plain, or escaped once or twice.
fn is_found_in_json(mut value: Json, secrets: &[&str]) -> bool {
    Scrubber::new(ScrubSettings::secrets_only()).scrub_json(&mut value);
    let written = value.to_string();
    !secrets.iter().any(|secret| {
        let once = escape_json(secret);
        let twice = escape_json(&once);
        [*secret, once.as_str(), twice.as_str()].iter().any(|form| written.contains(form))
    })
}

fn escape_json(text: &str) -> String {
    let quoted = Json::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn trim_quotes(secret: &str) -> &str {
    secret.trim_matches(['"', '\'', '`', '\n'])
}

fn vendored_rule_ids() -> Result<Vec<String>, AnyError> {
    let file: toml::Table = toml::from_str(include_str!("../rules/gitleaks.toml"))?;
    let rules = file.get("rules").and_then(toml::Value::as_array).ok_or("no rules")?;
    Ok(rules.iter().filter_map(|rule| rule.get("id")?.as_str()).map(str::to_owned).collect())
}

/// A line that `benches/run_scrubbing.py` generates: a text of a kind, and the value in it, if any.
#[derive(Deserialize)]
struct PersonalSample {
    kind: String,
    text: String,
    value: Option<String>,
}

fn measure_personal(file: &Path) -> Result<Json, AnyError> {
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in std::fs::read_to_string(file)?.lines() {
        let sample: PersonalSample = serde_json::from_str(line)?;
        let mut scrubber = Scrubber::new(ScrubSettings::default());
        let scrubbed = scrubber.scrub_text(&sample.text);
        let is_right = match &sample.value {
            // The right placeholder, and nothing else is changed.
            Some(value) => scrubbed == sample.text.replace(value.as_str(), &format!("<{}:1>", sample.kind)),
            None => scrubbed == sample.text,
        };
        let entry = counts.entry(sample.kind.clone()).or_default();
        entry.0 += 1;
        entry.1 += u64::from(is_right);
        if !is_right {
            wrong.entry(sample.kind).or_default().push(format!("{} -> {scrubbed}", sample.text));
        }
    }
    let counts: BTreeMap<_, _> =
        counts.into_iter().map(|(kind, (all, right))| (kind, json!({"samples": all, "right": right}))).collect();
    Ok(json!({"by_kind": counts, "wrong": wrong}))
}

/// Measures how often the leak detector fires, by kind of token.
fn measure_tripwire(file: &Path) -> Result<Json, AnyError> {
    let detector = LeakDetector::new([]);
    let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for line in std::fs::read_to_string(file)?.lines() {
        let sample: PersonalSample = serde_json::from_str(line)?;
        let entry = counts.entry(sample.kind).or_default();
        entry.0 += 1;
        entry.1 += u64::from(detector.find_leak(&sample.text).is_some());
    }
    Ok(counts.into_iter().map(|(kind, (all, fired))| (kind, json!({"samples": all, "fired": fired}))).collect())
}

fn measure_texts(arguments: &[String]) -> Result<Json, AnyError> {
    let (shown_count, paths) = match arguments {
        [flag, count, paths @ ..] if flag == "--show" => (count.parse::<usize>()?, paths),
        paths => (0, paths),
    };
    let mut files = Vec::new();
    for path in paths {
        list_files(Path::new(path), &mut files)?;
    }
    files.sort();
    let detector = LeakDetector::new(std::env::vars());
    let pattern = regex::Regex::new(r"<(?:SECRET:[a-z0-9-]+|EMAIL|PHONE|CARD|IBAN|IP|USER):[0-9]+>")?;
    let mut scrubber = Scrubber::new(ScrubSettings::default());
    Scrubber::new(ScrubSettings::default()).scrub_text("password=warm1up key token");
    let (mut file_count, mut leaks, mut redactions, mut texts) = (0_u64, Vec::new(), Vec::new(), Vec::new());
    let (mut leak_files, mut leak_lines, mut line_count) = (0_u64, 0_u64, 0_u64);
    for file in &files {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        file_count += 1;
        let scrubbed = scrubber.scrub_text(&text).into_owned();
        leak_files += u64::from(detector.find_leak(&scrubbed).is_some());
        for line in scrubbed.lines() {
            line_count += 1;
            if let Some(leak) = detector.find_leak(line) {
                leak_lines += 1;
                if leaks.len() < MAX_LISTED {
                    let is_ours = matches!(leak.kind, LeakKind::EnvironmentSecret(_));
                    let excerpt: String =
                        line.chars().skip(line[..leak.offset].chars().count().saturating_sub(60)).take(140).collect();
                    leaks.push(json!({"file": file, "kind": format!("{:?}", leak.kind), "masked": leak.masked_excerpt, "line": if is_ours { String::new() } else { excerpt }}));
                }
            }
        }
        list_redactions(&pattern, &text, &scrubbed, file, &mut redactions);
        texts.push((text, scrubbed));
    }
    let byte_count: usize = texts.iter().map(|(text, _)| text.len()).sum();
    let scrub_seconds = measure_rounds(|| {
        let mut scrubber = Scrubber::new(ScrubSettings::default());
        for (text, _) in &texts {
            std::hint::black_box(scrubber.scrub_text(text));
        }
    });
    let tripwire_seconds = measure_rounds(|| {
        for (_, scrubbed) in &texts {
            std::hint::black_box(detector.find_leak(scrubbed));
        }
    });
    let statistics = scrubber.statistics();
    let megabytes = byte_count as f64 / 1e6;
    let step = (redactions.len() / shown_count.max(1)).max(1);
    let shown: Vec<&Json> = redactions.iter().step_by(step).take(shown_count).collect();
    Ok(json!({
        "files": file_count,
        "megabytes": megabytes,
        "scrub_mb_per_s": megabytes / scrub_seconds,
        "tripwire_mb_per_s": megabytes / tripwire_seconds,
        "replaced_share_of_bytes": statistics.replaced_bytes as f64 / statistics.text_bytes as f64,
        "by_category": statistics.by_category,
        "by_rule": statistics.by_rule,
        "redactions": redactions.len(),
        "lines": line_count,
        "tripwire_files": leak_files,
        "tripwire_lines": leak_lines,
        "shown": shown,
        "leaks": leaks,
    }))
}

/// Measures the CPU seconds of one round. Rounds are repeated: the kernel counts time in ticks of milliseconds.
fn measure_rounds(mut round: impl FnMut()) -> f64 {
    let start = cpu_seconds();
    let (mut rounds, mut seconds) = (0_u32, 0.0);
    while seconds < MIN_MEASURED_SECONDS && rounds < MAX_MEASURED_ROUNDS {
        round();
        rounds += 1;
        seconds = cpu_seconds() - start;
    }
    seconds / f64::from(rounds)
}

/// Returns the processor time: other work on the machine does not count. Linux only.
fn cpu_seconds() -> f64 {
    // The kernel brings its count up to date when a thread stops running.
    std::thread::sleep(std::time::Duration::from_millis(2));
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    statistics.split(' ').next().and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn list_files(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), AnyError> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            let entry = entry?.path();
            if !entry.ends_with(".git") && !entry.ends_with("target") {
                list_files(&entry, files)?;
            }
        }
    } else {
        files.push(path.to_owned());
    }
    Ok(())
}

/// Lists the replaced values, by comparing the parts between placeholders with the original.
fn list_redactions(pattern: &regex::Regex, text: &str, scrubbed: &str, file: &Path, redactions: &mut Vec<Json>) {
    let (mut at, mut scrubbed_at) = (0, 0);
    let found: Vec<_> = pattern.find_iter(scrubbed).collect();
    for (index, placeholder) in found.iter().enumerate() {
        at += placeholder.start() - scrubbed_at;
        let next_start = found.get(index + 1).map_or(scrubbed.len(), regex::Match::start);
        let behind = &scrubbed[placeholder.end()..next_start];
        if text[at..].starts_with(placeholder.as_str()) {
            at += placeholder.len();
            scrubbed_at = placeholder.end();
            continue;
        }
        let anchor: String = behind.chars().take(40).collect();
        let length = if behind.is_empty() && next_start == scrubbed.len() {
            text.len() - at
        } else {
            text[at..].find(&anchor).unwrap_or(0)
        };
        let before: String = text[..at].chars().rev().take(50).collect::<Vec<_>>().into_iter().rev().collect();
        let after: String = text[at + length..].chars().take(25).collect();
        redactions.push(json!({"file": file, "placeholder": placeholder.as_str(), "value": &text[at..at + length], "before": before, "after": after}));
        at += length;
        scrubbed_at = placeholder.end();
    }
}
