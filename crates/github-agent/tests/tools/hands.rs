//! The tools with a simulator to use them on.

#![allow(dead_code, reason = "no test uses all of it")]

use gradus_github_agent::tools::{CallObservation, GitHubTools, ToolFamily, ToolRestrictions, ToolSet as _, all_tools};
use gradus_github_sim::{SeedFile, SimulatorServer, World};
use serde_json::Value;

pub(crate) const OCTO: &str = "test_token_user1";

pub(crate) struct Hands {
    pub(crate) server: SimulatorServer,
    pub(crate) tools: GitHubTools,
    called: std::sync::Mutex<std::collections::BTreeSet<String>>,
}

pub(crate) fn everything() -> ToolRestrictions {
    ToolRestrictions { allow_destructive: true, ..ToolRestrictions::default() }
}

impl Hands {
    pub(crate) fn new(seed: &str) -> Hands {
        Hands::with(SeedFile::load_named(seed).unwrap().to_world().unwrap(), everything())
    }

    pub(crate) fn with(world: World, limits: ToolRestrictions) -> Hands {
        let server = SimulatorServer::start(world, 0).unwrap();
        let tools = GitHubTools::new(&server.url(), Some(OCTO), limits).unwrap();
        Hands { server, tools, called: std::sync::Mutex::default() }
    }

    pub(crate) async fn see(&self, name: &str, arguments: Value) -> CallObservation {
        self.called.lock().unwrap().insert(name.to_owned());
        self.tools.call(name, &arguments).await
    }

    /// A call that must go well.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Value {
        let seen = self.see(name, arguments).await;
        assert!(!seen.is_error, "{name}: {}", seen.text);
        serde_json::from_str(&seen.text).unwrap()
    }

    /// A call that must not.
    pub(crate) async fn fail(&self, name: &str, arguments: Value) -> Value {
        let seen = self.see(name, arguments).await;
        assert!(seen.is_error, "{name}: {}", seen.text);
        serde_json::from_str(&seen.text).unwrap()
    }

    /// What changed in the world, by path; of what is there now, the value.
    pub(crate) fn changes(&self) -> Vec<(String, Value)> {
        let changes = self.server.world().lock().unwrap().changes_since_seed();
        changes.into_iter().map(|one| (one.path, one.after.unwrap_or(Value::Null))).collect()
    }

    pub(crate) fn changed(&self, path: &str) -> Value {
        let found = self.changes().into_iter().find(|(at, _)| at == path);
        found.unwrap_or_else(|| panic!("{path} is not in {:#?}", self.changes())).1
    }

    pub(crate) fn requests(&self) -> usize {
        self.server.world().lock().unwrap().recent_requests().count()
    }

    /// Whether all tools of these families were called.
    pub(crate) fn used_all(&self, families: &[ToolFamily]) {
        let called = self.called.lock().unwrap();
        for (_, tool) in all_tools().filter(|(family, _)| families.contains(family)) {
            assert!(called.contains(&*tool.definition.name), "{}", tool.definition.name);
        }
    }
}
