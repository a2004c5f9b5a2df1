//! Two runs side by side: what differs, how sure that is, and which verdicts changed sides.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use gradus_eval::comparison::{Difference, ScorePair, paired, unpaired};
use gradus_eval::interval::Cluster;
use gradus_eval::report::RunReader;
use serde::Deserialize;

use super::Frame;
use super::address::Address;
use super::answer::{self, PageError};
use super::runs::{failed, open};
use super::verdict::place;
use super::words::title;
use crate::output::html::number::{self, count};
use crate::output::html::text;
use crate::serve::api::{ApiError, Params, blocking};
use crate::serve::settings::Reloadable;
use crate::serve::state::Server;

/// Verdicts that changed sides and are listed, each way.
const MOST_FLIPS: usize = 50;
/// Trajectories of a run that are compared; those behind are left out, with a word.
const MOST_TRAJECTORIES: usize = 50_000;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Choice {
    a: String,
    b: String,
}

/// What a run said of a trajectory.
struct Judged {
    id: String,
    query: String,
    trace: Option<String>,
    /// By evaluator and step.
    verdicts: BTreeMap<(String, Option<u32>), (f64, String)>,
}

#[derive(Template)]
#[template(path = "compare.html")]
struct Page {
    frame: Frame,
    a: Side,
    b: Side,
    how: &'static str,
    common: String,
    rows: Vec<Row>,
    worse: Vec<Flip>,
    better: Vec<Flip>,
    counts: (String, String),
    is_cut: bool,
}

struct Side {
    id: String,
    href: String,
    judge: String,
    trajectories: String,
}

struct Row {
    title: String,
    before: String,
    after: String,
    change: Option<String>,
    interval: Option<String>,
    class: &'static str,
    word: String,
    count: String,
}

struct Flip {
    href: Option<String>,
    what: String,
    query: String,
    before: String,
    after: String,
}

pub(super) async fn page(
    State(server): State<Arc<Server>>,
    headers: HeaderMap,
    Params(choice): Params<Choice>,
) -> Result<Response, PageError> {
    let _turn = server.openings.acquire().await;
    let frame = Frame::of("/runs", None, &headers);
    let page = blocking(&server, move |server| made(server, &choice, frame)).await?;
    Ok(answer::page(&page))
}

fn made(server: &Server, choice: &Choice, frame: Frame) -> Result<Page, ApiError> {
    if choice.a.is_empty() || choice.b.is_empty() {
        return Err(ApiError::bad("Choose two runs to compare, A and B."));
    }
    let (mut first, mut second) = (open(server, &choice.a)?, open(server, &choice.b)?);
    let (before, after) = (read(&mut first)?, read(&mut second)?);
    let settings = server.reloadable();
    let pairing = Pairing::of(&before, &after);
    let mut flips = Vec::new();
    if pairing.is_by_id {
        flips = changed(&before, &after, &pairing);
    }
    let is_worse = |flip: &&Changed<'_>| flip.after < flip.before;
    let shown = |flips: Vec<&Changed<'_>>| -> Result<Vec<Flip>, ApiError> {
        flips.into_iter().take(MOST_FLIPS).map(|flip| flip.shown(server, &settings)).collect()
    };
    let worse: Vec<_> = flips.iter().filter(is_worse).collect();
    let better: Vec<_> = flips.iter().filter(|flip| !is_worse(flip)).collect();
    let side = |reader: &RunReader, all: &[Judged]| Side {
        id: text::line(&reader.record.run_id),
        href: format!("/runs/{}", reader.record.run_id),
        judge: text::line(&reader.record.judge),
        trajectories: count(all.len() as u64),
    };
    Ok(Page {
        frame,
        a: side(&first, &before),
        b: side(&second, &after),
        how: match (pairing.is_by_id, pairing.pairs.is_empty()) {
            (true, _) => "Paired: both runs judged the same trajectories.",
            (false, false) => "Paired by task: both runs have trajectories with the same requests.",
            (false, true) => "Not paired: the runs have no trajectory and no request in common.",
        },
        common: count(pairing.pairs.len() as u64),
        rows: rows(&settings, &before, &after, &pairing),
        counts: (count(worse.len() as u64), count(better.len() as u64)),
        worse: shown(worse)?,
        better: shown(better)?,
        is_cut: before.len().max(after.len()) == MOST_TRAJECTORIES,
    })
}

