//! The same calls give the same bytes; a world can be put back, written down and read again.

use crate::lab::{self, Lab};
use gradus_github_sim::state::WorldState;
use gradus_github_sim::{SimulatedResponse, World};
use serde_json::json;

fn trace_group(lab: &mut Lab) -> Vec<SimulatedResponse> {
    let mut seen = vec![lab.get("/user"), lab.get("/user/repos")];
    seen.push(lab.post("/user/repos", json!({"name": "new", "auto_init": true})));
    seen.push(lab.put("/repos/octo/demo/contents/a.txt", json!({"message": "m", "content": "aGk="})));
    seen.push(lab.post("/repos/octo/demo/issues", json!({"title": "t", "labels": ["bug", "fresh"]})));
    seen.push(lab.put("/repos/octo/demo/pulls/23/merge", json!({"merge_method": "squash"})));
    seen.push(lab.post("/gists", json!({"files": {"a": {"content": "x"}}})));
    seen.push(lab.get("/repos/octo/demo/commits?per_page=2"));
    seen.push(lab.get("/repos/octo/demo/issues?state=all&per_page=5&page=2"));
    seen.push(lab.get("/search/issues?q=crash+repo:octo/demo"));
    seen.push(lab.get("/nothing/here"));
    seen
}

#[test]
fn the_same_calls_give_the_same_bytes() {
    let first = trace_group(&mut Lab::new("w2"));
    let second = trace_group(&mut Lab::new("w2"));
    assert_eq!(first, second);
    let statuses: Vec<u16> = first.iter().map(|response| response.status).collect();
    assert_eq!(statuses, [200, 200, 201, 201, 201, 200, 201, 200, 200, 200, 501]);
}

#[test]
fn a_reset_world_is_as_new() {
    let mut lab = Lab::new("w2");
    let first = trace_group(&mut lab);
    assert!(!lab.world.changes_since_seed().is_empty());
    lab.world.reset();
    assert!(lab.world.changes_since_seed().is_empty());
    assert_eq!(trace_group(&mut lab), first);
}

#[test]
fn a_snapshot_brings_everything_back() {
    let mut lab = Lab::new("w3");
    let before = lab.world.snapshot();
    trace_group(&mut lab);
    assert_ne!(lab.world.state(), before.state());
    lab.world.restore(&before);
    assert_eq!(lab.world.state(), before.state());
}

/// Written to JSON and read again it is the same world: same state, same answers.
#[test]
fn a_state_survives_being_written_down() {
    let mut lab = Lab::new("w3");
    trace_group(&mut lab);
    let text = serde_json::to_string(lab.world.state()).unwrap();
    let state: WorldState = serde_json::from_str(&text).unwrap();
    let mut again = Lab { world: World::new(state, Default::default(), Vec::new()), token: lab::OCTO };
    assert_eq!(again.world.changes_since_seed(), Vec::new());
    for path in ["/repos/octo/demo", "/repos/octo/demo/pulls/22", "/repos/octo/demo/commits", "/user/repos"] {
        assert_eq!(lab.get(path).body, again.get(path).body, "{path}");
    }
    assert_eq!(serde_json::to_string(again.world.state()).unwrap(), text);
}
