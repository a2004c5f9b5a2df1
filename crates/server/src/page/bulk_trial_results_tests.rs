use gradus_eval::rubric::RubricOrigin;

use super::*;
use crate::bulk_trial::{BulkTrialSelection, PresentVerdict};

const RUBRIC: &str = "+++\nname = \"fit\"\ntitle = \"Fit\"\napplies_to = \"step\"\nlabels = { good = 1.0, bad = 0.0 }\n+++\nIs it good or bad?\n\n{thought}\n";

fn case(number: u32, present: Option<&str>) -> BulkTrialCase {
    BulkTrialCase {
        trace_id: format!("{number:032x}"),
        trajectory_id: format!("t{number}"),
        step: Some(1),
        present: present.map(|label| PresentVerdict {
            label: label.to_owned(),
            judge: "model".to_owned(),
            rubric_hash: "old".to_owned(),
        }),
    }
}

fn line(case: &BulkTrialCase, label: Option<&str>) -> OutcomeLine {
    serde_json::from_value(serde_json::json!({
        "run_id": "r",
        "trajectory_id": case.trajectory_id,
        "step_index": case.step,
        "evaluator": "fit",
        "outcome": if label.is_some() { OutcomeKind::Scored } else { OutcomeKind::Failed },
        "label": label,
        "score": null,
        "explanation": label.map(|label| format!("it is {label}")),
        "evidence": [],
        "reason": label.is_none().then_some("no answer"),
        "judge": "model",
        "rubric_hash": "new",
        "tokens": null,
        "cost_usd": null,
        "cached": false,
        "calls": 1,
    }))
    .unwrap()
}

fn human_label(case: &BulkTrialCase, label: &str) -> LabelRow {
    LabelRow {
        no: 1,
        project: "shop".to_owned(),
        trace_id: 1,
        trajectory: 1,
        trajectory_id: case.trajectory_id.clone(),
        step: case.step,
        evaluator: "fit".to_owned(),
        author: "ann".to_owned(),
        identifier: "ann".to_owned(),
        label: label.to_owned(),
        note: None,
        updated_ns: 1,
        metadata: "{}".to_owned(),
        judge_label: None,
        judged: None,
    }
}

/// Cases by present, tried and human label.
fn results(given: &[(Option<&str>, Option<&str>, Option<&str>)]) -> Option<BulkTrialResults> {
    let cases: Vec<BulkTrialCase> =
        given.iter().enumerate().map(|(number, (present, _, _))| case(number as u32, *present)).collect();
    let mut record = BulkTrialRecord::default();
    let mut people: HashMap<(String, Option<u32>), Vec<LabelRow>> = HashMap::new();
    for (case, (_, tried, human)) in cases.iter().zip(given) {
        record.outcomes.insert((case.trajectory_id.clone(), case.step), line(case, *tried));
        if let Some(label) = human {
            people.insert((case.trajectory_id.clone(), case.step), vec![human_label(case, label)]);
        }
    }
    let plan = BulkTrialPlan {
        cases,
        judge: "model".to_owned(),
        present_hash: "old".to_owned(),
        selection: BulkTrialSelection::Labelled,
        ..BulkTrialPlan::default()
    };
    let rubric = Rubric::parse(RUBRIC, RubricOrigin::BuiltIn).unwrap();
    BulkTrialResults::new(&plan, &rubric, &record, &CaseLabels(people))
}

#[test]
fn changes_stand_beside_what_people_say() {
    let (good, bad) = (Some("good"), Some("bad"));
    let found = results(&[
        (good, good, good),
        (good, bad, bad),
        (bad, good, bad),
        (good, bad, None),
        (bad, bad, bad),
        (None, good, good),
        (good, None, good),
    ])
    .unwrap();
    assert_eq!(found.outcomes, "6 verdicts, 1 without a verdict");
    assert_eq!(found.failure.as_deref(), Some("no answer"));
    // Without the case that has no verdict now, and without the one that had none.
    assert_eq!(found.changed.as_deref(), Some("3 of 5"));
    assert_eq!(found.labels, ["good", "bad"]);
    let row = |label: &str, cells: [&str; 2]| (label.to_owned(), cells.map(str::to_owned).to_vec());
    assert_eq!(found.table, [row("good", ["1", "2"]), row("bad", ["1", "1"])]);
    let changes: Vec<_> =
        found.changes.iter().map(|one| (one.after.as_str(), one.people.as_str(), one.class)).collect();
    // Those that people labelled come first.
    assert_eq!(changes, [("bad", "bad", "pass"), ("good", "bad", "fail"), ("bad", "", "na")]);
    assert!(found.changes[0].href.contains("/traces/") && found.changes[0].href.ends_with("#step-1"));
    assert_eq!(
        found.label_changes.as_deref(),
        Some("Of 4 labels, 1 agrees now and did not before; 1 agrees no longer.")
    );
    // Both rubrics are measured on the same labels.
    let agreed: Vec<_> = found.agreement.iter().map(|one| (one.title.as_str(), one.agreed.as_str())).collect();
    assert_eq!(agreed, [("Present rubric", "3 of 4"), ("Tried rubric", "3 of 4")]);
    assert_eq!(found.notes, ["1 case has no present verdict and cannot be compared."]);
}

#[test]
fn without_present_verdicts_the_tried_rubric_stands_alone() {
    assert!(results(&[]).is_none());
    let found = results(&[(None, Some("good"), Some("good")), (None, Some("bad"), Some("good"))]).unwrap();
    assert_eq!((found.changed, found.label_changes, found.changes.len()), (None, None, 0));
    let agreed: Vec<_> = found.agreement.iter().map(|one| (one.title.as_str(), one.agreed.as_str())).collect();
    assert_eq!(agreed, [("Tried rubric", "1 of 2")]);
}
