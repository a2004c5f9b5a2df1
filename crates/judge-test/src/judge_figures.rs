//! Computes the figures of a judge from its verdicts: detection by rubric and by flaw, false alarms, cases without a
//! verdict, flips, cost and latency. Every share has a cluster-robust 95 % interval, because cases made from one run
//! are alike.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use gradus_stats::interval::{ConfidenceInterval, ScoreCluster, clustered_interval, mean_interval};
use serde::Serialize;

use crate::bias_probe::BiasProbe;
use crate::fitness::{FitnessEvidence, decide_fitness};
use crate::flaw::PlantedFlaw;
use crate::right_run::{RunForm, RunMaterial};
use crate::test_case::{ExpectedVerdict, TestCase};
use crate::test_report::{
    CaseGroupResult, CaseVerdict, FlawResult, JudgeRecord, JudgeResult, MeasuredMean, MeasuredShare, ProbeResult,
    RubricResult,
};

/// Values of one case each, with the cluster that the case belongs to.
#[derive(Default)]
struct ClusteredValues<'c>(Vec<(&'c str, f64)>);

impl ClusteredValues<'_> {
    fn measure(&self) -> MeasuredShare {
        let mut clusters: BTreeMap<&str, ScoreCluster> = BTreeMap::new();
        for (cluster, value) in &self.0 {
            let sums = clusters.entry(cluster).or_default();
            (sums.count, sums.sum) = (sums.count + 1.0, sums.sum + value);
        }
        let count = self.0.len() as f64;
        let sum: f64 = self.0.iter().map(|(_, value)| value).sum();
        let sums: Vec<ScoreCluster> = clusters.values().copied().collect();
        MeasuredShare {
            value: (count > 0.0).then(|| sum / count),
            interval: clustered_interval(&sums, 0.0, 1.0),
            cases: self.0.len() as u64,
            clusters: clusters.len() as u64,
        }
    }
}

/// All verdicts on one case without a probe.
struct CaseAnswers<'c> {
    case: &'c TestCase,
    asked: usize,
    judged: usize,
    flagged: usize,
    labels: BTreeSet<&'c str>,
}

impl CaseAnswers<'_> {
    /// Share of the verdicts that flag the case; `None` without one.
    fn flagged_share(&self) -> Option<f64> {
        (self.judged > 0).then(|| self.flagged as f64 / self.judged as f64)
    }

    /// Probability that two of its verdicts differ; `None` for fewer than two.
    fn flip_share(&self) -> Option<f64> {
        let (flagged, judged) = (self.flagged as f64, self.judged as f64);
        (self.judged >= 2).then(|| 2.0 * flagged * (judged - flagged) / (judged * (judged - 1.0)))
    }

    fn is_flawed(&self) -> bool {
        self.case.expected == ExpectedVerdict::Flawed
    }
}

