//! Lists of traces: every filter, alone and mixed, against a list that is made the simple way; page by page.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use gradus_store::*;
use lab::*;

/// What the simple way knows of a trace.
#[derive(Clone, Debug)]
struct Plain {
    id: u128,
    project: &'static str,
    start_ns: i64,
    has_error: bool,
    trajectories: Vec<TrajectoryRecord>,
}

const PROJECTS: &[&str] = &["shop", "library", "bank"];
const AGENTS: &[&str] = &["planner", "writer", ""];
const MODELS: &[&str] = &["gpt", "claude"];
const VERSIONS: &[&str] = &["1.4", "1.5", ""];
const TOOLS: &[&str] = &["search", "calc", "mail"];
const LABELS: &[&str] = &["good", "bad"];
const EVALUATORS: &[&str] = &["fit", "truth"];
const WORDS: &[&str] = &["apple", "banana", "cherry"];

fn random_trace(random: &mut fastrand::Rng, id: u128) -> Plain {
    // Few different times, so that many are equal.
    let start_ns = 1_000 + random.i64(0..12) * 10;
    let mut one = |n: u128| {
        let mut record = trajectory(&format!("t{id}.{n}"), id, start_ns + 3);
        record.agent = random.choice(AGENTS).unwrap().to_string();
        record.model = random.choice(MODELS).unwrap().to_string();
        record.version = random.choice(VERSIONS).unwrap().to_string();
        record.tools = TOOLS.iter().filter(|_| random.bool()).map(ToString::to_string).collect();
        record.is_error = random.u8(0..6) == 0;
        record.words = WORDS.iter().filter(|_| random.u8(0..3) == 0).copied().collect::<Vec<_>>().join(" -- ");
        for evaluator in EVALUATORS {
            for step in 1..=random.u32(0..3) {
                let label = random.choice(LABELS).unwrap();
                let score = f64::from(random.u8(0..5)) / 4.0;
                let tool = random.choice(TOOLS).unwrap();
                record.outcomes.push(scored(evaluator, Some(step), label, score, tool));
            }
            if random.u8(0..4) == 0 {
                record.outcomes.push(scored(evaluator, None, "good", f64::from(random.u8(0..2)), ""));
            }
        }
        record
    };
    let trajectories = match id % 5 {
        0 => vec![],
        4 => vec![one(0), one(1), one(2)],
        _ => vec![one(0)],
    };
    let project = random.choice(PROJECTS).unwrap();
    Plain { id, project, start_ns, has_error: random.u8(0..4) == 0, trajectories }
}

fn store_of(plain: &[Plain]) -> Lab {
    let lab = Lab::new();
    for one in plain {
        let sent = if one.has_error { span(1).error() } else { span(1) };
        lab.ingest(vec![rooted(chunk(one.id, one.project, one.start_ns as u64, &[sent]), "root", true)], 1);
        lab.assemble(lab.trace(one.id).trace_group, one.trajectories.clone(), 2);
    }
    lab
}

