//! Every record of another tool in `fixtures/imports` gives back what its agent did.
//!
//! Beside each record stands `NAME.gold.json`: the expected trajectories in order. Keys that are absent are not
//! compared; steps are always complete.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gradus_core::trajectory::{DefectKind, Trajectory};
use gradus_ingest::{FilesOnly, RecordIntake, SourceLimits, expand_source, read_files};
use serde_json::{Value as Json, json};

#[test]
fn records_of_other_tools_give_back_what_the_agents_did() {
    let mut missed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut steps: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (record, gold) in records_with_gold() {
        let format = record.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let (found, refused) = read_record(&record);
        let gold: Vec<Json> = serde_json::from_slice(&fs::read(&gold).unwrap()).unwrap();
        let mut miss = |what: String| missed.entry(record.display().to_string()).or_default().push(what);
        refused.iter().for_each(|reason| miss(format!("refused: {reason}")));
        if found.len() != gold.len() {
            let queries: Vec<_> = found.iter().map(|one| one.query.as_deref().unwrap_or("-")).collect();
            miss(format!("{} trajectories instead of {}: {queries:?}", found.len(), gold.len()));
        }
        let mut found: Vec<Json> = found.iter().map(|one| serde_json::to_value(one).unwrap()).collect();
        for (number, wanted) in gold.iter().enumerate() {
            // Subagents come behind the turn that started them, wherever the gold has them.
            let is_it = |one: &&Json| one["query"] == wanted["query"] && one["final_answer"] == wanted["answer"];
            let at = found.iter().position(|one| is_it(&one)).unwrap_or(0);
            let got = if at < found.len() { found.remove(at) } else { Json::Null };
            let (all, exact) = steps.entry(format.clone()).or_default();
            for (index, wanted) in list(&wanted["steps"]).iter().enumerate() {
                *all += 1;
                let differences = differing_keys(wanted, &got["steps"][index]);
                *exact += usize::from(differences.is_empty());
                differences
                    .into_iter()
                    .for_each(|text| miss(format!("trajectory {number} step {}: {text}", index + 1)));
            }
            if list(&got["steps"]).len() > list(&wanted["steps"]).len() {
                miss(format!("trajectory {number}: {} steps", list(&got["steps"]).len()));
            }
            for text in differing_facts(wanted, &got) {
                miss(format!("trajectory {number}: {text}"));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}\nexact steps by format: {steps:?}");
    assert!(steps.len() > 20, "the fixtures are not there: {steps:?}");
}

/// Expected facts of a trajectory beside its steps that differ.
fn differing_facts(wanted: &Json, got: &Json) -> Vec<String> {
    let mut found = got.clone();
    found["answer"] = got["final_answer"].clone();
    found["parent"] = json!({"trajectory_id": got["parent_trajectory_id"], "step": got["parent_step_index"]});
    let Json::Object(mut facts) = wanted.clone() else { return vec!["the gold is no object".to_owned()] };
    facts.remove("steps");
    differing_keys(&Json::Object(facts), &found)
}

/// Keys of `wanted` whose value is another one in `got`. Objects may have more keys than are wanted; missing is null.
fn differing_keys(wanted: &Json, got: &Json) -> Vec<String> {
    let facts = wanted.as_object().into_iter().flatten();
    let differs = |(key, value): &(&String, &Json)| {
        let found = got.get(key.as_str()).unwrap_or(&Json::Null);
        !is_same(key, value, found)
    };
    let show =
        |(key, value): (&String, &Json)| format!("{key}: {} instead of {value}", got.get(key).unwrap_or(&Json::Null));
    facts.filter(differs).map(show).collect()
}

fn is_same(key: &str, wanted: &Json, found: &Json) -> bool {
    match (wanted, found) {
        // Values that are left out of a line when they are zero, false or empty.
        (Json::Bool(false), Json::Null) => true,
        (Json::Array(wanted), Json::Null) => wanted.is_empty(),
        // Arguments must be the same to the last key; elsewhere the gold names what matters.
        (Json::Object(_), Json::Object(_)) if key == "arguments" => wanted == found,
        (Json::Object(wanted), Json::Object(found)) => {
            wanted.iter().all(|(key, value)| is_same(key, value, found.get(key).unwrap_or(&Json::Null)))
        }
        (Json::Array(wanted), Json::Array(found)) if key == "annotations" => {
            wanted.len() == found.len() && wanted.iter().zip(found).all(|(wanted, found)| is_same("", wanted, found))
        }
        (Json::Number(wanted), Json::Number(found)) => wanted.as_f64() == found.as_f64(),
        (Json::Number(wanted), Json::Null) => wanted.as_f64() == Some(0.0),
        _ => wanted == found,
    }
}

/// Reads a file, or a folder of files that belong together, and returns the trajectories and what was refused.
fn read_record(record: &Path) -> (Vec<Trajectory>, Vec<String>) {
    let mut found = Vec::new();
    let mut refused = Vec::new();
    let mut sink = |_: usize, trajectory: Trajectory| {
        found.push(trajectory);
        Ok(())
    };
    let mut intake = RecordIntake::new(SourceLimits::default(), &mut sink);
    let files = expand_source(&record.display().to_string(), &FilesOnly).unwrap();
    read_files(&files, &FilesOnly, &mut intake, &mut |_, read| {
        refused.extend(read.err().map(|error| error.to_string()));
    });
    let summary = intake.finish().unwrap();
    // Some fixtures are about answers without a call.
    let unread = summary.defects.into_iter().filter(|defect| defect.kind != DefectKind::FileWithoutSteps);
    refused.extend(unread.map(|defect| defect.detail));
    (found, refused)
}

/// Each record with its gold: `NAME.gold.json` beside the file or folder `NAME` or `NAME.*`.
fn records_with_gold() -> Vec<(PathBuf, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/imports");
    let mut pairs = Vec::new();
    for folder in entries_of(&root) {
        let entries = entries_of(&folder);
        for gold in &entries {
            let Some(name) = file_name(gold).strip_suffix(".gold.json").map(str::to_owned) else { continue };
            let is_record = |path: &&PathBuf| {
                let other = file_name(path);
                !other.ends_with(".gold.json") && (other == name || other.starts_with(&format!("{name}.")))
            };
            let record = entries.iter().find(is_record);
            let record = record.unwrap_or_else(|| panic!("{} has no record beside it", gold.display()));
            pairs.push((record.clone(), gold.clone()));
        }
    }
    pairs
}

fn entries_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn list(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}