fn read(reader: &mut RunReader) -> Result<Vec<Judged>, ApiError> {
    let mut all = Vec::new();
    reader
        .visit(|trajectory, outcomes| {
            if all.len() < MOST_TRAJECTORIES {
                let verdicts = outcomes.iter().filter_map(|line| {
                    let key = (line.evaluator.to_string(), line.step_index);
                    Some((key, (line.score?, line.label.clone()?)))
                });
                all.push(Judged {
                    id: trajectory.trajectory_id.clone(),
                    query: trajectory.query.as_deref().map(text::line).unwrap_or_default(),
                    trace: trajectory.trace_ids.first().cloned(),
                    verdicts: verdicts.collect(),
                });
            }
            Ok::<(), gradus_eval::run::RunFileError>(())
        })
        .map_err(failed)?;
    Ok(all)
}

/// Which trajectories of the two runs belong together.
struct Pairing {
    pairs: Vec<(usize, usize)>,
    is_by_id: bool,
}

impl Pairing {
    fn of(before: &[Judged], after: &[Judged]) -> Pairing {
        let by_id: HashMap<&str, usize> =
            before.iter().enumerate().map(|(at, one)| (one.id.as_str(), at)).collect();
        let pairs: Vec<(usize, usize)> = after
            .iter()
            .enumerate()
            .filter_map(|(at, one)| Some((*by_id.get(one.id.as_str())?, at)))
            .collect();
        if !pairs.is_empty() {
            return Pairing { pairs, is_by_id: true };
        }
        // The same request, once in each run: what was asked twice cannot be told apart.
        let (old, new) = (once(before), once(after));
        let pairs = new.iter().filter_map(|(query, at)| Some((*old.get(query)?, *at))).collect();
        Pairing { pairs, is_by_id: false }
    }
}

fn once(all: &[Judged]) -> BTreeMap<&str, usize> {
    let mut seen: BTreeMap<&str, Option<usize>> = BTreeMap::new();
    for (at, one) in all.iter().enumerate().filter(|(_, one)| !one.query.is_empty()) {
        seen.entry(&one.query).and_modify(|known| *known = None).or_insert(Some(at));
    }
    seen.into_iter().filter_map(|(query, at)| Some((query, at?))).collect()
}

fn rows(settings: &Reloadable, before: &[Judged], after: &[Judged], pairing: &Pairing) -> Vec<Row> {
    let mut names: Vec<&str> = before
        .iter()
        .chain(after)
        .flat_map(|one| one.verdicts.keys().map(|(name, _)| name.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| row(settings, name, before, after, pairing)).collect()
}

fn row(settings: &Reloadable, name: &str, before: &[Judged], after: &[Judged], pairing: &Pairing) -> Row {
    let clusters = |all: &[Judged]| -> Vec<Cluster> {
        let of = |one: &Judged| {
            let scores: Vec<f64> = one.scores(name).map(|(_, score)| score).collect();
            Cluster { count: scores.len() as f64, sum: scores.iter().sum() }
        };
        all.iter().map(of).filter(|cluster| cluster.count > 0.0).collect()
    };
    let mean = |clusters: &[Cluster]| {
        let count: f64 = clusters.iter().map(|one| one.count).sum();
        let sum: f64 = clusters.iter().map(|one| one.sum).sum();
        (count > 0.0).then(|| sum / count)
    };
    let (old, new) = (clusters(before), clusters(after));
    let mut pairs = Vec::new();
    for (trajectory, (a, b)) in pairing.pairs.iter().enumerate() {
        pairs.extend(before[*a].pairs_with(&after[*b], name, trajectory, pairing.is_by_id));
    }
    let difference = paired(&pairs).or_else(|| unpaired(&old, &new));
    let share = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number::percent);
    let (class, word) = said(difference.as_ref());
    Row {
        title: title(settings, name),
        before: share(mean(&old)),
        after: share(mean(&new)),
        change: difference.map(|known| format!("{:+.1}\u{a0}points", 100.0 * known.value)),
        interval: difference.map(|known| {
            let Difference { interval, .. } = known;
            format!("{:+.1}\u{a0}to\u{a0}{:+.1}", 100.0 * interval.low, 100.0 * interval.high)
        }),
        class,
        word,
        count: difference
            .map(|known| {
                format!(
                    "{} in {}",
                    count(known.count),
                    number::counted(known.trajectories, "trajectory", "trajectories")
                )
            })
            .unwrap_or_default(),
    }
}

fn said(difference: Option<&Difference>) -> (&'static str, String) {
    let Some(known) = difference else { return ("", "nothing to compare".to_owned()) };
    let chance = known.chance.map(|chance| match chance {
        chance if chance < 0.001 => " (p < 0.001)".to_owned(),
        chance => format!(" (p = {chance:.3})"),
    });
    let chance = chance.unwrap_or_default();
    match (known.is_significant(), known.value > 0.0) {
        (false, _) => ("", format!("may be chance{chance}")),
        (true, true) => ("pass", format!("better{chance}")),
        (true, false) => ("fail", format!("worse{chance}")),
    }
}

