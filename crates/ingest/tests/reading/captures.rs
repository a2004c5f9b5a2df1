//! Every capture of a real framework in `fixtures/captures` gives back what its agent did.
//!
//! `gold.json` says what that was, and which facts are in the spans at all; only those are demanded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use gradus_core::trajectory::{Trajectory, TrajectoryStep};
use gradus_core::whitespace::collapse_whitespace;
use gradus_ingest::{FilesOnly, InputSource, RecordIntake, SourceLimits};
use serde_json::Value as Json;

/// Facts that the spans do not hold in the form that the gold wants, with the reason. Everything else must match.
const CONTESTED: [(&str, &str, &str); 4] = [
    ("google-adk-spancontent/s16_malformed_json", "step 1", "the tool's name is nowhere in the spans"),
    ("llamaindex-react/s24_unknown_tool", "step 1 observation", "the gold keeps the label `Observation:`"),
    ("llamaindex-legacy-react/s24_unknown_tool", "step 1 observation", "the gold keeps the label `Observation:`"),
    ("smolagents-code/s16_malformed_json", "step 1 arguments", "the arguments are cut-off Python, kept raw"),
];

#[test]
fn captures_give_back_what_the_agents_did() {
    let mut missed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut steps, mut folders) = (0, 0);
    for folder in capture_folders() {
        let name = name_of(&folder);
        let gold: Json = serde_json::from_slice(&fs::read(folder.join("gold.json")).unwrap()).unwrap();
        let found = read(&folder);
        let mut check = Check { name: &name, missed: &mut missed };
        for session in list(&gold["sessions"]) {
            for turn in list(&session["turns"]) {
                steps += list(&turn["steps"]).len();
                check.turn(turn, &session["session_id"], &found);
            }
        }
        let wanted: usize =
            list(&gold["sessions"]).iter().flat_map(|s| list(&s["turns"])).map(|t| list(&t["steps"]).len()).sum();
        let got: usize = found.iter().map(|trajectory| trajectory.steps.len()).sum();
        if got > wanted {
            check.miss(&format!("{got} steps instead of {wanted}"));
        }
        folders += 1;
    }
    assert!(folders > 200 && steps > 400, "the fixtures are not there: {folders} folders, {steps} steps");
    assert!(missed.is_empty(), "{missed:#?}");
}

struct Check<'c> {
    name: &'c str,
    missed: &'c mut BTreeMap<String, Vec<String>>,
}

impl Check<'_> {
    fn miss(&mut self, what: &str) {
        let contested = CONTESTED.iter().any(|(name, place, _)| *name == self.name && what.starts_with(place));
        if !contested {
            self.missed.entry(self.name.to_owned()).or_default().push(what.to_owned());
        }
    }

    fn turn(&mut self, turn: &Json, session: &Json, found: &[Trajectory]) {
        let wanted_traces = list(&turn["trace_ids"]);
        let score = |trajectory: &&Trajectory| {
            let traces = trajectory.trace_ids.iter().any(|id| wanted_traces.iter().any(|wanted| wanted == id));
            let query = same(trajectory.query.as_deref(), &turn["user_query"]);
            let session = trajectory.session_id.as_deref().is_some_and(|id| session == id);
            u8::from(traces) * 4 + u8::from(query) * 2 + u8::from(session)
        };
        let steps = list(&turn["steps"]);
        let Some(trajectory) = found.iter().max_by_key(score) else {
            if turn["recoverable"]["user_query"].is_string() {
                self.miss("no trajectory");
            }
            return;
        };
        if is_recoverable(&turn["recoverable"]["user_query"]) && !same(trajectory.query.as_deref(), &turn["user_query"])
        {
            self.miss(&format!("query {:?} instead of {}", trajectory.query, turn["user_query"]));
        }
        let answered = turn["terminated"] == "final_answer" && is_recoverable(&turn["recoverable"]["final_answer"]);
        if answered && !same(trajectory.final_answer.as_deref(), &turn["final_answer"]) {
            self.miss(&format!("answer {:?} instead of {}", trajectory.final_answer, turn["final_answer"]));
        }
        for (index, wanted) in steps.iter().enumerate() {
            let facts = ["thought", "arguments", "observation"];
            if facts.iter().any(|fact| is_recoverable(&wanted["recoverable"][fact])) {
                self.step(index, wanted, trajectory.steps.get(index));
            }
        }
    }

    fn step(&mut self, index: usize, wanted: &Json, got: Option<&TrajectoryStep>) {
        let place = format!("step {}", index + 1);
        let Some(got) = got.filter(|got| wanted["tool"] == got.tool.as_str()) else {
            return self.miss(&format!("{place}: {:?} instead of {}", got.map(|got| &got.tool), wanted["tool"]));
        };
        let recoverable = &wanted["recoverable"];
        if is_recoverable(&recoverable["thought"]) && !same(got.thought.as_deref(), &wanted["thought"]) {
            self.miss(&format!("{place} thought {:?} instead of {}", got.thought, wanted["thought"]));
        }
        let arguments = got.arguments.clone().unwrap_or(Json::Null);
        let same_arguments = arguments == wanted["arguments"]
            || arguments == wanted["arguments_executed"]
            || same(got.arguments_raw.as_deref(), &wanted["arguments_raw"]);
        if is_recoverable(&recoverable["arguments"]) && !same_arguments {
            self.miss(&format!("{place} arguments {arguments} instead of {}", wanted["arguments"]));
        }
        let observation = wanted["observation"].as_str().unwrap_or_default();
        let seen = wanted["observation_seen_by_llm"].as_str().unwrap_or_default();
        let seen = seen.replace("{=observation}", observation).replace("=observation", observation);
        let shown = got.observation.as_deref();
        if is_recoverable(&recoverable["observation"])
            && !same(shown, &wanted["observation"])
            && !same(shown, &Json::String(seen))
        {
            self.miss(&format!("{place} observation {shown:?} instead of {observation:?}"));
        }
    }
}

fn is_recoverable(how: &Json) -> bool {
    how.as_str().is_some_and(|how| how != "n/a" && how != "values only, names lost")
}

/// White space aside; JSON texts by their value.
fn same(got: Option<&str>, wanted: &Json) -> bool {
    let (got, wanted) = (got.unwrap_or_default(), wanted.as_str().unwrap_or_default());
    let json = |text: &str| serde_json::from_str::<Json>(text).ok().filter(|json| !json.is_string());
    collapse_whitespace(got) == collapse_whitespace(wanted) || json(got).is_some_and(|got| Some(got) == json(wanted))
}

fn list(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}

fn read(folder: &Path) -> Vec<Trajectory> {
    let mut found = Vec::new();
    let mut sink = |_, trajectory| {
        found.push(trajectory);
        Ok(())
    };
    let mut intake = RecordIntake::new(SourceLimits::default(), &mut sink);
    for path in bodies(folder) {
        let name = path.display().to_string();
        gradus_ingest::read_input_source(&InputSource::File { path, name }, &FilesOnly, &mut intake).unwrap();
    }
    intake.finish().unwrap();
    found
}

fn bodies(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "bin"));
    paths.sort();
    paths
}

fn capture_folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/captures");
    let mut folders: Vec<PathBuf> = Vec::new();
    for framework in fs::read_dir(root).unwrap() {
        folders.extend(fs::read_dir(framework.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()));
    }
    folders.sort();
    folders
}

fn name_of(folder: &Path) -> String {
    let parts: Vec<_> =
        folder.components().rev().take(2).map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
    format!("{}/{}", parts[1], parts[0])
}
