//! The control API below `/_gradus`: snapshots, faults, differences and counters, for benchmarks that run in other
//! processes. A world can switch it off, so that a tested agent cannot use it.
//!
//! Its responses are not GitHub's: success is 200 with JSON, errors are `{"message": ..., "status": ...}` with 400 for
//! an unreadable body, 404 for unknown names and 422 for values that cannot be accepted.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::difference::compare_inventories;
use super::fault::SimulatedFault;
use super::http::{RequestMethod, RequestQuery, SimulatedRequest, SimulatedResponse, decode_percent_escapes};
use super::inventory::{WorldInventory, take_inventory};
use super::seed::{SeedFile, SeedFormat};
use super::state::WorldState;
use super::world::World;

/// Maximum number of named snapshots. They share unchanged objects, but not the rest of the state.
const MAX_SNAPSHOTS: usize = 1_000;

/// The response of `GET /_gradus`.
const HELP: [(&str, &str); 17] = [
    ("GET /_gradus/health", "200 when it is there"),
    ("GET /_gradus/tokens", "tokens and their accounts"),
    ("GET /_gradus/counters", "requests by operation and status; unrouted paths"),
    ("GET /_gradus/requests", "the last requests, one by one"),
    ("DELETE /_gradus/requests", "forgets requests and counters"),
    ("GET /_gradus/inventory", "all things by path"),
    ("GET /_gradus/diff?from=NAME&to=NAME", "what is different; `seed` and `now` are names, and the default"),
    ("GET /_gradus/state", "the whole state"),
    ("PUT /_gradus/state", "makes this the state"),
    ("GET /_gradus/snapshots", "names of snapshots"),
    ("PUT /_gradus/snapshots/NAME", "takes a snapshot"),
    ("POST /_gradus/snapshots/NAME/restore", "goes back to it"),
    ("POST /_gradus/reset", "goes back to the seed; forgets requests"),
    ("POST /_gradus/seed", "begins anew with this seed (JSON); it can extend built-in seeds only"),
    ("GET, POST, DELETE /_gradus/faults", "what will go wrong; POST adds one"),
    ("POST /_gradus/clock", "lets time pass: {\"advance_s\": 60}"),
    ("POST /_gradus/limits", "whether rate limits refuse: {\"enforced\": true}"),
];

/// Handles a request of the control API. It costs no simulated time and is not in the journal.
pub(super) fn handle_control(world: &mut World, request: &SimulatedRequest) -> SimulatedResponse {
    let path = request.path.trim_start_matches("/_gradus").trim_matches('/');
    let segments: Vec<String> = path.split('/').map(decode_percent_escapes).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    match dispatch_control(world, request, &segments) {
        Ok(body) => build_control_response(200, &body),
        Err((status, message)) => {
            build_control_response(status, &json!({"message": message, "status": status.to_string()}))
        }
    }
}

/// Builds a JSON response, also for errors.
fn build_control_response(status: u16, body: &Value) -> SimulatedResponse {
    let headers = vec![("content-type", "application/json; charset=utf-8".to_owned())];
    SimulatedResponse { status, headers, body: body.to_string().into_bytes(), delay_ms: 0 }
}

/// Status and message.
type ControlRefusal = (u16, String);

/// Parses the body; 400 with the reason of serde.
fn parse_request_body<T: DeserializeOwned>(request: &SimulatedRequest) -> Result<T, ControlRefusal> {
    serde_json::from_slice(&request.body).map_err(|error| (400, format!("the body is not as it should be: {error}")))
}

