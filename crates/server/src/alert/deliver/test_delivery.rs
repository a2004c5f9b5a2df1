//! Test notices, which people send to check delivery: one attempt for each target, with its result.

use super::attempt::attempt_delivery;
use super::failure::DeliveryFailure;
use super::{DeliveryContext, DeliverySettings, DispatcherStartError, log_notice};
use crate::alert::notice::AlertNotice;
use crate::alert::target::AlertTarget;

/// The result of a test notice for one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestDelivery {
    pub target: AlertTarget,
    /// Why the notice was not accepted; never contains an address.
    pub failure: Option<String>,
}

/// Sends a notice to one target after another, without a queue and without a retry, and waits for the results. Its
/// time is bounded by the timeouts of the settings.
pub async fn deliver_test_notice(
    notice: &AlertNotice,
    targets: &[AlertTarget],
    settings: DeliverySettings,
) -> Result<Vec<TestDelivery>, DispatcherStartError> {
    let context = DeliveryContext::new(settings)?;
    let mut results = Vec::new();
    for target in targets {
        let failure = match target {
            AlertTarget::Log => {
                log_notice(notice);
                None
            }
            target => attempt_delivery(target, notice, &context).await.err().map(|failure| match failure {
                DeliveryFailure::Transient { reason, .. } | DeliveryFailure::Permanent { reason } => reason,
            }),
        };
        results.push(TestDelivery { target: target.clone(), failure });
    }
    Ok(results)
}
