//! Merges strata of judge labels that have too few labelled cases.

use super::labelled::LabelledRun;

/// Minimum number of labelled cases for a judge label to keep its own stratum. Strata are merged only if there are
/// more than two.
const MIN_STRATUM_CASES: usize = 10;

/// Returns the merged group of each stratum. Strata with adjacent scores are merged until each group has enough
/// labelled cases or two groups are left: every group has its own prior, and the priors of many small groups would
/// outweigh the labels. The true labels are not used.
pub(super) fn merge_sparse_strata(labelled: &[LabelledRun], strata_scores: &[f64]) -> Vec<usize> {
    let mut counts = vec![0; strata_scores.len()];
    for case in labelled.iter().flat_map(|run| &run.cases) {
        counts[case.stratum] += 1;
    }
    let mut order: Vec<usize> = (0..strata_scores.len()).collect();
    order.sort_by(|a, b| strata_scores[*a].total_cmp(&strata_scores[*b]));
    let mut groups: Vec<Vec<usize>> = order.into_iter().map(|stratum| vec![stratum]).collect();
    let count_cases = |group: &Vec<usize>| group.iter().map(|stratum| counts[*stratum]).sum::<usize>();
    while groups.len() > 2 {
        let Some(sparsest) = (0..groups.len()).min_by_key(|at| count_cases(&groups[*at])) else { break };
        if count_cases(&groups[sparsest]) >= MIN_STRATUM_CASES {
            break;
        }
        // The neighbour with the nearest score, so that unlike labels stay apart.
        let mean_score =
            |group: &Vec<usize>| group.iter().map(|stratum| strata_scores[*stratum]).sum::<f64>() / group.len() as f64;
        let distance = |at: usize| (mean_score(&groups[at]) - mean_score(&groups[sparsest])).abs();
        let neighbours = [sparsest.checked_sub(1), Some(sparsest + 1).filter(|at| *at < groups.len())];
        let nearest = neighbours.into_iter().flatten().min_by(|a, b| distance(*a).total_cmp(&distance(*b)));
        let Some(nearest) = nearest else { break };
        let moved = groups.remove(sparsest.max(nearest));
        groups[sparsest.min(nearest)].extend(moved);
    }
    let mut merged = vec![0; strata_scores.len()];
    for (at, group) in groups.iter().enumerate() {
        for stratum in group {
            merged[*stratum] = at;
        }
    }
    merged
}
