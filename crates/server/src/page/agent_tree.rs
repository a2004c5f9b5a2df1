//! The agents of a trace: which one started which, and when each of them ran.

use std::collections::HashSet;

use gradus_report::html::number;
use gradus_report::html::svg::Svg;
use gradus_report::html::text;

use super::address::PageUrl;
use super::display_text::format_duration;
use super::loaded_trace::TrajectoryListEntry;
use super::time_bar::TimeScale;

/// Maximum number of trajectories in the tree.
const MAX_AGENTS: usize = 50;
/// Maximum indentation. Deeper agents are not indented further.
const MAX_DEPTH: usize = 6;

/// A link to one trajectory of the trace.
pub(super) struct AgentLink {
    pub(super) href: String,
    pub(super) title: String,
    pub(super) steps: String,
    pub(super) took: String,
    /// When it ran, within the trace.
    pub(super) bar: Svg,
    /// 0 for an agent that no other agent of the trace started.
    pub(super) depth: usize,
    pub(super) is_here: bool,
    pub(super) is_failing: bool,
    /// The trajectory and the step of it that started this one.
    parent: Option<String>,
    parent_step: Option<u32>,
}

/// An agent, as shown at the step that started it.
pub(super) struct StartedAgent {
    pub(super) href: String,
    pub(super) title: String,
    pub(super) steps: String,
    pub(super) took: String,
}

impl AgentLink {
    pub(super) fn to_started(&self) -> StartedAgent {
        let AgentLink { href, title, steps, took, .. } = self;
        StartedAgent { href: href.clone(), title: title.clone(), steps: steps.clone(), took: took.clone() }
    }

    /// Whether this step of the trajectory started it.
    pub(super) fn is_started_by(&self, trajectory: &str, step: u32) -> bool {
        self.parent.as_deref() == Some(trajectory) && self.parent_step == Some(step)
    }
}

/// Builds the tree: agents below the one that started them, in order of time. Empty for a single agent.
pub(super) fn build_agent_tree(trace: &str, all: &[TrajectoryListEntry], chosen: &str) -> Vec<AgentLink> {
    if all.len() < 2 {
        return Vec::new();
    }
    let from = all.iter().map(|one| one.start_ns).min().unwrap_or(0);
    let to = all.iter().map(|one| one.end_ns).max().unwrap_or(0);
    let scale = TimeScale::from_times(from, to);
    order_agents(all)
        .into_iter()
        .take(MAX_AGENTS)
        .map(|(at, depth)| {
            let one = &all[at];
            AgentLink {
                href: PageUrl::from_path(format!("/traces/{trace}"))
                    .with("trajectory", Some(one.id.as_str()).filter(|_| at > 0))
                    .to_string(),
                title: text::format_display_line(one.agent.as_deref().or(one.query.as_deref()).unwrap_or("trajectory")),
                steps: number::format_counted_noun(one.steps as u64, "step", "steps"),
                took: format_duration(one.end_ns.saturating_sub(one.start_ns)),
                bar: scale.draw_bar(if one.is_failing { "w-error" } else { "w-model" }, one.start_ns, one.end_ns),
                depth: depth.min(MAX_DEPTH),
                is_here: one.id == chosen,
                is_failing: one.is_failing,
                parent: one.parent.clone(),
                parent_step: one.parent_step,
            }
        })
        .collect()
}

/// Returns positions with depths, parents before their children. A parent that is not in the list makes a root;
/// agents that name each other as parents are listed at the end. Iterative, since the depth is up to the sender.
fn order_agents(all: &[TrajectoryListEntry]) -> Vec<(usize, usize)> {
    let position = |id: &str| all.iter().position(|one| one.id == id);
    let parents: Vec<Option<usize>> = all.iter().map(|one| one.parent.as_deref().and_then(position)).collect();
    let mut listed = Vec::with_capacity(all.len());
    let mut seen = HashSet::new();
    let roots = (0..all.len()).filter(|at| parents[*at].is_none());
    for root in roots.chain(0..all.len()) {
        let mut open = vec![(root, 0)];
        while let Some((at, depth)) = open.pop() {
            if !seen.insert(at) {
                continue;
            }
            listed.push((at, depth));
            let children = (0..all.len()).rev().filter(|child| parents[*child] == Some(at) && *child != at);
            open.extend(children.map(|child| (child, depth + 1)));
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, parent: Option<&str>) -> TrajectoryListEntry {
        TrajectoryListEntry {
            id: id.to_owned(),
            agent: Some(format!("agent {id}")),
            query: None,
            steps: 2,
            is_failing: false,
            parent: parent.map(str::to_owned),
            parent_step: parent.map(|_| 1),
            start_ns: 0,
            end_ns: 1_000,
        }
    }

    #[test]
    fn agents_stand_below_the_one_that_started_them() {
        let all = [entry("a", None), entry("b", Some("c")), entry("c", Some("a")), entry("d", Some("gone"))];
        let tree = build_agent_tree("t", &all, "c");
        let shown: Vec<(&str, usize, bool)> =
            tree.iter().map(|one| (one.title.as_str(), one.depth, one.is_here)).collect();
        let wanted = [("agent a", 0, false), ("agent c", 1, true), ("agent b", 2, false), ("agent d", 0, false)];
        assert_eq!(shown, wanted);
        assert!(tree[1].is_started_by("a", 1) && !tree[1].is_started_by("a", 2));
        assert!(build_agent_tree("t", &all[..1], "a").is_empty());
    }

    #[test]
    fn agents_that_name_each_other_are_listed_once() {
        let all = [entry("a", Some("b")), entry("b", Some("a")), entry("c", Some("c"))];
        assert_eq!(build_agent_tree("t", &all, "a").len(), 3);
    }
}