fn fits(filter: &TraceFilter, plain: &Plain) -> bool {
    let any = |fits: &dyn Fn(&TrajectoryRecord) -> bool| plain.trajectories.iter().any(fits);
    let is = |wanted: &Option<String>, fits: &dyn Fn(&TrajectoryRecord, &str) -> bool| {
        wanted.as_ref().is_none_or(|wanted| any(&|record| fits(record, wanted)))
    };
    let has_error = plain.has_error || any(&|record| record.is_error);
    let score = filter.score.as_ref().is_none_or(|bound| {
        any(&|record| {
            let scores: Vec<f64> = record
                .outcomes
                .iter()
                .filter(|outcome| outcome.evaluator == bound.evaluator)
                .filter_map(|outcome| outcome.score)
                .collect();
            let mean = scores.iter().sum::<f64>() / scores.len() as f64;
            !scores.is_empty()
                && bound.at_least.is_none_or(|bound| mean >= bound)
                && bound.below.is_none_or(|bound| mean < bound)
        })
    });
    // With both, the tool and what is wrong are of one step, or of the whole of a trajectory that is asked for.
    let together = filter.wrong.as_ref().zip(filter.tool.as_ref()).is_none_or(|(evaluator, tool)| {
        any(&|record| {
            let is = |wanted: &Option<String>, name: &String| wanted.as_ref().is_none_or(|wanted| wanted == name);
            let is_asked_for = is(&filter.agent, &record.agent)
                && is(&filter.version, &record.version)
                && is(&filter.model, &record.model);
            let wrong = record.outcomes.iter().filter(|one| one.evaluator == *evaluator && one.is_wrong);
            let mut with_tool = wrong.filter(|one| match one.step {
                Some(_) => one.tool == *tool,
                None => record.tools.contains(tool),
            });
            is_asked_for && with_tool.next().is_some()
        })
    });
    filter.project.as_deref().is_none_or(|project| project == plain.project)
        && filter.from_ns.is_none_or(|from| plain.start_ns >= from)
        && filter.to_ns.is_none_or(|to| plain.start_ns < to)
        && is(&filter.agent, &|record, agent| record.agent == agent)
        && is(&filter.version, &|record, version| record.version == version)
        && is(&filter.wrong, &|record, evaluator| {
            record.outcomes.iter().any(|outcome| outcome.evaluator == evaluator && outcome.is_wrong)
        })
        && is(&filter.model, &|record, model| record.model == model)
        && is(&filter.tool, &|record, tool| record.tools.iter().any(|has| has == tool))
        && is(&filter.label, &|record, wanted| {
            record.outcomes.iter().any(|outcome| {
                let label = outcome.label.as_deref().unwrap();
                label == wanted || format!("{}={label}", outcome.evaluator) == wanted
            })
        })
        && is(&filter.text, &|record, text| text.split(' ').all(|word| has_word(&record.words, word)))
        && filter.error.is_none_or(|wanted| wanted == has_error)
        && score
        && together
}

fn expected(filter: &TraceFilter, plain: &[Plain]) -> Vec<u128> {
    // Numbers in the store grow with arrival, here with the id.
    let mut found: Vec<&Plain> = plain.iter().filter(|plain| fits(filter, plain)).collect();
    match filter.text {
        // Trajectories come in the order of their traces.
        Some(_) => found.sort_by_key(|plain| plain.id),
        None => found.sort_by_key(|plain| (plain.start_ns, plain.id)),
    }
    found.into_iter().rev().map(|plain| plain.id).collect()
}

/// As a reader would look for it: a whole word, or with a star the beginning of one.
fn has_word(words: &str, wanted: &str) -> bool {
    words.split_whitespace().any(|word| match wanted.strip_suffix('*') {
        Some(beginning) => word.starts_with(beginning),
        None => word == wanted,
    })
}

fn random_filter(random: &mut fastrand::Rng, parts: u16) -> TraceFilter {
    let has = |part: u16| parts & (1 << part) != 0;
    let mut name = |part: u16, names: &[&str]| has(part).then(|| random.choice(names).unwrap().to_string());
    let (project, agent, model, tool) =
        (name(0, PROJECTS), name(1, &["planner", "writer"]), name(2, MODELS), name(3, TOOLS));
    let label = name(4, &["good", "bad", "fit=good", "truth=bad"]);
    let text = name(5, &["apple", "banana", "apple cherry", "ban", "ban*"]);
    let (version, wrong) = (name(10, &["1.4", "1.5"]), name(11, EVALUATORS));
    let score = has(6).then(|| ScoreBound {
        evaluator: random.choice(EVALUATORS).unwrap().to_string(),
        at_least: random.bool().then(|| f64::from(random.u8(0..5)) / 4.0),
        below: random.bool().then(|| f64::from(random.u8(1..6)) / 4.0),
    });
    let error = has(7).then(|| random.bool());
    let from_ns = has(8).then(|| 1_000 + random.i64(0..12) * 10);
    let to_ns = has(9).then(|| 1_000 + random.i64(0..14) * 10);
    // Groups and folded lists have tests of their own.
    let failure_group = None;
    TraceFilter {
        project,
        from_ns,
        to_ns,
        agent,
        version,
        model,
        tool,
        wrong,
        failure_group,
        label,
        score,
        error,
        text,
        is_folded: false,
    }
}

