//! All alert rules that are in force: those of `gradus.toml` and those that people made on the page, with who is muted.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use gradus_store::{Store, StoreError};

use crate::alert::{AlertRule, AlertTarget, StoredAlertRule, TargetHealth};
use crate::clock::now_ns;
use crate::settings::{ReloadableSettings, ServerSettingsError, check_alert_section};

/// One version of the list. It is built anew when the settings, a rule or a muting changes.
#[derive(Debug, Default)]
pub(crate) struct AlertCatalog {
    /// Those of the file first, in its order.
    pub(crate) alerts: Vec<ListedAlert>,
    /// Stored rules that are not in force.
    pub(crate) unusable: Vec<UnusableAlert>,
}

/// A rule that is in force.
#[derive(Clone, Debug)]
pub(crate) struct ListedAlert {
    pub(crate) rule: AlertRule,
    pub(crate) origin: AlertOrigin,
    mute: Option<AlertMute>,
}

/// Where a rule comes from. Only stored rules can be changed on the page.
#[derive(Clone, Debug)]
pub(crate) enum AlertOrigin {
    File,
    Stored(StoredAlertRule),
}

/// `until_ns` is absent if the muting lasts until somebody ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlertMute {
    pub(crate) until_ns: Option<i64>,
}

/// A stored rule that is no longer valid with the present settings.
#[derive(Clone, Debug)]
pub(crate) struct UnusableAlert {
    pub(crate) name: String,
    pub(crate) reason: String,
    pub(crate) stored: Option<StoredAlertRule>,
}

impl ListedAlert {
    /// Returns the muting, unless its time is over.
    pub(crate) fn mute(&self) -> Option<AlertMute> {
        self.mute.filter(|mute| mute.until_ns.is_none_or(|until| until > now_ns()))
    }

    /// Returns the targets of notices: the log only while the rule is muted.
    pub(crate) fn notified_targets(&self) -> Vec<AlertTarget> {
        if self.mute().is_some() { vec![AlertTarget::Log] } else { self.rule.targets.clone() }
    }

    pub(crate) fn is_stored(&self) -> bool {
        matches!(self.origin, AlertOrigin::Stored(_))
    }
}

impl AlertCatalog {
    /// Loads all rules. Rules of the file take precedence over stored ones of the same name.
    pub(crate) fn load(store: &Store, settings: &ReloadableSettings) -> Result<AlertCatalog, StoreError> {
        let mutes: HashMap<String, AlertMute> =
            store.alert_mutes()?.into_iter().map(|row| (row.rule, AlertMute { until_ns: row.until_ns })).collect();
        let mut catalog = AlertCatalog::default();
        for rule in &settings.alerts {
            let mute = mutes.get(&rule.name).copied();
            catalog.alerts.push(ListedAlert { rule: rule.clone(), origin: AlertOrigin::File, mute });
        }
        for row in store.alert_rules()? {
            let stored: Option<StoredAlertRule> = serde_json::from_str(&row.body).ok();
            let checked = match &stored {
                None => Err("it was stored by another version and cannot be read".to_owned()),
                Some(_) if settings.alerts.iter().any(|rule| rule.name == row.name) => {
                    Err("gradus.toml has a rule of this name, which is used instead".to_owned())
                }
                Some(stored) => check_stored_rule(settings, stored).map_err(|error| error.to_string()),
            };
            match (checked, stored) {
                (Ok(rule), Some(stored)) => {
                    let mute = mutes.get(&rule.name).copied();
                    catalog.alerts.push(ListedAlert { rule, origin: AlertOrigin::Stored(stored), mute });
                }
                (checked, stored) => {
                    let reason = checked.err().unwrap_or_default();
                    catalog.unusable.push(UnusableAlert { name: row.name, reason, stored });
                }
            }
        }
        Ok(catalog)
    }

    pub(crate) fn find(&self, name: &str) -> Option<&ListedAlert> {
        self.alerts.iter().find(|alert| alert.rule.name == name)
    }

    pub(crate) fn rules(&self) -> impl Iterator<Item = &AlertRule> {
        self.alerts.iter().map(|alert| &alert.rule)
    }
}

/// Checks a rule of the page like a table of the file. Its targets must not have private addresses.
pub(crate) fn check_stored_rule(
    settings: &ReloadableSettings,
    stored: &StoredAlertRule,
) -> Result<AlertRule, ServerSettingsError> {
    let mut rule = check_alert_section(stored.to_section(), &settings.library, &settings.rules)?;
    for target in &mut rule.targets {
        *target = match std::mem::replace(target, AlertTarget::Log) {
            AlertTarget::Webhook(url) => AlertTarget::Webhook(url.guarded()),
            AlertTarget::Slack(url) => AlertTarget::Slack(url.guarded()),
            other => other,
        };
    }
    Ok(rule)
}

/// The current list, and the latest results of the alert loop.
#[derive(Debug, Default)]
pub(crate) struct AlertRegistry {
    catalog: RwLock<Arc<AlertCatalog>>,
    /// Names of rules that fire and are not muted, for the badge of pages.
    firing: RwLock<Vec<String>>,
    health: Mutex<HashMap<AlertTarget, TargetHealth>>,
}

impl AlertRegistry {
    pub(crate) fn catalog(&self) -> Arc<AlertCatalog> {
        Arc::clone(&self.catalog.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the stored rules again. The list stays unchanged if the store fails.
    pub(crate) fn refresh(&self, store: &Store, settings: &ReloadableSettings) -> Result<(), StoreError> {
        let catalog = Arc::new(AlertCatalog::load(store, settings)?);
        *self.catalog.write().unwrap_or_else(PoisonError::into_inner) = catalog;
        Ok(())
    }

    pub(crate) fn firing_count(&self) -> usize {
        self.firing.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn set_firing(&self, names: Vec<String>) {
        *self.firing.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    pub(crate) fn target_health(&self, target: &AlertTarget) -> TargetHealth {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).get(target).cloned().unwrap_or_default()
    }

    pub(crate) fn set_target_health(&self, health: HashMap<AlertTarget, TargetHealth>) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }
}
