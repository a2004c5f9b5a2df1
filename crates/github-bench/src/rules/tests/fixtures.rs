//! A world, an agent that sends requests to it, and what the rules say in the end.

#![allow(clippy::needless_pass_by_value, reason = "bodies are written where they are sent")]

use serde_json::{Value, json};

use crate::record::TrialRecord;
use crate::rules::{
    BudgetUsage, IrreversibleAction, RuleEvidence, RuleFinding, RuleOutcome, RuleReport, TaskCharter,
    check_conduct_rules,
};
use gradus_github_agent::agent::RunStep;
use gradus_github_agent::tools::AgentTool;
use gradus_github_sim::{
    FaultEffect, RequestMethod, SeedFile, SimulatedFault, SimulatedRequest, SimulatedResponse, World,
};

pub(super) const OCTO: &str = "test_token_user1";
pub(super) const MALLORY: &str = "test_token_user3";

pub(super) struct Lab {
    pub(super) world: World,
    before: World,
    pub(super) charter: TaskCharter,
    pub(super) record: TrialRecord,
    pub(super) tools: Vec<AgentTool>,
    pub(super) collateral: Option<Vec<String>>,
    pub(super) spent: BudgetUsage,
    has_begun: bool,
}

impl Lab {
    pub(super) fn new(seed: &str, request: &str) -> Lab {
        let world = SeedFile::load_named(seed).unwrap().to_world().unwrap();
        Lab::in_world(world, request)
    }

    /// A world that extends a built-in one.
    pub(super) fn seeded(seed: &str, request: &str) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seed.toml");
        std::fs::write(&path, seed).unwrap();
        Lab::in_world(SeedFile::load_named(path.to_str().unwrap()).unwrap().to_world().unwrap(), request)
    }

    fn in_world(world: World, request: &str) -> Lab {
        let record = TrialRecord { request: request.to_owned(), ..TrialRecord::default() };
        Lab {
            before: world.clone(),
            world,
            charter: TaskCharter::default(),
            record,
            tools: Vec::new(),
            collateral: None,
            spent: BudgetUsage::default(),
            has_begun: false,
        }
    }

    pub(super) fn allow(mut self, actions: &[IrreversibleAction]) -> Lab {
        self.charter.allowed_actions = Some(actions.to_vec());
        self
    }

    /// Something others do before the run, or while nobody counts it.
    pub(super) fn others(
        &mut self,
        token: &str,
        method: RequestMethod,
        target: &str,
        body: &Value,
    ) -> SimulatedResponse {
        let request = SimulatedRequest::new(method, target).with_token(token).with_header("host", "127.0.0.1:4100");
        let response = self.world.handle(&request.with_json(body));
        assert!(response.status < 400, "{target}: {}", String::from_utf8_lossy(&response.body));
        self.before = self.world.clone();
        response
    }

    pub(super) fn fault(&mut self, operation: &str, effect: FaultEffect) {
        let operation = Some(operation.to_owned());
        self.world.add_fault(SimulatedFault { method: None, path: None, operation, after: 0, times: 1, effect });
    }

    pub(super) fn act(&mut self, tool: &str, method: RequestMethod, target: &str, body: &Value) -> SimulatedResponse {
        if !self.has_begun {
            self.world.start_recording_exchanges();
            self.has_begun = true;
        }
        let mut request = SimulatedRequest::new(method, target).with_token(OCTO).with_header("host", "127.0.0.1:4100");
        if !body.is_null() {
            request = request.with_json(body);
        }
        let from = self.world.recorded_exchanges().len();
        let response = self.world.handle(&request);
        self.record.steps.push(RunStep {
            tool: tool.to_owned(),
            arguments: body.clone(),
            observation: String::from_utf8_lossy(&response.body).into_owned(),
            is_error: response.status >= 400,
            exchanges: from..self.world.recorded_exchanges().len(),
            ..RunStep::default()
        });
        response
    }

    pub(super) fn get(&mut self, target: &str) -> SimulatedResponse {
        self.act("read", RequestMethod::Get, target, &Value::Null)
    }

    pub(super) fn post(&mut self, target: &str, body: Value) -> SimulatedResponse {
        self.act("write", RequestMethod::Post, target, &body)
    }

    pub(super) fn put(&mut self, target: &str, body: Value) -> SimulatedResponse {
        self.act("write", RequestMethod::Put, target, &body)
    }

    pub(super) fn patch(&mut self, target: &str, body: Value) -> SimulatedResponse {
        self.act("write", RequestMethod::Patch, target, &body)
    }

    pub(super) fn delete(&mut self, target: &str) -> SimulatedResponse {
        self.act("write", RequestMethod::Delete, target, &Value::Null)
    }

    /// The sha of a file, by a read of the run.
    pub(super) fn sha(&mut self, path: &str) -> Value {
        self.get(&format!("/repos/octo/demo/contents/{path}")).json()["sha"].clone()
    }

    pub(super) fn comment(&mut self, number: u64, body: &str) -> SimulatedResponse {
        self.post(&format!("/repos/octo/demo/issues/{number}/comments"), json!({"body": body}))
    }

    pub(super) fn answer(&mut self, text: &str) -> &mut Lab {
        self.record.answer = Some(text.to_owned());
        self
    }

    pub(super) fn report(&mut self) -> RuleReport {
        self.record.exchanges = self.world.recorded_exchanges().to_vec();
        check_conduct_rules(&RuleEvidence {
            charter: &self.charter,
            record: &self.record,
            before: self.before.state(),
            after: self.world.state(),
            tools: &self.tools,
            collateral: self.collateral.as_deref(),
            spent: self.spent,
        })
    }

    fn finding(&mut self, rule: &str) -> RuleFinding {
        self.report().get(rule).unwrap().clone()
    }

    #[track_caller]
    pub(super) fn fails(&mut self, rule: &str, steps: &[usize]) -> String {
        let finding = self.finding(rule);
        assert_eq!((finding.outcome, &finding.steps[..]), (RuleOutcome::Fail, steps), "{finding:?}");
        finding.why
    }

    #[track_caller]
    pub(super) fn passes(&mut self, rule: &str) {
        let finding = self.finding(rule);
        assert_eq!(finding.outcome, RuleOutcome::Pass, "{finding:?}");
    }

    #[track_caller]
    pub(super) fn warns(&mut self, rule: &str, steps: &[usize]) {
        let finding = self.finding(rule);
        assert_eq!((finding.outcome, &finding.steps[..]), (RuleOutcome::Warning, steps), "{finding:?}");
    }

    #[track_caller]
    pub(super) fn is_not_about(&mut self, rule: &str) {
        let finding = self.finding(rule);
        assert_eq!(finding.outcome, RuleOutcome::NotApplicable, "{finding:?}");
    }

    /// As if the world had been asked no more after so many requests.
    #[track_caller]
    pub(super) fn tried(&mut self, rule: &str, steps: &[usize], requests: usize) {
        self.record.exchanges = self.world.recorded_exchanges()[..requests].to_vec();
        let evidence = RuleEvidence {
            charter: &self.charter,
            record: &self.record,
            before: self.before.state(),
            after: self.before.state(),
            tools: &self.tools,
            collateral: None,
            spent: self.spent,
        };
        let report = check_conduct_rules(&evidence);
        let finding = report.get(rule).unwrap();
        assert_eq!((finding.outcome, &finding.steps[..]), (RuleOutcome::Fail, steps), "{finding:?}");
    }
}
