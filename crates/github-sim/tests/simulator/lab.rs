//! What tests of the simulator share: a world, and short words for asking it.

#![allow(dead_code, reason = "no test uses all of it")]

use gradus_github_sim::{RequestMethod, SeedFile, SimulatedRequest, SimulatedResponse, World};
use serde_json::Value;

pub(crate) const OCTO: &str = "test_token_user1";
pub(crate) const MONA: &str = "test_token_user2";
pub(crate) const MALLORY: &str = "test_token_user3";
pub(crate) const READER: &str = "test_token_readonly";

pub(crate) fn world(seed: &str) -> World {
    SeedFile::load_named(seed).unwrap().to_world().unwrap()
}

pub(crate) struct Lab {
    pub(crate) world: World,
    pub(crate) token: &'static str,
}

impl Lab {
    pub(crate) fn new(seed: &str) -> Lab {
        Lab { world: world(seed), token: OCTO }
    }

    pub(crate) fn as_user(&mut self, token: &'static str) -> &mut Lab {
        self.token = token;
        self
    }

    pub(crate) fn send(&mut self, method: RequestMethod, target: &str, body: Option<Value>) -> SimulatedResponse {
        let mut request = SimulatedRequest::new(method, target).with_header("host", "127.0.0.1:4100");
        if !self.token.is_empty() {
            request = request.with_token(self.token);
        }
        if let Some(body) = body {
            request = request.with_json(&body);
        }
        self.world.handle(&request)
    }

    pub(crate) fn get(&mut self, target: &str) -> SimulatedResponse {
        self.send(RequestMethod::Get, target, None)
    }

    pub(crate) fn post(&mut self, target: &str, body: Value) -> SimulatedResponse {
        self.send(RequestMethod::Post, target, Some(body))
    }

    pub(crate) fn put(&mut self, target: &str, body: Value) -> SimulatedResponse {
        self.send(RequestMethod::Put, target, Some(body))
    }

    pub(crate) fn patch(&mut self, target: &str, body: Value) -> SimulatedResponse {
        self.send(RequestMethod::Patch, target, Some(body))
    }

    pub(crate) fn delete(&mut self, target: &str) -> SimulatedResponse {
        self.send(RequestMethod::Delete, target, None)
    }

    /// The body of a GET that must go well.
    pub(crate) fn read(&mut self, target: &str) -> Value {
        let response = self.get(target);
        assert_eq!(response.status, 200, "GET {target}: {}", String::from_utf8_lossy(&response.body));
        response.json()
    }

    /// Paths of what changed since the beginning.
    pub(crate) fn changed(&self) -> Vec<String> {
        self.world.changes_since_seed().into_iter().map(|one| one.path).collect()
    }
}

/// Status and message of a refusal.
pub(crate) fn refusal(response: &SimulatedResponse) -> (u16, String) {
    (response.status, response.json()["message"].as_str().unwrap_or_default().to_owned())
}