#[test]
fn every_mix_of_filters_lists_what_fits_once_and_in_order() {
    let mut random = fastrand::Rng::with_seed(7);
    let plain: Vec<Plain> = (1..=150).map(|id| random_trace(&mut random, id)).collect();
    let lab = store_of(&plain);
    let alone = (0..12).map(|part| 1 << part);
    let pairs = (0..12).flat_map(|a| (0..a).map(move |b| 1 << a | 1 << b));
    let some: Vec<u16> = (0..150).map(|_| random.u16(0..4096) & random.u16(0..4096)).collect();
    for parts in std::iter::once(0).chain(alone).chain(pairs).chain(some) {
        let filter = random_filter(&mut random, parts);
        let limit = *random.choice(&[1, 2, 7, 1000]).unwrap();
        assert_eq!(lab.list(&filter, limit), expected(&filter, &plain), "{filter:?} by {limit}");
    }
    lab.assert_clean();
}

#[test]
fn a_name_that_nobody_has_gives_an_empty_list() {
    let lab = store_of(&[random_trace(&mut fastrand::Rng::with_seed(1), 1)]);
    for filter in [
        TraceFilter { project: Some("nobody's".into()), ..Default::default() },
        TraceFilter { tool: Some("none".into()), ..Default::default() },
        TraceFilter { text: Some("  -- ".into()), ..Default::default() },
        TraceFilter { text: Some("\" OR 1".into()), ..Default::default() },
    ] {
        assert_eq!(lab.list(&filter, 10), Vec::<u128>::new());
    }
}

#[test]
fn texts_of_any_script_are_found() {
    let lab = Lab::new();
    let texts = ["हिन्दी में", "สวัสดีครับ", "Zoë naïve", "日本語 テキスト", "Größe ΑΣ", "file_name.txt 42"];
    for (number, text) in texts.into_iter().enumerate() {
        let id = number as u128 + 1;
        lab.ingest(vec![chunk(id, "shop", id as u64, &[span(1)])], 1);
        let mut record = trajectory(&format!("t{id}"), id, 1);
        record.words = text.to_owned();
        lab.assemble(lab.trace(id).trace_group, vec![record], 1);
    }
    let find = |text: &str| lab.list(&TraceFilter { text: Some(text.to_owned()), ..Default::default() }, 10);
    assert_eq!(find("हिन्दी"), [1]);
    assert_eq!(find("สวัสดี"), [2]);
    assert_eq!(find("zoe NAIVE"), [3]);
    assert_eq!(find("日本"), [4]);
    assert_eq!(find("größ ας"), [5]);
    assert_eq!(find("file_name.txt"), [6]);
    assert_eq!(find("NEAR(a b) * ^ {col}: -x"), Vec::<u128>::new());
    assert_eq!(find("\u{0301}"), Vec::<u128>::new());
    assert_eq!(find("日本語—テキスト"), [4], "other marks than ASCII part words, too");
    assert_eq!(find("aⒶb"), Vec::<u128>::new());
}