impl Judged {
    fn scores<'s>(&'s self, name: &'s str) -> impl Iterator<Item = (Option<u32>, f64)> + 's {
        let of_name = self.verdicts.iter().filter(move |((known, _), _)| known == name);
        of_name.map(|((_, step), (score, _))| (*step, *score))
    }

    /// The same questions of both; of different trajectories for one task, only their means can be compared.
    fn pairs_with(&self, other: &Judged, name: &str, trajectory: usize, by_step: bool) -> Vec<ScorePair> {
        if by_step {
            let theirs: HashMap<Option<u32>, f64> = other.scores(name).collect();
            let pair = |(step, before): (Option<u32>, f64)| {
                Some(ScorePair { trajectory, before, after: *theirs.get(&step)? })
            };
            return self.scores(name).filter_map(pair).collect();
        }
        let mean = |one: &Judged| {
            let scores: Vec<f64> = one.scores(name).map(|(_, score)| score).collect();
            (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64)
        };
        mean(self)
            .zip(mean(other))
            .map(|(before, after)| ScorePair { trajectory, before, after })
            .into_iter()
            .collect()
    }
}

/// A verdict that is another one in the other run.
struct Changed<'j> {
    judged: &'j Judged,
    evaluator: &'j str,
    step: Option<u32>,
    before: f64,
    after: f64,
    labels: (&'j str, &'j str),
}

fn changed<'j>(before: &'j [Judged], after: &'j [Judged], pairing: &Pairing) -> Vec<Changed<'j>> {
    let mut found = Vec::new();
    for (a, b) in &pairing.pairs {
        let (old, new) = (&before[*a], &after[*b]);
        for ((evaluator, step), (score, label)) in &old.verdicts {
            let Some((other, other_label)) = new.verdicts.get(&(evaluator.clone(), *step)) else { continue };
            if score != other {
                found.push(Changed {
                    judged: new,
                    evaluator,
                    step: *step,
                    before: *score,
                    after: *other,
                    labels: (label, other_label),
                });
            }
        }
    }
    found
}

impl Changed<'_> {
    fn shown(&self, server: &Server, settings: &Reloadable) -> Result<Flip, ApiError> {
        let id = &self.judged.id;
        // A run may be about traces that were never sent here.
        let is_here = server.store.trace_of_trajectory(id)?.is_some();
        let href = self.judged.trace.as_ref().filter(|_| is_here).map(|trace| {
            Address::of(format!("/traces/{trace}"))
                .with("trajectory", Some(id))
                .at(place(self.step))
                .to_string()
        });
        Ok(Flip {
            href,
            what: match self.step {
                Some(step) => format!("{}, step {step}", title(settings, self.evaluator)),
                None => title(settings, self.evaluator),
            },
            query: self.judged.query.clone(),
            before: text::line(self.labels.0),
            after: text::line(self.labels.1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(id: &str, query: &str) -> Judged {
        Judged { id: id.to_owned(), query: query.to_owned(), trace: None, verdicts: BTreeMap::new() }
    }

    #[test]
    fn trajectories_are_paired_by_id_else_by_a_request_that_is_there_once() {
        let of = |before: &[(&str, &str)], after: &[(&str, &str)]| {
            let [before, after] = [before, after]
                .map(|all| all.iter().map(|(id, query)| judged(id, query)).collect::<Vec<_>>());
            let pairing = Pairing::of(&before, &after);
            (pairing.pairs, pairing.is_by_id)
        };
        assert_eq!(of(&[("a", "x"), ("b", "y")], &[("b", "z"), ("c", "x")]), (vec![(1, 0)], true));
        assert_eq!(of(&[("a", "x"), ("b", "y")], &[("c", "y"), ("d", "w")]), (vec![(1, 0)], false));
        // What was asked twice cannot be told apart, and no request is none.
        assert_eq!(of(&[("a", "x"), ("b", "x"), ("e", "")], &[("c", "x"), ("f", "")]), (vec![], false));
    }

    #[test]
    fn steps_are_compared_with_themselves_and_tasks_by_their_means() {
        let mut one = judged("a", "x");
        let mut other = judged("b", "x");
        for (step, before, after) in [(1, 1.0, 0.0), (2, 1.0, 1.0)] {
            one.verdicts.insert(("fit".to_owned(), Some(step)), (before, String::new()));
            other.verdicts.insert(("fit".to_owned(), Some(step + 1)), (after, String::new()));
        }
        let by_step = one.pairs_with(&other, "fit", 7, true);
        assert_eq!(by_step, [ScorePair { trajectory: 7, before: 1.0, after: 0.0 }]);
        let by_task = one.pairs_with(&other, "fit", 7, false);
        assert_eq!(by_task, [ScorePair { trajectory: 7, before: 1.0, after: 0.5 }]);
        assert_eq!(one.pairs_with(&other, "none", 7, false), []);
    }
}
