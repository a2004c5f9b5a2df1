//! Changes that people make to alerts: rules of the page, muting, and test notices. The page and the API share them.

use std::sync::Arc;

use axum::http::StatusCode;
use gradus_store::{AlertMuteRow, AlertRuleRow};

use crate::alert::{
    AlertNotice, AlertRule, AlertTarget, DeliverySettings, StoredAlertRule, TargetGuard, TestDelivery,
    deliver_test_notice, export_rules_toml,
};
use crate::alert_catalog::{AlertOrigin, check_stored_rule};
use crate::caller::RequestCaller;
use crate::clock::now_ns;
use crate::http_error::{ApiError, run_outside_pool};
use crate::settings::ServerSettings;
use crate::state::ServerState;

/// Maximum number of stored rules. Each one is measured every few seconds.
const MAX_STORED_RULES: usize = 200;
/// Maximum duration of a muting that ends by itself: a year.
pub(crate) const MAX_MUTE_HOURS: u32 = 24 * 366;

/// Returns the delivery settings: links lead to the server's own address, and targets of the page must not be in
/// private networks.
pub(crate) fn delivery_settings(settings: &ServerSettings) -> DeliverySettings {
    DeliverySettings {
        base_url: Some(settings.public_url.clone()),
        guard: TargetGuard::new(settings.alert_networks.clone()),
        ..DeliverySettings::default()
    }
}

/// Returns the store key of a rule's score watch. It cannot be the name of another rule, because names contain no
/// control characters.
pub(crate) fn watch_state_key(rule: &str) -> String {
    format!("\u{1}{rule}")
}

/// Returns the store keys of the state and the score watch of a rule.
fn state_keys(rule: &str) -> Vec<String> {
    vec![rule.to_owned(), watch_state_key(rule)]
}

/// Stores a rule. `replaces` is the name of the rule that is edited; without it, the name must be new.
pub(crate) async fn save_alert_rule(
    server: &Arc<ServerState>,
    caller: &RequestCaller,
    rule: StoredAlertRule,
    replaces: Option<String>,
) -> Result<(), ApiError> {
    let catalog = server.alerts.catalog();
    let known = replaces.as_deref().map(|name| {
        let stored = catalog.find(name).map(|listed| match &listed.origin {
            AlertOrigin::Stored(stored) => Ok(stored.clone()),
            AlertOrigin::File => Err(ApiError::new(
                StatusCode::CONFLICT,
                "this rule is in gradus.toml; change it there and reload the settings",
            )),
        });
        let unusable = || catalog.unusable.iter().find(|one| one.name == name).and_then(|one| one.stored.clone());
        stored.unwrap_or_else(|| unusable().ok_or_else(|| ApiError::not_found("there is no alert rule of this name")))
    });
    let before = known.transpose()?;
    let checked = check_stored_rule(&server.reloadable(), &rule)
        .map_err(|error| ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    // The trimmed name is the one that is stored.
    let rule = StoredAlertRule { name: checked.name.clone(), ..rule };
    let is_taken = catalog.find(&rule.name).is_some() || catalog.unusable.iter().any(|one| one.name == rule.name);
    if is_taken && replaces.as_deref() != Some(rule.name.as_str()) {
        return Err(ApiError::new(StatusCode::CONFLICT, "another alert rule has this name; choose a different one"));
    }
    let count = catalog.alerts.iter().filter(|listed| listed.is_stored()).count() + catalog.unusable.len();
    if before.is_none() && count >= MAX_STORED_RULES {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            format!("there are {MAX_STORED_RULES} rules already; delete one, or write it into gradus.toml"),
        ));
    }
    check_targets(server, &checked).await?;
    let is_other = before.as_ref().is_none_or(|before| before.when != rule.when || before.project != rule.project);
    let forgotten = if is_other { state_keys(&rule.name) } else { Vec::new() };
    let old_name = before.map(|before| before.name).filter(|name| *name != rule.name);
    let body = serde_json::to_string(&rule).unwrap_or_default();
    let row = AlertRuleRow { name: rule.name, body, author: caller.name.clone(), changed_ns: now_ns() };
    run_outside_pool(server, move |server| {
        server.store.put_alert_rule(row, forgotten)?.wait()?;
        if let Some(old) = old_name {
            let states = state_keys(&old);
            server.store.delete_alert_rule(old, states)?.wait()?;
        }
        server.reload_alert_rules();
        Ok(())
    })
    .await
}