fn measure_answer_share<'c>(
    answers: &[&CaseAnswers<'c>],
    value: impl Fn(&CaseAnswers<'c>) -> Option<f64>,
) -> MeasuredShare {
    let values = answers.iter().filter_map(|one| Some((one.case.cluster.as_str(), value(one)?)));
    ClusteredValues(values.collect()).measure()
}

/// The figures of one judge.
pub fn measure_judge(cases: &[TestCase], record: &JudgeRecord) -> JudgeResult {
    let mut answers: Vec<CaseAnswers<'_>> = cases
        .iter()
        .map(|case| CaseAnswers { case, asked: 0, judged: 0, flagged: 0, labels: BTreeSet::new() })
        .collect();
    for verdict in record.verdicts.iter().filter(|verdict| verdict.probe.is_none()) {
        if let Some(known) = answers.get_mut(verdict.case) {
            known.asked += 1;
            known.judged += usize::from(verdict.label.is_some());
            known.flagged += usize::from(verdict.label.is_some() && verdict.is_flagged);
            known.labels.extend(verdict.label.as_deref());
        }
    }
    let mut names: Vec<&str> = Vec::new();
    for case in cases {
        if !names.contains(&case.evaluator.as_str()) {
            names.push(&case.evaluator);
        }
    }
    let rubrics = names.iter().map(|name| {
        let own: Vec<&CaseAnswers<'_>> =
            answers.iter().filter(|one| one.case.evaluator == *name && one.asked > 0).collect();
        measure_rubric(name, &own, record)
    });
    let probes = names.iter().flat_map(|name| measure_probes(name, cases, record));
    let (rubrics, probes) = (rubrics.collect(), probes.collect());
    let is_priced = record.verdicts.iter().all(|verdict| verdict.cost_usd.is_some());
    let costs: Vec<f64> =
        record.verdicts.iter().filter(|verdict| !verdict.is_cached).filter_map(|verdict| verdict.cost_usd).collect();
    let mut seconds: Vec<f64> = record.answer_times.iter().map(Duration::as_secs_f64).collect();
    seconds.sort_by(f64::total_cmp);
    let quantile = |share: f64| {
        let last = seconds.len().checked_sub(1)?;
        seconds.get((share * last as f64).round() as usize).copied()
    };
    JudgeResult {
        judge: record.judge.clone(),
        endpoint: record.endpoint.clone(),
        rubrics,
        probes,
        cost_usd: is_priced.then(|| costs.iter().sum()),
        cost_per_question: if is_priced { measure_mean(&costs) } else { MeasuredMean::default() },
        calls: record.calls,
        cached: record.verdicts.iter().filter(|verdict| verdict.is_cached).count() as u64,
        seconds_per_question: measure_mean(&seconds),
        median_seconds: quantile(0.5),
        p95_seconds: quantile(0.95),
        stopped_because: record.stopped_because.clone(),
    }
}

fn measure_mean(values: &[f64]) -> MeasuredMean {
    let count = values.len();
    let value = (count > 0).then(|| values.iter().sum::<f64>() / count as f64);
    MeasuredMean { value, interval: mean_interval(values), count: count as u64 }
}

fn measure_rubric(name: &str, own: &[&CaseAnswers<'_>], record: &JudgeRecord) -> RubricResult {
    let select = |is_flawed: bool| -> Vec<&CaseAnswers<'_>> {
        own.iter().copied().filter(|one| one.is_flawed() == is_flawed).collect()
    };
    let (flawed, originals) = (select(true), select(false));
    let detection = measure_answer_share(&flawed, CaseAnswers::flagged_share);
    let false_alarms = measure_answer_share(&originals, CaseAnswers::flagged_share);
    let not_judged = |one: &CaseAnswers<'_>| Some((one.asked - one.judged) as f64 / one.asked as f64);
    let could_not_judge = measure_answer_share(own, not_judged);
    let flagged_of_all = |one: &CaseAnswers<'_>| Some(one.flagged as f64 / one.asked as f64);
    let flips = measure_answer_share(own, CaseAnswers::flip_share);
    let flips = (flips.cases > 0).then_some(flips);
    let evidence = FitnessEvidence {
        cases: flawed.len().min(originals.len()) as u64,
        detection: detection.interval,
        acceptance: false_alarms
            .interval
            .map(|alarms| ConfidenceInterval { low: 1.0 - alarms.high, high: 1.0 - alarms.low }),
        not_judged: could_not_judge.value.unwrap_or(0.0),
        flip_rate: flips.and_then(|flips| flips.value),
    };
    let (fitness, mut reasons) = decide_fitness(&evidence);
    reasons.extend(find_single_label(own));
    let flaws: BTreeSet<PlantedFlaw> = flawed.iter().map(|one| one.case.flaw).collect();
    let flaws = flaws.into_iter().map(|flaw| {
        let of_flaw: Vec<&CaseAnswers<'_>> = flawed.iter().copied().filter(|one| one.case.flaw == flaw).collect();
        FlawResult {
            flaw,
            detection: measure_answer_share(&of_flaw, CaseAnswers::flagged_share),
            could_not_judge: measure_answer_share(&of_flaw, not_judged),
        }
    });
    let forms: BTreeSet<RunForm> = own.iter().map(|one| one.case.form).collect();
    let materials: BTreeSet<RunMaterial> = own.iter().map(|one| one.case.material).collect();
    let group = |group: String, is_in: &dyn Fn(&TestCase) -> bool| {
        let part = |all: &[&CaseAnswers<'_>]| {
            let part: Vec<&CaseAnswers<'_>> = all.iter().copied().filter(|one| is_in(one.case)).collect();
            measure_answer_share(&part, CaseAnswers::flagged_share)
        };
        CaseGroupResult { group, detection: part(&flawed), false_alarms: part(&originals) }
    };
    RubricResult {
        rubric: name.to_owned(),
        rubric_hash: record.rubric_hashes.get(name).cloned().unwrap_or_default(),
        cases: own.len() as u64,
        detection,
        false_alarms,
        could_not_judge,
        flagged_of_flawed: measure_answer_share(&flawed, flagged_of_all),
        flagged_of_originals: measure_answer_share(&originals, flagged_of_all),
        flips,
        fitness,
        reasons,
        flaws: flaws.collect(),
        forms: forms.into_iter().map(|form| group(serialized_name(&form), &|case| case.form == form)).collect(),
        materials: materials
            .into_iter()
            .map(|one| group(serialized_name(&one), &|case| case.material == one))
            .collect(),
    }
}

/// Returns the name of a variant in JSON.
fn serialized_name(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Returns the label if the judge gives the same one to all cases, flawed and right: it then distinguishes nothing.
fn find_single_label(own: &[&CaseAnswers<'_>]) -> Option<String> {
    let has_both = [true, false].iter().all(|kind| own.iter().any(|one| one.is_flawed() == *kind && one.judged > 0));
    let labels: BTreeSet<&str> = own.iter().flat_map(|one| one.labels.iter().copied()).collect();
    match (has_both, labels.len(), labels.first()) {
        (true, 1, Some(label)) => Some(format!("the judge gave one label only, {label:?}: it distinguishes nothing")),
        _ => None,
    }
}

/// Measures the probes of one rubric. Each is compared with the first verdict on the unchanged case.
fn measure_probes(name: &str, cases: &[TestCase], record: &JudgeRecord) -> Vec<ProbeResult> {
    let first: BTreeMap<usize, &CaseVerdict> = record
        .verdicts
        .iter()
        .filter(|verdict| verdict.probe.is_none() && verdict.repeat == 0)
        .map(|verdict| (verdict.case, verdict))
        .collect();
    let probes: BTreeSet<BiasProbe> = record.verdicts.iter().filter_map(|verdict| verdict.probe).collect();
    let probes = probes.into_iter().filter_map(|probe| {
        let mut result = ProbeResult {
            probe,
            rubric: name.to_owned(),
            flips: MeasuredShare::default(),
            flips_on_originals: MeasuredShare::default(),
            flips_on_flawed: MeasuredShare::default(),
            became_flagged: 0,
            became_accepted: 0,
            not_compared: 0,
        };
        let mut values: Vec<(&TestCase, f64)> = Vec::new();
        for verdict in record.verdicts.iter().filter(|verdict| verdict.probe == Some(probe)) {
            let Some(case) = cases.get(verdict.case).filter(|case| case.evaluator == name) else { continue };
            let unchanged = first.get(&verdict.case).filter(|unchanged| unchanged.label.is_some());
            let (Some(unchanged), Some(_)) = (unchanged, &verdict.label) else {
                result.not_compared += 1;
                continue;
            };
            let is_flipped = unchanged.is_flagged != verdict.is_flagged;
            result.became_flagged += u64::from(is_flipped && verdict.is_flagged);
            result.became_accepted += u64::from(is_flipped && !verdict.is_flagged);
            values.push((case, f64::from(u8::from(is_flipped))));
        }
        if values.is_empty() && result.not_compared == 0 {
            return None;
        }
        let share = |is_in: &dyn Fn(&TestCase) -> bool| {
            let part = values.iter().filter(|(case, _)| is_in(case));
            ClusteredValues(part.map(|(case, value)| (case.cluster.as_str(), *value)).collect()).measure()
        };
        result.flips = share(&|_| true);
        result.flips_on_originals = share(&|case| case.expected == ExpectedVerdict::Right);
        result.flips_on_flawed = share(&|case| case.expected == ExpectedVerdict::Flawed);
        Some(result)
    });
    probes.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::fitness::GatingFitness;

    fn case(number: usize, expected: ExpectedVerdict, flaw: PlantedFlaw) -> TestCase {
        TestCase {
            case_id: number.to_string(),
            pair_id: (number / 2).to_string(),
            evaluator: "thought_to_tool".to_owned(),
            step: Some(1),
            expected,
            flaw,
            note: String::new(),
            cluster: format!("run {}", number / 2),
            material: RunMaterial::Bench,
            form: RunForm::React,
            trajectory: Arc::default(),
        }
    }

    fn verdict(case: usize, repeat: u32, probe: Option<BiasProbe>, label: Option<&str>) -> CaseVerdict {
        CaseVerdict {
            case,
            repeat,
            probe,
            label: label.map(str::to_owned),
            is_flagged: label == Some("incorrect"),
            cost_usd: Some(0.01),
            is_cached: false,
        }
    }

    fn cases(pairs: usize) -> Vec<TestCase> {
        let kinds = [ExpectedVerdict::Flawed, ExpectedVerdict::Right];
        let flaws = [PlantedFlaw::WrongTool, PlantedFlaw::InventedId];
        (0..2 * pairs).map(|number| case(number, kinds[number % 2], flaws[(number / 2) % 2])).collect()
    }

    #[test]
    fn a_perfect_judge_is_fit_and_a_few_cases_prove_nothing() {
        let right = |pairs: usize| {
            let cases = cases(pairs);
            let label = |number: usize| Some(if number.is_multiple_of(2) { "incorrect" } else { "correct" });
            let verdicts = (0..cases.len()).map(|number| verdict(number, 0, None, label(number)));
            let record = JudgeRecord { verdicts: verdicts.collect(), ..JudgeRecord::default() };
            measure_judge(&cases, &record).rubrics.remove(0)
        };
        let many = right(40);
        assert_eq!((many.detection.value, many.false_alarms.value), (Some(1.0), Some(0.0)));
        assert_eq!((many.fitness, many.flips), (GatingFitness::Recommended, None));
        assert_eq!(many.flaws.len(), 2);
        assert_eq!(many.flaws[0].detection.cases, 20);
        let few = right(1);
        assert_eq!(few.fitness, GatingFitness::Undecided);
        assert!(few.detection.interval.is_some_and(|interval| interval.low < 0.3), "{:?}", few.detection);
    }

    #[test]
    fn one_label_silence_and_flips_are_told() {
        let cases = cases(10);
        let same = (0..20).map(|number| verdict(number, 0, None, Some("correct")));
        let result = measure_judge(&cases, &JudgeRecord { verdicts: same.collect(), ..JudgeRecord::default() });
        assert_eq!(result.rubrics[0].fitness, GatingFitness::Unfit);
        assert!(result.rubrics[0].reasons.iter().any(|reason| reason.contains("one label only")));
        let silent = (0..20).map(|number| verdict(number, 0, None, None));
        let result = measure_judge(&cases, &JudgeRecord { verdicts: silent.collect(), ..JudgeRecord::default() });
        assert_eq!(result.rubrics[0].could_not_judge.value, Some(1.0));
        assert_eq!((result.rubrics[0].detection.value, result.rubrics[0].fitness), (None, GatingFitness::Unfit));
        // Every verdict differs between two askings.
        let flipping = (0..20).flat_map(|number| {
            [verdict(number, 0, None, Some("correct")), verdict(number, 1, None, Some("incorrect"))]
        });
        let record = JudgeRecord { verdicts: flipping.collect(), ..JudgeRecord::default() };
        let rubric = &measure_judge(&cases, &record).rubrics[0];
        assert_eq!(rubric.flips.and_then(|flips| flips.value), Some(1.0));
        assert_eq!(rubric.detection.value, Some(0.5), "the mean over repetitions");
    }

    #[test]
    fn probes_are_compared_with_the_unchanged_case() {
        let cases = cases(4);
        let mut verdicts: Vec<CaseVerdict> = (0..8).map(|number| verdict(number, 0, None, Some("correct"))).collect();
        let probe = Some(BiasProbe::ToolOrder);
        verdicts.extend(
            (0..6).map(|number| verdict(number, 0, probe, Some(if number == 0 { "incorrect" } else { "correct" }))),
        );
        verdicts.push(verdict(6, 0, probe, None));
        let record = JudgeRecord { verdicts, ..JudgeRecord::default() };
        let found = &measure_judge(&cases, &record).probes[0];
        assert_eq!((found.flips.cases, found.became_flagged, found.became_accepted, found.not_compared), (6, 1, 0, 1));
        assert_eq!(found.flips_on_flawed.value, Some(1.0 / 3.0));
        assert_eq!(found.flips_on_originals.value, Some(0.0));
        assert!(found.flips.interval.is_some_and(|interval| interval.high > 0.3));
    }
}
