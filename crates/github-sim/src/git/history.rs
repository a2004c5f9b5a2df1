//! The commit graph: ancestors, history and merge bases.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::object::ObjectId;
use super::objects::GitObjectStore;

/// Collects the commit and all of its ancestors. Missing parents are skipped.
pub fn collect_ancestors(objects: &GitObjectStore, from: ObjectId) -> BTreeSet<ObjectId> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![from];
    while let Some(id) = waiting.pop() {
        if let Some(commit) = objects.commit(id)
            && found.insert(id)
        {
            waiting.extend(&commit.parents);
        }
    }
    found
}

/// Whether one commit is an ancestor of another. A commit counts as its own ancestor.
pub fn is_ancestor(objects: &GitObjectStore, ancestor: ObjectId, of: ObjectId) -> bool {
    ancestor == of || collect_ancestors(objects, of).contains(&ancestor)
}

/// Returns commits in the order of `git log --date-order`: newest first, never a parent before its child. Commits in
/// `hidden` are left out.
pub fn walk_history(objects: &GitObjectStore, from: ObjectId, hidden: &BTreeSet<ObjectId>) -> Vec<ObjectId> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    // A commit is ready when all of its shown children were emitted (Kahn's algorithm).
    let mut children: std::collections::BTreeMap<ObjectId, usize> = std::collections::BTreeMap::new();
    let shown: BTreeSet<_> = collect_ancestors(objects, from).difference(hidden).copied().collect();
    for id in &shown {
        for parent in objects.commit(*id).map(|commit| commit.parents.as_slice()).unwrap_or_default() {
            *children.entry(*parent).or_default() += 1;
        }
    }
    let mut waiting = BinaryHeap::new();
    let date = |id: ObjectId| objects.commit(id).map_or(0, |commit| commit.committer.at);
    if shown.contains(&from) {
        waiting.push((date(from), Reverse(0), from));
    }
    while let Some((_, _, id)) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        found.push(id);
        for parent in objects.commit(id).map(|commit| commit.parents.as_slice()).unwrap_or_default() {
            let left = children.entry(*parent).or_default();
            *left = left.saturating_sub(1);
            if *left == 0 && shown.contains(parent) {
                // Equal dates keep the order in which commits became ready.
                waiting.push((date(*parent), Reverse(found.len()), *parent));
            }
        }
    }
    found
}

/// Returns the best common ancestor: one that is not an ancestor of another common one. If there are several, the
/// newest.
pub fn merge_base(objects: &GitObjectStore, one: ObjectId, other: ObjectId) -> Option<ObjectId> {
    let common: BTreeSet<_> =
        collect_ancestors(objects, one).intersection(&collect_ancestors(objects, other)).copied().collect();
    let mut best = common.clone();
    for id in &common {
        // All ancestors of a common commit are common, so removing parents leaves the best ones.
        for parent in objects.commit(*id).map(|commit| commit.parents.as_slice()).unwrap_or_default() {
            best.remove(parent);
        }
    }
    best.into_iter().max_by_key(|id| (objects.commit(*id).map(|commit| commit.committer.at), *id))
}

/// Returns how many commits the head has that the base lacks, and the other way round.
pub fn count_ahead_behind(objects: &GitObjectStore, base: ObjectId, head: ObjectId) -> (usize, usize) {
    let (base, head) = (collect_ancestors(objects, base), collect_ancestors(objects, head));
    (head.difference(&base).count(), base.difference(&head).count())
}

#[cfg(test)]
mod tests {
    use super::super::object::{CommitSignature, EMPTY_TREE, GitCommit, GitObject};
    use super::*;

    fn commit(objects: &mut GitObjectStore, at: i64, parents: &[ObjectId]) -> ObjectId {
        let who = CommitSignature::new("a", "a@example.com", at);
        objects.insert(GitObject::Commit(GitCommit {
            tree: EMPTY_TREE,
            parents: parents.to_vec(),
            author: who.clone(),
            committer: who,
            message: at.to_string(),
        }))
    }

    #[test]
    fn bases_and_distances() {
        let mut objects = GitObjectStore::default();
        let root = commit(&mut objects, 1, &[]);
        let fork = commit(&mut objects, 2, &[root]);
        let left = commit(&mut objects, 3, &[fork]);
        let right = commit(&mut objects, 4, &[fork]);
        let merge = commit(&mut objects, 5, &[left, right]);
        let stranger = commit(&mut objects, 6, &[]);
        assert_eq!(merge_base(&objects, left, right), Some(fork));
        assert_eq!(merge_base(&objects, merge, right), Some(right));
        assert_eq!(merge_base(&objects, merge, stranger), None);
        assert_eq!(count_ahead_behind(&objects, left, merge), (2, 0));
        assert_eq!(count_ahead_behind(&objects, left, right), (1, 1));
        assert_eq!(walk_history(&objects, merge, &BTreeSet::new()), [merge, right, left, fork, root]);
        assert_eq!(walk_history(&objects, merge, &collect_ancestors(&objects, left)), [merge, right]);
        assert!(is_ancestor(&objects, root, merge) && !is_ancestor(&objects, merge, root));
    }

    #[test]
    fn a_clock_that_went_back_puts_no_parent_first() {
        let mut objects = GitObjectStore::default();
        let root = commit(&mut objects, 100, &[]);
        let left = commit(&mut objects, 3, &[root]);
        let right = commit(&mut objects, 2, &[root]);
        let merge = commit(&mut objects, 1, &[left, right]);
        assert_eq!(walk_history(&objects, merge, &BTreeSet::new()), [merge, left, right, root]);
    }
}