#[test]
fn rare_words_are_found_behind_many_other_trajectories() {
    // Some hundreds are examined before the index is asked, which is asked about 4,096 at first, then about all others.
    const TRAJECTORIES: u128 = 6_000;
    let lab = Lab::new();
    let ids: Vec<u128> = (1..=TRAJECTORIES).collect();
    for ids in ids.chunks(500) {
        let chunks = ids.iter().map(|&id| chunk(id, if id % 2 == 0 { "even" } else { "odd" }, id as u64, &[span(1)]));
        lab.ingest(chunks.collect(), 1);
        let trace_groups = ids.iter().map(|&id| {
            let mut record = trajectory(&format!("t{id}"), id, id as i64);
            let rare = if matches!(id % 500, 7 | 8) { "rare" } else { "" };
            let frequent = if id % 3 == 0 { "frequent" } else { "" };
            let evenly = if id % 2 == 0 { "evenly" } else { "" };
            record.words = format!("common {rare} {frequent} {evenly} w{id}");
            AssembledTraceGroup { trace_group: lab.trace(id).trace_group, due_ns: None, records: vec![record] }
        });
        lab.store.store_assembled_groups(trace_groups.collect(), 1).unwrap().wait().unwrap();
    }
    let find = |text: &str, limit| lab.list(&TraceFilter { text: Some(text.to_owned()), ..Default::default() }, limit);
    let rare: Vec<u128> = ids.iter().rev().copied().filter(|id| matches!(id % 500, 7 | 8)).collect();
    for limit in [1, 3, 50] {
        assert_eq!(find("rare", limit), rare, "pages of {limit}");
        assert_eq!(find("absent", limit), Vec::<u128>::new());
        assert_eq!(find("w1", limit), [1]);
        assert_eq!(find("frequent rare", limit), rare.iter().copied().filter(|id| id % 3 == 0).collect::<Vec<u128>>());
    }
    let frequent: Vec<u128> = ids.iter().rev().copied().filter(|id| id % 3 == 0).collect();
    assert_eq!(find("frequent", 100), frequent);
    let odd = TraceFilter { text: Some("rare".into()), project: Some("odd".into()), ..Default::default() };
    let rare_odd: Vec<u128> = rare.iter().copied().filter(|id| id % 2 == 1).collect();
    assert_eq!(lab.list(&odd, 2), rare_odd);
    assert_eq!(lab.list(&odd, 50), rare_odd);
    // Rare in one project and frequent in the other.
    let evenly = |project: &str, limit| {
        let filter = TraceFilter { text: Some("evenly".into()), project: Some(project.into()), ..Default::default() };
        lab.list(&filter, limit)
    };
    assert_eq!(evenly("odd", 1), Vec::<u128>::new());
    assert_eq!(evenly("even", 100), ids.iter().rev().copied().filter(|id| id % 2 == 0).collect::<Vec<u128>>());
}

