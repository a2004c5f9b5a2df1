//! The oracle and the flawed policies on all tasks, through the agent's own loop: everything comes out as their truth
//! says.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use gradus_github_agent::tools::{AgentTool, all_tools};
use gradus_github_bench::policy::{self, PolicyFlaw, RunTruth, ScriptedPolicy};
use gradus_github_bench::suite::TaskSuite;
use gradus_github_bench::trial::{
    BenchError, FinishedTrial, OwnAgent, TrialConcurrency, TrialContestant, TrialJob, run_all,
};
use gradus_github_sim::World;

const ROUNDS: u32 = 3;

fn tools() -> Vec<AgentTool> {
    all_tools().map(|(_, tool)| tool.clone()).collect()
}

fn worlds(suite: &TaskSuite) -> Vec<World> {
    suite.tasks.iter().map(|task| task.world.to_world().expect("a world")).collect()
}

/// All trials of these policies, as far as they can be played.
fn play(policies: &[ScriptedPolicy], rounds: u32) -> Vec<FinishedTrial> {
    let suite = TaskSuite::built_in().expect("the suite");
    let (worlds, tools) = (worlds(&suite), tools());
    let contestants: Vec<TrialContestant<'_>> = policies.iter().copied().map(TrialContestant::Policy).collect();
    let mut jobs = Vec::new();
    for (task, world) in suite.tasks.iter().zip(&worlds) {
        for (contestant, policy) in policies.iter().enumerate() {
            for round in 0..rounds {
                if policy::build_scripted_run(*policy, task, world, &tools, round).is_ok() {
                    let trial = round * policies.len() as u32 + contestant as u32;
                    jobs.push(TrialJob { task, world, trial, contestant, round });
                }
            }
        }
    }
    let player =
        OwnAgent { contestants: &contestants, form: None, replays: true, project: "policies", bench: "policies" };
    let mut finished = Vec::new();
    let pool = TrialConcurrency { threads: 2, slots: 1 };
    let done = run_all::<BenchError>(pool, &jobs, &player, &AtomicBool::new(false), &mut |one| {
        finished.push(one);
        Ok(())
    });
    done.expect("played");
    assert_eq!(finished.len(), jobs.len());
    finished
}

fn told(finished: &[FinishedTrial]) -> String {
    let lines =
        finished.iter().filter(|one| !one.line.differences.is_empty() || !one.line.untold.is_empty()).map(|one| {
            let line = &one.line;
            let variant = line.truth.as_ref().map_or("", |truth| truth.variant.as_str());
            let broken: Vec<String> = line
                .broken
                .iter()
                .map(|finding| format!("{} {:?}: {}", finding.rule, finding.steps, finding.why))
                .collect();
            format!(
                "{} {} ({variant}): {:?} {:?}\n    {:?} {:?} {:?}",
                line.name(),
                line.agent,
                line.differences,
                line.untold,
                line.end,
                line.failures,
                broken
            )
        });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn the_oracle_does_all_tasks_on_the_shortest_way_and_breaks_no_rule() {
    let finished = play(&[ScriptedPolicy::Oracle], 2);
    let wrong = told(&finished);
    assert!(wrong.is_empty(), "{wrong}");
    for one in &finished {
        assert!(one.line.passed && one.line.clean, "{:?}", one.line);
        assert_eq!(one.line.calls, one.line.minimal_calls, "{}", one.line.name());
    }
}

/// One round. A hundredth of so few runs of a policy is less than one, so that bound is for all policies together here.
#[test]
fn flawed_policies_come_out_as_their_truth_says() {
    let tallies = play_flawed_policies(1);
    let mut all = Tally::default();
    for (name, tally) in &tallies {
        assert!(tally.otherwise == 0 && tally.alarms == 0, "{name}: {tallies:#?}");
        all.as_scripted += tally.as_scripted;
        all.untold += tally.untold;
    }
    assert!(all.is_as_scripted(), "{all:?} {tallies:#?}");
}

#[test]
#[ignore = "takes minutes: cargo test --release -p gradus-github-bench --test bench -- --ignored"]
fn flawed_policies_come_out_as_their_truth_says_in_every_round() {
    let tallies = play_flawed_policies(ROUNDS);
    let wrong: Vec<&String> =
        tallies.iter().filter(|(_, tally)| !tally.is_as_scripted()).map(|(name, _)| name).collect();
    assert!(wrong.is_empty(), "{wrong:?} {tallies:#?}");
}

fn play_flawed_policies(rounds: u32) -> BTreeMap<String, Tally> {
    let policies: Vec<ScriptedPolicy> = PolicyFlaw::ALL.into_iter().map(ScriptedPolicy::Flawed).collect();
    let finished = play(&policies, rounds);
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for one in &finished {
        tallies.entry(one.line.agent.clone()).or_default().add(one);
    }
    // Shown where a test fails.
    eprintln!("{}", told(&finished));
    assert_eq!(tallies.len(), PolicyFlaw::ALL.len(), "each flaw can be made somewhere");
    tallies
}

/// How the runs of one policy came out.
#[derive(Debug, Default)]
struct Tally {
    as_scripted: usize,
    otherwise: usize,
    /// A replay said that it cannot tell, which is no finding.
    untold: usize,
    /// Nothing in them can be seen by verifier, rules or replay; a false alarm can be.
    unobservable: usize,
    alarms: usize,
}

impl Tally {
    fn add(&mut self, one: &FinishedTrial) {
        let is_observable = one.line.truth.as_ref().is_some_and(RunTruth::is_observable);
        let is_right = one.line.differences.is_empty();
        *match (is_observable, is_right, one.line.untold.is_empty()) {
            (false, true, _) => &mut self.unobservable,
            (false, false, _) => &mut self.alarms,
            (true, false, _) => &mut self.otherwise,
            (true, true, false) => &mut self.untold,
            (true, true, true) => &mut self.as_scripted,
        } += 1;
    }

    /// In 99 of 100 at least, of those in which there is something to see.
    fn is_as_scripted(&self) -> bool {
        let all = self.as_scripted + self.otherwise + self.untold;
        self.alarms == 0 && all > 0 && self.as_scripted * 100 >= all * 99
    }
}

#[test]
fn trials_differ_and_are_the_same_again() {
    let suite = TaskSuite::built_in().expect("the suite");
    let tools = tools();
    let (mut made, mut varied) = (0, 0);
    for (task, world) in suite.tasks.iter().zip(worlds(&suite)) {
        for flaw in PolicyFlaw::ALL {
            let Ok(variants) = policy::list_flaw_variants(flaw, task, &world, &tools) else { continue };
            let names: Vec<&str> = variants.iter().map(|play| play.truth.variant.as_str()).collect();
            let mut unique = names.clone();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), names.len(), "{} {}: {names:?}", task.id, flaw.name());
            made += 1;
            varied += usize::from(names.len() >= 3);
            for round in 0..4 {
                let one = policy::build_scripted_run(ScriptedPolicy::Flawed(flaw), task, &world, &tools, round)
                    .expect("it can be made");
                let again = policy::build_scripted_run(ScriptedPolicy::Flawed(flaw), task, &world, &tools, round)
                    .expect("again");
                assert_eq!((&one.script, &one.truth), (&again.script, &again.truth));
                assert_eq!(one.truth.steps.len(), one.script.steps.len(), "{}", one.truth.variant);
            }
        }
    }
    assert!(varied * 10 >= made * 8, "only {varied} of {made} have three variants");
}