/// Resolves the names of all targets, so that a wrong one is noticed at once. They are checked again when they are
/// used.
async fn check_targets(server: &ServerState, rule: &AlertRule) -> Result<(), ApiError> {
    let guard = TargetGuard::new(server.settings.alert_networks.clone());
    for target in &rule.targets {
        let (AlertTarget::Webhook(url) | AlertTarget::Slack(url)) = target else { continue };
        guard.check_target(url).await.map_err(|refusal| {
            let message = format!("{}: {refusal}", target.kind().name());
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, message)
        })?;
    }
    Ok(())
}

/// Deletes a rule of the page.
pub(crate) async fn delete_alert_rule(server: &Arc<ServerState>, name: String) -> Result<(), ApiError> {
    if server.alerts.catalog().find(&name).is_some_and(|listed| !listed.is_stored()) {
        let message = "this rule is in gradus.toml; delete it there and reload the settings";
        return Err(ApiError::new(StatusCode::CONFLICT, message));
    }
    run_outside_pool(server, move |server| {
        let states = state_keys(&name);
        let was_there = server.store.delete_alert_rule(name, states)?.wait()?;
        server.reload_alert_rules();
        match was_there {
            true => Ok(()),
            false => Err(ApiError::not_found("there is no alert rule of this name")),
        }
    })
    .await
}

/// For how long a rule is muted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MuteChange {
    /// Until somebody ends it.
    UntilEnded,
    Hours(u32),
    End,
}

/// Mutes a rule of the page or of the file, or ends its muting.
pub(crate) async fn mute_alert(
    server: &Arc<ServerState>,
    caller: &RequestCaller,
    name: String,
    change: MuteChange,
) -> Result<(), ApiError> {
    if server.alerts.catalog().find(&name).is_none() {
        return Err(ApiError::not_found("there is no alert rule of this name"));
    }
    let author = caller.name.clone();
    run_outside_pool(server, move |server| {
        let until_ns = match change {
            MuteChange::Hours(hours @ 1..=MAX_MUTE_HOURS) => Some(now_ns() + i64::from(hours) * 3_600_000_000_000),
            MuteChange::Hours(_) => {
                return Err(ApiError::bad_request(format!("hours: from 1 to {MAX_MUTE_HOURS}")));
            }
            MuteChange::UntilEnded | MuteChange::End => None,
        };
        match change {
            MuteChange::End => server.store.delete_alert_mute(name)?.wait()?,
            _ => server.store.put_alert_mute(AlertMuteRow { rule: name, until_ns, author })?.wait()?,
        }
        server.reload_alert_rules();
        Ok(())
    })
    .await
}

/// Sends a test notice to every target of a rule and waits for the results.
pub(crate) async fn send_test_notice(server: &ServerState, name: &str) -> Result<Vec<TestDelivery>, ApiError> {
    let catalog = server.alerts.catalog();
    let listed = catalog.find(name).ok_or_else(|| ApiError::not_found("there is no alert rule of this name"))?;
    let measured = server.alert_measurements.find_for_rule(&listed.rule).and_then(|reading| reading.measured);
    let notice = AlertNotice::for_test(&listed.rule, measured, jiff::Timestamp::now());
    let sent = deliver_test_notice(&notice, &listed.rule.targets, delivery_settings(&server.settings)).await;
    sent.map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// The rules of the page as tables for `gradus.toml`, with the addresses of their targets.
pub(crate) fn export_stored_rules(server: &ServerState) -> String {
    let catalog = server.alerts.catalog();
    let in_force = catalog.alerts.iter().filter_map(|listed| match &listed.origin {
        AlertOrigin::Stored(stored) => Some(stored.clone()),
        AlertOrigin::File => None,
    });
    let rules: Vec<StoredAlertRule> =
        in_force.chain(catalog.unusable.iter().filter_map(|one| one.stored.clone())).collect();
    export_rules_toml(&rules)
}
