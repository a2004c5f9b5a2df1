//! The sums behind metrics against sums over everything there is, after whatever happened to it.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use std::collections::{BTreeMap, BTreeSet};

use gradus_store::*;
use lab::*;
use proptest::prelude::*;

const DAY_NS: i64 = 86_400_000_000_000;

#[derive(Clone, Debug)]
enum Act {
    /// The trajectories of a trace as they are from now on: name, version, agent, tool, scores.
    Assemble { trace: u128, made: Vec<(u8, u8, u8, Vec<Verdict>)> },
    /// A model's word on whatever waits.
    Judge { which: usize, verdicts: Vec<Verdict>, is_late: bool },
    /// The root comes in another project.
    Move { trace: u128, project: u8 },
}

#[derive(Clone, Debug)]
struct Verdict {
    evaluator: u8,
    step: u32,
    tool: u8,
    /// Beyond four: failed, not applicable, abstained, and a label without a score.
    score: u8,
}

fn verdict() -> impl Strategy<Value = Verdict> {
    (0u8..2, 0u32..4, 0u8..3, 0u8..9).prop_map(|(evaluator, step, tool, score)| Verdict {
        evaluator,
        step,
        tool,
        score,
    })
}

fn act() -> impl Strategy<Value = Act> {
    let verdicts = || prop::collection::vec(verdict(), 0..5);
    let made = prop::collection::vec((0u8..3, 0u8..3, 0u8..2, verdicts()), 0..3);
    prop_oneof![
        4 => (1u128..4, made).prop_map(|(trace, made)| Act::Assemble { trace, made }),
        4 => (0usize..8, verdicts(), any::<bool>())
            .prop_map(|(which, verdicts, is_late)| Act::Judge { which, verdicts, is_late }),
        1 => (1u128..4, 0u8..3).prop_map(|(trace, project)| Act::Move { trace, project }),
    ]
}

fn outcome(verdict: &Verdict) -> OutcomeRecord {
    let evaluator = format!("e{}", verdict.evaluator);
    let step = (verdict.step > 0).then_some(verdict.step);
    let tool = match (step, verdict.tool) {
        (None, _) | (_, 0) => String::new(),
        (_, tool) => format!("tool{tool}"),
    };
    match verdict.score {
        5 => unscored(&evaluator, step, RecordedKind::Failed, &tool),
        6 => unscored(&evaluator, step, RecordedKind::NotApplicable, &tool),
        7 => unscored(&evaluator, step, RecordedKind::Abstained, &tool),
        8 => OutcomeRecord { score: None, is_wrong: false, ..scored(&evaluator, step, "gave_up", 0.0, &tool) },
        score => scored(&evaluator, step, "label", f64::from(score) / 3.0, &tool),
    }
}

/// A trajectory and its verdicts by question, the simple way.
#[derive(Clone, Debug)]
struct Plain {
    record: TrajectoryRecord,
    project: String,
    outcomes: BTreeMap<(String, Option<u32>), OutcomeRecord>,
}

fn key(outcome: &OutcomeRecord) -> (String, Option<u32>) {
    (outcome.evaluator.clone(), outcome.step)
}

/// By project, evaluator, agent and tool.
type Sums = BTreeMap<(String, String, String, String), ScoreMoments>;

