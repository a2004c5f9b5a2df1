//! Rows in every table that is moved as a whole.

use gradus_core::text_signature::TextSignature;
use gradus_store::*;

use super::{Lab, chunk, linked, rooted, scored, span, trajectory};

impl Lab {
    /// Stores a run with everything that people and servers may add to it: a wrong verdict, a question that is still to be
    /// asked, spending, an annotation, alerts, an anchor and a key. Every table gets a row of its own for each `id`.
    pub fn fill_every_table(&self, at: &StoreLocation, id: u128, now_ns: i64) {
        let root = rooted(chunk(id, "shop", 10 * id as u64, &[span(id as u64).error()]), "root", true);
        self.ingest(vec![linked(root, &[(LinkKind::Session, id as u64)])], now_ns);
        let mut record = trajectory(&format!("t{id}"), id, 10 * id as i64);
        record.json = format!(r#"{{"id":{id}}}"#).into_bytes();
        record.words = format!("word{id}");
        record.ungraded_by = Some("r".to_owned());
        record.outcomes = vec![OutcomeRecord {
            failure_group: Some(failure_group(id)),
            ..scored("fit", Some(1), "bad", 0.0, "search")
        }];
        self.assemble(self.trace(id).trace_group, vec![record], now_ns + 2_000);
        // This one stays in the ready queue.
        self.ingest(vec![chunk(id + 1_000_000, "shop", 10 * id as u64, &[span(1)])], now_ns);
        self.add_settings(id, now_ns);
        let scopes = KeyScopes::parse("read").unwrap();
        Store::add_key_at(at, &format!("key {id}"), &new_key().unwrap(), scopes, now_ns).unwrap();
    }

    fn add_settings(&self, id: u128, now_ns: i64) {
        let (store, rule) = (&self.store, format!("rule {id}"));
        let spend = JudgeSpend { rule: rule.clone(), calls: 2, unpriced: 1, cost_usd: 0.1 + id as f64 };
        store.record_spend(spend, "shop".to_owned(), now_ns).unwrap().wait().unwrap();
        let annotation = NewAnnotation {
            target: format!("trajectory:t{id}"),
            trace_id: Some(id),
            name: "review".to_owned(),
            annotator: "HUMAN".to_owned(),
            score: Some(0.3),
            metadata: "{}".to_owned(),
            ..NewAnnotation::default()
        };
        store.annotate(vec![annotation], now_ns).unwrap().wait().unwrap();
        let event = Some(("fired".to_owned(), "{}".to_owned()));
        store.put_alert_state(rule.clone(), "{}".to_owned(), event, now_ns).unwrap().wait().unwrap();
        let row =
            AlertRuleRow { name: rule.clone(), body: "{}".to_owned(), author: "me".to_owned(), changed_ns: now_ns };
        store.put_alert_rule(row, Vec::new()).unwrap().wait().unwrap();
        let mute = AlertMuteRow { rule: rule.clone(), until_ns: None, author: "me".to_owned() };
        store.put_alert_mute(mute).unwrap().wait().unwrap();
        let anchors = AnchorSetRow {
            rule,
            evaluator: "fit".to_owned(),
            judge: "openai:gpt".to_owned(),
            rubric_hash: "hash".to_owned(),
            state: "{}".to_owned(),
        };
        store.put_anchor_set(anchors).unwrap().wait().unwrap();
    }
}

fn failure_group(id: u128) -> FailureGroupKey {
    let reason = format!("reason {id}");
    FailureGroupKey {
        key: reason.clone(),
        evaluator: "fit".to_owned(),
        tool: "search".to_owned(),
        rule: "call.schema".to_owned(),
        label: "bad".to_owned(),
        signature: TextSignature::from_text(&reason),
        reason,
    }
}
