//! Personal data by rules of our own: each has structure or check digits, so that numbers in code stay.

mod email;
mod home_directory;
mod ip_address;
mod payment;
mod phone;

use crate::finding::{Finding, ScrubCategory};
use crate::settings::ScrubSettings;

/// Adds the personal data of a text. `field_name` is the name of the JSON field that holds the text: a number without
/// a country code is a phone number in the field `phone`.
pub(crate) fn find_personal_data(
    text: &str,
    field_name: Option<&str>,
    settings: &ScrubSettings,
    findings: &mut Vec<Finding>,
) {
    for category in ScrubCategory::ALL {
        if !settings.has_category(category) {
            continue;
        }
        let mut add = |span| findings.push(Finding::personal(span, category));
        match category {
            ScrubCategory::Secret => {}
            ScrubCategory::Email => email::find_emails(text, &mut add),
            ScrubCategory::Phone => phone::find_phone_numbers(text, field_name, &mut add),
            ScrubCategory::Card => payment::find_card_numbers(text, &mut add),
            ScrubCategory::Iban => payment::find_ibans(text, &mut add),
            ScrubCategory::IpAddress => {
                ip_address::find_ip_addresses(text, settings.include_reserved_addresses, &mut add)
            }
            ScrubCategory::UserName => home_directory::find_user_names(text, &mut add),
        }
    }
}