fn expected(plain: &BTreeMap<String, Plain>) -> Sums {
    let mut sums = Sums::new();
    for one in plain.values() {
        let mut own: BTreeMap<(String, String), ScoreMoments> = BTreeMap::new();
        for outcome in one.outcomes.values() {
            for tool in [Some(""), Some(outcome.tool.as_str()).filter(|tool| !tool.is_empty())].into_iter().flatten() {
                let part = own.entry((outcome.evaluator.clone(), tool.to_owned())).or_default();
                match outcome.kind {
                    RecordedKind::Scored => match outcome.score {
                        Some(score) => {
                            part.scored += 1;
                            part.sum += score;
                        }
                        None => part.abstained += 1,
                    },
                    RecordedKind::Failed => part.failed += 1,
                    RecordedKind::Abstained => part.abstained += 1,
                    RecordedKind::NotApplicable => part.not_applicable += 1,
                }
            }
        }
        for ((evaluator, tool), part) in own {
            let n = part.scored as f64;
            let key = (one.project.clone(), evaluator, one.record.agent.clone(), tool);
            let sum = sums.entry(key).or_default();
            sum.trajectories += 1;
            sum.scored_trajectories += i64::from(part.scored > 0);
            sum.scored += part.scored;
            sum.sum += part.sum;
            sum.sum_sum += part.sum * part.sum;
            sum.sum_n += part.sum * n;
            sum.n_n += n * n;
            sum.failed += part.failed;
            sum.not_applicable += part.not_applicable;
            sum.abstained += part.abstained;
        }
    }
    sums
}

fn stored(lab: &Lab) -> Sums {
    let mut sums = Sums::new();
    for project in lab.store.projects().unwrap() {
        for tool in [None, Some("tool1".to_owned()), Some("tool2".to_owned())] {
            let filter = MetricFilter { project: Some(project.name.clone()), tool: tool.clone(), ..Default::default() };
            for row in lab.store.metrics(&filter, MetricGroup::Agent).unwrap() {
                let key = (project.name.clone(), row.evaluator, row.group, tool.clone().unwrap_or_default());
                sums.insert(key, row.moments);
            }
        }
    }
    sums
}

