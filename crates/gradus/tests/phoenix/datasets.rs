//! Datasets of a Phoenix, found by name or id over several pages.

use gradus_test_endpoint::{Answer, Incoming};
use serde_json::json;

use crate::lab::{Lab, Phoenix};

fn datasets(incoming: &Incoming<'_>) -> Option<Answer> {
    let (path, query) = incoming.what().split_once('?').unwrap_or((incoming.what(), ""));
    let body = match path {
        "GET /v1/datasets" if query.contains("cursor=second") => {
            json!({"data": [{"id": "RGF0YXNldDoy", "name": "shop questions"}, {"id": "D3", "name": "twice"}], "next_cursor": null})
        }
        "GET /v1/datasets" => {
            json!({"data": [{"id": "D1", "name": "other"}, {"id": "D4", "name": "twice"}], "next_cursor": "second"})
        }
        "GET /v1/datasets/RGF0YXNldDoy/examples" => {
            json!({"data": {"dataset_id": "RGF0YXNldDoy", "version_id": "V1", "examples": [
                {"id": "e1", "node_id": "n1", "input": {"question": "Where is order 7?"}, "output": {"answer": "Shipped."}, "metadata": {"tags": ["status"]}, "updated_at": "2026-11-17T10:00:00Z"},
                {"id": "e2", "node_id": "n2", "input": {}, "output": {}, "metadata": {}, "updated_at": "2026-11-17T10:00:00Z"},
            ]}})
        }
        _ => return None,
    };
    Some(Answer::ok(body.to_string()))
}

#[test]
fn a_dataset_is_read_by_its_name_or_its_id() {
    let lab = Lab::new();
    let phoenix = Phoenix::with_fault(Vec::new(), datasets);
    let create = |wanted: &str, more: &[&str]| {
        let fixed = ["dataset", "create", "-", "--phoenix", &phoenix.origin(), "--phoenix-dataset", wanted];
        lab.run(&[&fixed[..], more].concat())
    };
    for wanted in ["shop questions", "RGF0YXNldDoy"] {
        let ran = create(wanted, &["--tag", "imported"]).exits_with(0);
        let items = ran.lines();
        assert_eq!(items.len(), 1, "{}", ran.out);
        assert_eq!(items[0]["id"], "e1");
        assert_eq!((&items[0]["request"], &items[0]["reference"]), (&json!("Where is order 7?"), &json!("Shipped.")));
        assert_eq!(items[0]["tags"], json!(["status", "imported"]));
        assert_eq!(items[0]["metadata"], json!({"phoenix_dataset": "shop questions"}));
        assert!(ran.err.contains("1 example without a request"), "{}", ran.err);
    }
    create("nothing", &[])
        .exits_with(2)
        .says("there is no dataset \"nothing\"; hint: there are other, twice, shop questions, twice");
    create("twice", &[]).exits_with(2).says("2 datasets are called \"twice\"; hint: give the id of one");
    create("other", &[]).exits_with(2).says("Phoenix");
    lab.run(&["dataset", "create", "-", "--phoenix-dataset", "x"]).exits_with(2).says("--phoenix URL");
}
