//! Servers of two versions on one PostgreSQL database. The newer one is played by its migration: it adds to every table, as
//! a released migration may, and says which older programs can stay.

#![allow(clippy::unwrap_used)] // Also outside of the tests themselves.

mod lab;

use std::sync::Arc;

use gradus_store::*;
use lab::*;

/// A later version of the schema.
const LATER_VERSION: i64 = 1_000;

/// What a migration may do beside running servers: columns with default values, and tables and indexes of its own.
const ADD_TO_EVERY_TABLE: &str = "
    DO $$ DECLARE name TEXT; BEGIN
        FOR name IN SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'gradus'::regnamespace
            AND c.relkind IN ('r', 'p') AND NOT c.relispartition LOOP
            EXECUTE format('ALTER TABLE gradus.%I ADD COLUMN added_later TEXT NOT NULL DEFAULT ''later''', name);
            EXECUTE format('CREATE INDEX ON gradus.%I (added_later)', name);
        END LOOP;
    END $$;
    CREATE TABLE gradus.added_table (no BIGINT PRIMARY KEY);";

/// Does what a newer program does when it starts.
fn upgrade_database(lab: &Lab, oldest_compatible: i64) {
    let mut database = lab.database().unwrap();
    database.batch_execute(ADD_TO_EVERY_TABLE).unwrap();
    set_format(lab, oldest_compatible);
}

fn this_version() -> i64 {
    i64::try_from(schema_version()).unwrap()
}

fn set_format(lab: &Lab, oldest_compatible: i64) {
    let update = "UPDATE gradus.store_format SET schema_version = $1, oldest_compatible = $2";
    lab.database().unwrap().execute(update, &[&LATER_VERSION, &oldest_compatible]).unwrap();
}

/// Uses every table for writing and reading.
fn work(lab: &Lab, id: u128) {
    let now_ns = 1_000_000 * id as i64;
    lab.fill_every_table(&location(lab.folder.path()), id, now_ns);
    let call = JudgeCall {
        key: Some([id as u8; 16]),
        rule: "r".to_owned(),
        project: "shop".to_owned(),
        trajectory_id: format!("t{id}"),
        step: None,
        rubric_hash: "hash".to_owned(),
        judge: "openai:gpt".to_owned(),
        max_cost_usd: 0.5,
        daily_budget_usd: Some(1_000.0),
    };
    let CallAdmission::Granted(ticket) = lab.store.begin_call(&call, now_ns).unwrap() else { panic!("not granted") };
    let spend = JudgeSpend { rule: "r".to_owned(), calls: 1, unpriced: 0, cost_usd: 0.25 };
    lab.store.settle_call(&ticket, spend, Some("answer".to_owned()), now_ns).unwrap();
    let found = TraceFilter { text: Some(format!("word{id}")), ..Default::default() };
    assert_eq!(lab.list(&found, 5), [id]);
    assert_eq!(lab.trace(id).spans, 1);
    lab.assert_clean();
}

#[test]
fn a_server_works_beside_a_newer_one_whose_migration_only_added() {
    let lab = Lab::new();
    let at = location(lab.folder.path());
    if at.folder().is_some() {
        return; // Only one version at a time uses an embedded store.
    }
    // Statements are prepared before the tables change under them.
    work(&lab, 1);
    upgrade_database(&lab, this_version());
    work(&lab, 2);
    let restarted = lab.reopened();
    work(&restarted, 3);
    assert_eq!(restarted.list(&TraceFilter::default(), 10).len(), 6);
    let shop = restarted.store.project_named("shop").unwrap().unwrap().no;
    while restarted.store.remove_project_step(shop).unwrap().wait().unwrap().has_more {}
    restarted.assert_clean();
}

#[test]
fn moving_a_store_is_left_to_the_version_that_knows_all_of_it() {
    let lab = Lab::new();
    let at = location(lab.folder.path());
    if at.folder().is_some() {
        return;
    }
    work(&lab, 1);
    upgrade_database(&lab, this_version());
    // Whoever reads the export knows by its first line that it has more than this version would expect.
    let mut exported = Vec::new();
    lab.store.export(&mut exported).unwrap();
    let head = String::from_utf8(exported).unwrap().lines().next().unwrap().to_owned();
    assert!(head.contains(&format!("\"schema\":{LATER_VERSION}")), "{head}");
    let Lab { folder, store } = lab;
    drop(store);
    let target = tempfile::tempdir().unwrap();
    let words: SearchTextBuilder = Arc::new(|_: &[u8]| String::new());
    let copied = copy_store(&at, &StoreLocation::Folder(target.path().to_owned()), &words, &mut |_| ());
    let error = copied.unwrap_err();
    assert!(matches!(error, StoreError::TooNew { found: LATER_VERSION, .. }), "{error}");
    drop(folder);
}

#[test]
fn a_server_that_a_newer_one_excludes_is_refused() {
    let lab = Lab::new();
    let at = location(lab.folder.path());
    if at.folder().is_some() {
        return;
    }
    upgrade_database(&lab, this_version() + 1);
    for refused in [Store::open_at(&at, StoreOptions::default()), Store::open_at_to_read(&at)] {
        let error = refused.unwrap_err();
        assert!(matches!(error, StoreError::TooNew { found: LATER_VERSION, .. }), "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
    set_format(&lab, this_version());
    Store::open_at(&at, StoreOptions::default()).unwrap();
}
