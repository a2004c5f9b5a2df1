//! Waits until everything that was received is assembled and judged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::http_error::{ApiError, ApiQuery, run_short_query};
use crate::state::ServerState;

/// Maximum time of a request: shorter than the idle timeout of usual clients.
const MAX_TIMEOUT_S: f64 = 60.0;
const DEFAULT_TIMEOUT_S: f64 = 10.0;
/// The queue is checked again after this time even without progress in assembly, because verdicts of models are
/// stored and retention removes groups in the meantime.
const MAX_PAUSE: Duration = Duration::from_millis(50);

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SettleParams {
    /// Seconds to wait, up to 60.
    #[param(minimum = 0, maximum = 60, default = 10)]
    timeout_s: Option<f64>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct SettleResult {
    /// Whether nothing waits any more.
    is_settled: bool,
    /// Trace groups that wait for assembly. Quarantined ones do not wait.
    waiting_traces: i64,
    /// Trajectories that wait for the model of a rule.
    ungraded_trajectories: i64,
}

/// Assembles and judges all received traces now, and waits until that is done or the time is over. Traces that grow
/// afterwards are reassembled.
#[utoipa::path(post, path = "/api/v1/settle", tag = "traces", params(SettleParams),
    responses((status = 200, body = SettleResult), (status = 400, body = crate::http_error::ErrorBody)))]
pub(super) async fn settle_traces(
    State(server): State<Arc<ServerState>>,
    ApiQuery(params): ApiQuery<SettleParams>,
) -> Result<Json<SettleResult>, ApiError> {
    let timeout_s = params.timeout_s.unwrap_or(DEFAULT_TIMEOUT_S);
    if !(0.0..=MAX_TIMEOUT_S).contains(&timeout_s) {
        return Err(ApiError::bad_request(format!("timeout_s={timeout_s}: from 0 to 60")));
    }
    let deadline = Instant::now() + Duration::from_secs_f64(timeout_s);
    let _pending = server.settling.begin_request();
    loop {
        let progress = server.settling.next_progress();
        server.settling.wake_assemblers();
        let counted =
            run_short_query(&server, |server| Ok((server.store.ready_queue_length()?, server.store.ungraded_count()?)));
        let (waiting_traces, ungraded_trajectories) = counted.await?;
        let is_settled = waiting_traces == 0 && ungraded_trajectories == 0;
        if is_settled || Instant::now() >= deadline {
            return Ok(Json(SettleResult { is_settled, waiting_traces, ungraded_trajectories }));
        }
        let pause = MAX_PAUSE.min(deadline.saturating_duration_since(Instant::now()));
        let _ = tokio::time::timeout(pause, progress).await;
    }
}