fn assert_same(stored: &Sums, expected: &Sums) {
    assert_eq!(stored.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (key, a) in stored {
        let b = &expected[key];
        let whole = |m: &ScoreMoments| (m.trajectories, m.scored, m.failed, m.not_applicable, m.abstained);
        assert_eq!(whole(a), whole(b), "{key:?}");
        for (a, b) in [(a.sum, b.sum), (a.sum_sum, b.sum_sum), (a.sum_n, b.sum_n), (a.n_n, b.n_n)] {
            assert!((a - b).abs() < 1e-9, "{key:?}: {a} and {b}");
        }
    }
}

/// The sums over hours and days, of a project and of all, by agent and for everybody, by one name and by several, are
/// those of five minutes.
fn assert_long(lab: &Lab, expected: &Sums, trajectories: usize) {
    let mut projects: Vec<Option<String>> =
        lab.store.projects().unwrap().into_iter().map(|project| Some(project.name)).collect();
    projects.push(None);
    let agents: BTreeSet<&String> = expected.keys().map(|(_, _, agent, _)| agent).collect();
    let agents: Vec<Option<&String>> = agents.into_iter().map(Some).chain([None]).collect();
    // All trajectories have the same version and model, so that these change nothing.
    let others = [(None, None), (Some("1"), None), (None, Some("gpt")), (Some("1"), Some("gpt"))];
    for project in &projects {
        for (agent, (version, model)) in agents.iter().flat_map(|agent| others.map(|other| (agent, other))) {
            let filter = MetricFilter {
                project: project.clone(),
                agent: agent.cloned(),
                version: version.map(str::to_owned),
                model: model.map(str::to_owned),
                ..MetricFilter::default()
            };
            let wanted = |evaluator: &str, tool: &str| {
                let fits = |(of_project, of_evaluator, of_agent, of_tool): &(String, String, String, String)| {
                    project.as_ref().is_none_or(|project| project == of_project)
                        && evaluator == of_evaluator
                        && agent.is_none_or(|agent| agent == of_agent)
                        && tool == of_tool
                };
                let mut sum = ScoreMoments::default();
                expected.iter().filter(|(key, _)| fits(key)).for_each(|(_, moments)| sum += *moments);
                sum
            };
            let same = |a: &ScoreMoments, b: &ScoreMoments| {
                assert_eq!((a.trajectories, a.scored, a.failed), (b.trajectories, b.scored, b.failed));
                assert!((a.sum - b.sum).abs() < 1e-9 && (a.sum_n - b.sum_n).abs() < 1e-9);
            };
            for evaluator in ["e0", "e1", "e2"] {
                let mut sum = ScoreMoments::default();
                let filter = MetricFilter { evaluator: Some(evaluator.to_owned()), ..filter.clone() };
                let periods = lab.store.metric_periods(&filter, DAY_NS).unwrap();
                periods.rows.iter().for_each(|row| sum += row.moments);
                same(&sum, &wanted(evaluator, ""));
                let tools = lab.store.tool_sums(&filter).unwrap().tools;
                for tool in ["tool1", "tool2"] {
                    same(&tools.get(tool).copied().unwrap_or_default(), &wanted(evaluator, tool));
                }
            }
        }
    }
    let usage = lab.store.usage_periods(&MetricFilter::default(), DAY_NS).unwrap().rows;
    assert_eq!(usage.iter().map(|(_, usage)| usage.trajectories).sum::<i64>(), trajectories as i64);
}

fn play(acts: &[Act]) {
    let lab = Lab::new();
    let mut projects: BTreeMap<u128, String> = BTreeMap::new();
    for trace in 1..4 {
        lab.ingest(vec![chunk(trace, "p0", 10, &[span(1)])], 1);
        projects.insert(trace, "p0".to_owned());
    }
    let mut plain: BTreeMap<String, Plain> = BTreeMap::new();
    let mut seen: Vec<UngradedTrajectory> = Vec::new();
    let mut spans = 1;
    for act in acts {
        match act {
            Act::Assemble { trace, made } => {
                let records: BTreeMap<String, TrajectoryRecord> = made
                    .iter()
                    .map(|(name, version, agent, verdicts)| {
                        let id = format!("t{trace}.{name}");
                        let mut record = trajectory(&id, *trace, 10);
                        record.agent = format!("a{agent}");
                        record.json = format!(r#"{{"id":"{id}","v":{version},"a":{agent}}}"#).into_bytes();
                        record.outcomes = verdicts.iter().map(outcome).collect();
                        record.ungraded_by = Some("rule".to_owned());
                        (id, record)
                    })
                    .collect();
                lab.assemble(lab.trace(*trace).trace_group, records.values().cloned().collect(), 2);
                plain.retain(|id, one| one.record.trace_id.0 != *trace || records.contains_key(id));
                for (id, record) in records {
                    let project = projects[trace].clone();
                    let same = plain.get_mut(&id).filter(|known| known.record.json == record.json);
                    if let Some(known) = same {
                        known.project = project;
                        continue;
                    }
                    let outcomes = record.outcomes.iter().map(|one| (key(one), one.clone())).collect();
                    plain.insert(id, Plain { record, project, outcomes });
                }
            }
            Act::Judge { which, verdicts, is_late } => {
                if !is_late || seen.is_empty() {
                    seen = lab.store.ungraded_trajectories("rule", i64::MAX, 0, 100).unwrap();
                }
                let Some(who) = seen.get(which % seen.len().max(1)) else { continue };
                let outcomes: Vec<OutcomeRecord> = verdicts.iter().map(outcome).collect();
                let now = lab.store.ungraded_trajectories("rule", i64::MAX, 0, 100).unwrap();
                lab.store
                    .record_verdicts(who, outcomes.clone(), JudgeSpend::default(), RemainingGrading::More, 3)
                    .unwrap()
                    .wait()
                    .unwrap();
                if now.iter().any(|one| one.no == who.no && one.digest == who.digest) {
                    let known = plain.get_mut(&who.trajectory_id).unwrap();
                    known.outcomes.extend(outcomes.iter().map(|one| (key(one), one.clone())));
                }
            }
            Act::Move { trace, project } => {
                spans += 1;
                let project = format!("p{project}");
                lab.ingest(vec![rooted(chunk(*trace, &project, 10, &[span(spans)]), "root", true)], 4);
                // Seen when it is assembled again, which it is: as it was.
                let own: Vec<TrajectoryRecord> = plain
                    .values()
                    .filter(|one| one.record.trace_id.0 == *trace)
                    .map(|one| one.record.clone())
                    .collect();
                assert_eq!(lab.assemble(lab.trace(*trace).trace_group, own, 5), 0);
                for one in plain.values_mut().filter(|one| one.record.trace_id.0 == *trace) {
                    one.project.clone_from(&project);
                }
                projects.insert(*trace, project);
            }
        }
        assert_same(&stored(&lab), &expected(&plain));
    }
    assert_long(&lab, &expected(&plain), plain.len());
    // With a project go its sums, also out of those of all.
    let mut rest = plain.clone();
    if let Some(project) = plain.values().next().map(|one| one.project.clone()) {
        let number = lab.store.project_named(&project).unwrap().unwrap().no;
        while lab.store.remove_project_step(number).unwrap().wait().unwrap().has_more {}
        rest.retain(|_, one| one.project != project);
        assert_long(&lab, &expected(&rest), rest.len());
    }
    lab.assert_clean();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_are_those_of_the_verdicts_there_are(acts in prop::collection::vec(act(), 1..25)) {
        play(&acts);
    }
}

#[test]
fn periods_and_groups() {
    let lab = Lab::new();
    lab.ingest(vec![chunk(1, "shop", 10, &[span(1)])], 1);
    let records = (0..6)
        .map(|n| {
            let mut record = trajectory(&format!("t{n}"), 1, n * BUCKET_NS + 7);
            record.model = format!("m{}", n % 2);
            record.outcomes = vec![scored("fit", Some(1), "good", n as f64, "search")];
            record
        })
        .collect();
    lab.assemble(lab.trace(1).trace_group, records, 2);
    let sums = |filter: &MetricFilter, group| -> Vec<(String, f64)> {
        let rows = lab.store.metrics(filter, group).unwrap();
        rows.into_iter().map(|row| (row.group, row.moments.sum)).collect()
    };
    let is = |rows: &[(&str, f64)]| -> Vec<(String, f64)> {
        rows.iter().map(|(group, sum)| ((*group).to_owned(), *sum)).collect()
    };
    let all = MetricFilter::default();
    assert_eq!(sums(&all, MetricGroup::All), is(&[("", 15.0)]));
    assert_eq!(sums(&all, MetricGroup::Model), is(&[("m0", 6.0), ("m1", 9.0)]));
    assert_eq!(sums(&all, MetricGroup::Tool), is(&[("search", 15.0)]));
    let two = MetricGroup::Time { period_ns: 2 * BUCKET_NS };
    let ns = |n: i64| (n * BUCKET_NS).to_string();
    assert_eq!(sums(&all, two), [(ns(0), 1.0), (ns(2), 5.0), (ns(4), 9.0)]);
    // The period ends within the bucket of the fourth.
    let some = MetricFilter { from_ns: Some(BUCKET_NS), to_ns: Some(3 * BUCKET_NS + 8), ..all.clone() };
    assert_eq!(sums(&some, MetricGroup::All), is(&[("", 6.0)]));
    let whole = MetricFilter { from_ns: Some(BUCKET_NS), to_ns: Some(3 * BUCKET_NS), ..all };
    assert_eq!(sums(&whole, MetricGroup::All), is(&[("", 3.0)]));
}

#[test]
fn names_and_usage_are_those_of_the_time_that_is_asked_for() {
    const HOUR_NS: i64 = 3_600_000_000_000;
    let lab = Lab::new();
    lab.ingest(vec![chunk(1, "shop", 10, &[span(1)])], 1);
    let records = (0..4)
        .map(|n| {
            let mut record = trajectory(&format!("t{n}"), 1, n * 24 * HOUR_NS + 7);
            record.agent = format!("agent-{n}");
            record.end_ns = record.start_ns + n * 1_000;
            record.cost_usd = (n > 1).then_some(0.5);
            record.is_error = n == 3;
            record
        })
        .collect();
    lab.assemble(lab.trace(1).trace_group, records, 2);
    // From the second day on, but not from its beginning.
    let later = MetricFilter { from_ns: Some(30 * HOUR_NS), ..MetricFilter::default() };
    let names = |filter: &MetricFilter, limit| lab.store.list_names(filter, NameKind::Agent, limit).unwrap();
    assert_eq!(names(&later, 9), ["agent-1", "agent-2", "agent-3"]);
    assert_eq!(names(&later, 2), ["agent-1", "agent-2"]);
    assert_eq!(names(&MetricFilter { project: Some("none".to_owned()), ..later.clone() }, 9).len(), 0);
    let usage = lab.store.usage_periods(&later, 24 * HOUR_NS).unwrap().rows;
    let seen: Vec<_> = usage
        .iter()
        .map(|(at, usage)| (at / HOUR_NS, usage.took_ns, usage.costed, usage.cost_usd, usage.errors))
        .collect();
    assert_eq!(seen, [(48, 2_000.0, 1, 0.5, 0), (72, 3_000.0, 1, 0.5, 1)]);
    let two = MetricFilter { agent: Some("agent-2".to_owned()), model: Some("gpt".to_owned()), ..later };
    assert_eq!(lab.store.usage_periods(&two, 24 * HOUR_NS).unwrap().rows, usage[..1]);
}

/// Numbers in traces are whatever somebody sends; one trajectory must not spoil what all share.
#[test]
fn absurd_numbers_stop_nothing() {
    let lab = Lab::new();
    lab.ingest(vec![chunk(1, "shop", 10, &[span(1)])], 1);
    let absurd = [(u64::MAX, Some(f64::NAN)), (u64::MAX, Some(f64::INFINITY)), (1, Some(-5.0)), (2, Some(0.5))];
    let records = |skipped: usize| {
        let record = |(n, (tokens, cost_usd)): (usize, (u64, Option<f64>))| TrajectoryRecord {
            tokens,
            cost_usd,
            ..trajectory(&format!("t{n}"), 1, 7)
        };
        absurd.into_iter().enumerate().skip(skipped).map(record).collect::<Vec<_>>()
    };
    let trace_group = lab.trace(1).trace_group;
    let usage = || lab.store.usage_periods(&MetricFilter::default(), DAY_NS).unwrap().rows[0].1;
    assert_eq!(lab.assemble(trace_group, records(0), 2), 4);
    assert_eq!((usage().trajectories, usage().costed, usage().cost_usd), (4, 1, 0.5));
    assert!(usage().tokens > 3);
    // They can be taken out again, and leave what the others took.
    lab.assemble(trace_group, records(2), 3);
    assert_eq!((usage().trajectories, usage().tokens, usage().cost_usd), (2, 3, 0.5));
    lab.assert_clean();
}

#[test]
fn metrics_outlive_what_they_were_made_of() {
    let lab = Lab::new();
    lab.ingest(vec![chunk(1, "shop", 10, &[span(1)])], 1);
    let mut record = trajectory("t", 1, 10);
    record.outcomes = vec![scored("fit", None, "good", 1.0, "")];
    lab.assemble(lab.trace(1).trace_group, vec![record], 2);
    let retention = RetentionPolicy { max_age_ns: Some(1), max_bytes: None };
    lab.store.run_retention_step(retention, 1_000).unwrap().wait().unwrap();
    assert_eq!(lab.store.trajectory_json("t").unwrap(), None);
    assert_eq!(lab.store.metrics(&MetricFilter::default(), MetricGroup::All).unwrap().len(), 1);
    lab.assert_clean();
}
