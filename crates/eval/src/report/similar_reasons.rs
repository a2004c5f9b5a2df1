//! Merges groups of verdicts whose reasons a model gave in other words. It runs when all verdicts are counted, so that the
//! result does not depend on the order in which they came.

use std::collections::BTreeMap;

use gradus_core::text_signature::TextSignature;

use super::group_tally::{GroupSubject, GroupTally};

/// A group that similar groups are merged into: the most frequent one of them.
struct LeadingGroup {
    subject: GroupSubject,
    tally: GroupTally,
    signature: TextSignature,
}

/// Evaluator, tool and label of verdicts.
type VerdictSubject = (String, Option<String>, String);

/// Merges groups with similar reasons of models; those of rules are templates and are not merged. Larger groups come
/// first, groups of the same size in the order of their subjects, and each joins the first similar one with the same
/// evaluator, tool and label.
pub(super) fn merge_similar_groups(groups: BTreeMap<GroupSubject, GroupTally>) -> BTreeMap<GroupSubject, GroupTally> {
    let mut merged = BTreeMap::new();
    // By evaluator, tool and label, since only such groups can be the same.
    let mut by_models: BTreeMap<VerdictSubject, Vec<(GroupSubject, GroupTally)>> = BTreeMap::new();
    for (subject, tally) in groups {
        match subject.rule {
            Some(_) => {
                merged.insert(subject, tally);
            }
            None => {
                let about = (subject.evaluator.clone(), subject.tool.clone(), subject.label.clone());
                by_models.entry(about).or_default().push((subject, tally));
            }
        }
    }
    for mut members in by_models.into_values() {
        // Members are in the order of their subjects, and the sort is stable.
        members.sort_by_key(|(_, tally)| std::cmp::Reverse(tally.count));
        let mut leading: Vec<LeadingGroup> = Vec::new();
        for (subject, tally) in members {
            let signature = TextSignature::from_text(&subject.reason);
            match leading.iter_mut().find(|known| known.signature.is_similar(&signature)) {
                Some(known) => known.tally.join(tally),
                None => leading.push(LeadingGroup { subject, tally, signature }),
            }
        }
        merged.extend(leading.into_iter().map(|known| (known.subject, known.tally)));
    }
    merged
}