#[test]
fn facets_follow_a_trace_that_changes_though_its_trajectory_does_not() {
    let lab = Lab::new();
    lab.ingest(vec![chunk(1, "library", 500, &[span(1)])], 1);
    lab.ingest(vec![chunk(2, "library", 400, &[span(2)])], 1);
    for id in [1, 2] {
        lab.assemble(lab.trace(id).trace_group, vec![trajectory(&format!("t{id}"), id, 500)], 1);
    }
    let by = |project: &str| {
        let filter = TraceFilter { project: Some(project.into()), agent: Some("planner".into()), ..Default::default() };
        lab.list(&filter, 1)
    };
    assert_eq!(by("library"), [1, 2]);
    lab.ingest(vec![rooted(chunk(1, "shop", 100, &[span(3).error()]), "root", true)], 2);
    let errors = || lab.list(&TraceFilter { error: Some(true), ..Default::default() }, 1);
    assert_eq!(errors(), [1], "before it is assembled");
    lab.assemble(lab.trace(1).trace_group, vec![trajectory("t1", 1, 500)], 3);
    assert_eq!(by("library"), [2]);
    assert_eq!(by("shop"), [1]);
    assert_eq!(errors(), [1]);
    assert_eq!(lab.list(&TraceFilter { agent: Some("planner".into()), ..Default::default() }, 1), [2, 1]);
    assert_eq!(lab.store.projects().unwrap().iter().map(|project| project.trajectories).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_trace_without_trajectories_is_found_by_its_error() {
    let lab = Lab::new();
    lab.ingest(vec![chunk(1, "shop", 5, &[span(1).error()])], 1);
    lab.ingest(vec![chunk(2, "shop", 5, &[span(1)])], 1);
    lab.assemble(lab.trace(1).trace_group, vec![], 1);
    assert_eq!(lab.list(&TraceFilter { error: Some(true), ..Default::default() }, 9), [1]);
    assert_eq!(lab.list(&TraceFilter { error: Some(false), ..Default::default() }, 9), [2]);
}

/// More traces than one request looks at, of which few fit: pages are short, and nothing is left out.
#[test]
fn rare_mixes_are_found_far_down_the_list() {
    const TRACES: u128 = 45_000;
    let lab = Lab::new();
    let rare = |id: u128| id % 20_000 == 5;
    let mut chunks = Vec::new();
    for id in 1..=TRACES {
        let project = if id % 2 == 0 { "shop" } else { "library" };
        let sent = if rare(id) { span(1) } else { span(1).error() };
        chunks.push(chunk(id, project, 1_000 + (id / 50) as u64, &[sent]));
        if chunks.len() == 1_000 || id == TRACES {
            lab.ingest(std::mem::take(&mut chunks), 1);
        }
    }
    let wanted: Vec<u128> = (1..=TRACES).rev().filter(|id| rare(*id)).collect();
    assert_eq!(lab.list(&TraceFilter { error: Some(false), ..Default::default() }, 2), wanted);
    let bounded = TraceFilter { error: Some(false), to_ns: Some(1_000 + 600), ..Default::default() };
    assert_eq!(lab.list(&bounded, 1), [20_005, 5]);
    // Driven by the errors of two projects, with a condition that nothing of them meets.
    let none = TraceFilter { error: Some(true), agent: Some("planner".into()), ..Default::default() };
    assert_eq!(lab.list(&none, 10), Vec::<u128>::new());
    let errors = lab.list(&TraceFilter { error: Some(true), ..Default::default() }, 1_000);
    assert_eq!(errors, (1..=TRACES).rev().filter(|id| !rare(*id)).collect::<Vec<_>>());
}

#[test]
fn a_projects_records_come_page_by_page_in_order() {
    let lab = Lab::new();
    for id in 1..=200u128 {
        let project = if id % 3 == 0 { "library" } else { "shop" };
        lab.ingest(vec![chunk(id, project, 1_000 + (id / 10) as u64, &[span(id as u64)])], 1);
    }
    lab.ingest(vec![chunk(1, "shop", 1_000, &[span(1).text("corrected")])], 2);
    let (mut ids, mut after) = (Vec::new(), None);
    while let Some((page, next)) = lab.store.read_project_page("shop", after).unwrap() {
        assert!(!page.is_cut);
        ids.extend(page.traces.iter().map(|id| id.0));
        after = Some(next);
    }
    assert_eq!(ids, (1..=200).filter(|id| id % 3 != 0).collect::<Vec<_>>());
}

#[test]
fn a_trace_that_is_larger_than_a_page_comes_on_several() {
    let lab = Lab::new();
    let text = "0123456789".repeat(100_000);
    for (number, id) in [1u128, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3].into_iter().enumerate() {
        lab.ingest(vec![chunk(id, "shop", 1_000 + id as u64, &[span(number as u64 + 1).text(&text)])], 1);
    }
    let (mut blocks, mut pages, mut after) = (Vec::new(), 0, None);
    while let Some((page, next)) = lab.store.read_project_page("shop", after).unwrap() {
        let bytes: usize = page.blocks.iter().map(|block| block.export.len()).sum();
        assert!(bytes < 6 << 20, "{bytes}");
        blocks.extend(page.blocks.iter().map(|block| block.no));
        pages += 1;
        after = Some(next);
    }
    assert_eq!(blocks, (1..=13).collect::<Vec<_>>());
    assert!(pages >= 3, "{pages}");
}