/// Dispatches to one arm per route of `HELP`.
fn dispatch_control(world: &mut World, request: &SimulatedRequest, segments: &[&str]) -> Result<Value, ControlRefusal> {
    match (request.method, segments) {
        (RequestMethod::Get, [""]) => Ok(json!(HELP.into_iter().collect::<std::collections::BTreeMap<_, _>>())),
        (RequestMethod::Get, ["health"]) => Ok(json!({"status": "ok", "now": world.state.now})),
        (RequestMethod::Get, ["tokens"]) => {
            Ok(json!(world.tokens_with_logins().collect::<std::collections::BTreeMap<_, _>>()))
        }
        (RequestMethod::Get, ["counters"]) => Ok(json!(world.journal.counters)),
        (RequestMethod::Get, ["requests"]) => Ok(json!(world.journal.entries().collect::<Vec<_>>())),
        (RequestMethod::Delete, ["requests"]) => {
            world.journal.clear();
            Ok(json!({}))
        }
        (RequestMethod::Get, ["inventory"]) => Ok(json!(take_inventory(&world.state))),
        (RequestMethod::Get, ["diff"]) => {
            let query = RequestQuery::parse(&request.query);
            let before = find_named_inventory(world, query.get("from").unwrap_or("seed"))?;
            let after = find_named_inventory(world, query.get("to").unwrap_or("now"))?;
            Ok(json!(compare_inventories(&before, &after)))
        }
        (RequestMethod::Get, ["state"]) => serde_json::to_value(&world.state).map_err(|error| (500, error.to_string())),
        (RequestMethod::Put, ["state"]) => {
            let mut state: WorldState = parse_request_body(request)?;
            // The index of names is not part of the serialized state.
            state.rebuild_name_index();
            world.state = state;
            Ok(json!({}))
        }
        (RequestMethod::Get, ["snapshots"]) => Ok(json!(world.snapshots.keys().collect::<Vec<_>>())),
        (RequestMethod::Put, ["snapshots", name]) => {
            // These names have a meaning of their own in `diff` and `restore`.
            if ["seed", "now", ""].contains(name) {
                return Err((422, format!("a snapshot cannot be called {name:?}")));
            }
            if world.snapshots.len() >= MAX_SNAPSHOTS && !world.snapshots.contains_key(*name) {
                return Err((422, format!("there are {MAX_SNAPSHOTS} snapshots; delete some first")));
            }
            world.snapshots.insert((*name).to_owned(), world.snapshot());
            Ok(json!({"name": name}))
        }
        (RequestMethod::Delete, ["snapshots", name]) => match world.snapshots.remove(*name) {
            Some(_) => Ok(json!({})),
            None => Err(snapshot_not_found(name)),
        },
        (RequestMethod::Post, ["snapshots", name, "restore"]) => {
            // The seed can be restored like a snapshot; unlike `reset`, this keeps the journal.
            let snapshot = if *name == "seed" { Some(world.seed.clone()) } else { world.snapshots.get(*name).cloned() };
            world.restore(&snapshot.ok_or_else(|| snapshot_not_found(name))?);
            Ok(json!({"name": name}))
        }
        (RequestMethod::Post, ["reset"]) => {
            world.reset();
            Ok(json!({}))
        }
        (RequestMethod::Post, ["seed"]) => {
            let text = String::from_utf8_lossy(&request.body);
            let seed =
                SeedFile::parse(&text, SeedFormat::Json, "the body").map_err(|error| (422, error.to_string()))?;
            // A new world begins: snapshots, journal and limits of the old one are gone.
            *world = seed.world_without_files().map_err(|error| (422, error.to_string()))?;
            Ok(json!({}))
        }
        (RequestMethod::Get, ["faults"]) => Ok(json!(world.faults)),
        (RequestMethod::Post, ["faults"]) => {
            let fault: SimulatedFault = parse_request_body(request)?;
            fault.validate(&world.state).map_err(|error| (422, error.to_string()))?;
            world.add_fault(fault);
            Ok(json!({}))
        }
        (RequestMethod::Delete, ["faults"]) => {
            world.faults.clear();
            Ok(json!({}))
        }
        (RequestMethod::Post, ["clock"]) => {
            let body: Value = parse_request_body(request)?;
            // Time only moves forward; the upper limit keeps dates within what the formatter accepts.
            let seconds = body["advance_s"].as_i64().filter(|seconds| (0..=10_000_000_000).contains(seconds));
            world.advance_clock(
                seconds.ok_or_else(|| (422, "advance_s must be a number of seconds, 0 or more".to_owned()))?,
            );
            Ok(json!({"now": world.state.now}))
        }
        (RequestMethod::Post, ["limits"]) => {
            world.limits = parse_request_body(request)?;
            Ok(json!(world.limits))
        }
        _ => Err((
            404,
            format!("there is no {} {}; GET /_gradus lists what there is", request.method.name(), request.path),
        )),
    }
}

fn snapshot_not_found(name: &str) -> ControlRefusal {
    (404, format!("there is no snapshot {name:?}"))
}

/// Finds the inventory for `now`, `seed`, or the name of a snapshot.
fn find_named_inventory(world: &World, name: &str) -> Result<WorldInventory, ControlRefusal> {
    match name {
        "now" => Ok(take_inventory(&world.state)),
        "seed" => Ok(take_inventory(&world.seed.state)),
        _ => world.snapshots.get(name).map(|one| take_inventory(&one.state)).ok_or_else(|| snapshot_not_found(name)),
    }
}
