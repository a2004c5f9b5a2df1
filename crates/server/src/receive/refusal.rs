//! Why a request is not accepted, and how that is answered over HTTP.

use axum::http::StatusCode;
use gradus_otlp::WireError;
use gradus_store::StoreError;

use crate::memory::MemoryRefusal;
use crate::work_pool::WorkAborted;

/// The status and `Retry-After` of each variant decide whether an exporter retries or drops the data, so a variant must
/// say whether a retry can succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveRefusal {
    /// It can never be accepted.
    #[error("{0}")]
    Bad(String),
    #[error("the request is larger than {limit} bytes; send smaller batches, or raise serve.max_request_mb")]
    TooLarge { limit: usize },
    /// As `TooLarge`, for a kind of request whose limit is not a setting.
    #[error("the body is larger than {limit} bytes; send less at once")]
    BodyTooLarge { limit: usize },
    /// Over what one client may hold, even on an idle server.
    #[error(
        "the request, decompressed and parsed, needs more memory than one address may hold; send smaller batches, or raise serve.max_memory_per_address_mb"
    )]
    NeverFits,
    /// A content type or encoding that is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// It can be accepted later.
    #[error("too much is waiting to be stored; try again later")]
    Busy,
    #[error("this address holds its share of the server's memory with other requests; try again later")]
    ClientShare,
    /// The client did not send its body within the body timeout.
    #[error("the request took too long to arrive")]
    TooSlow,
    #[error("{0}")]
    Store(StoreError),
}

impl From<MemoryRefusal> for ReceiveRefusal {
    fn from(refusal: MemoryRefusal) -> ReceiveRefusal {
        match refusal {
            MemoryRefusal::Full => ReceiveRefusal::Busy,
            MemoryRefusal::ClientShare => ReceiveRefusal::ClientShare,
            MemoryRefusal::NeverFits => ReceiveRefusal::NeverFits,
        }
    }
}

impl From<WireError> for ReceiveRefusal {
    fn from(error: WireError) -> ReceiveRefusal {
        ReceiveRefusal::Bad(error.to_string())
    }
}

impl From<WorkAborted> for ReceiveRefusal {
    fn from(lost: WorkAborted) -> ReceiveRefusal {
        ReceiveRefusal::Bad(lost.to_string())
    }
}

impl ReceiveRefusal {
    /// OTLP exporters retry 429 and 503, and drop the data on 400, 413 and 415.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            ReceiveRefusal::Bad(_) => StatusCode::BAD_REQUEST,
            ReceiveRefusal::TooLarge { .. } | ReceiveRefusal::BodyTooLarge { .. } | ReceiveRefusal::NeverFits => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            ReceiveRefusal::Unsupported(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ReceiveRefusal::Busy | ReceiveRefusal::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            ReceiveRefusal::ClientShare => StatusCode::TOO_MANY_REQUESTS,
            ReceiveRefusal::TooSlow => StatusCode::REQUEST_TIMEOUT,
        }
    }

    /// Seconds until a retry may succeed; `None` if it never will.
    pub(crate) fn retry_after_s(&self) -> Option<u32> {
        match self {
            ReceiveRefusal::Busy | ReceiveRefusal::ClientShare | ReceiveRefusal::TooSlow => Some(1),
            ReceiveRefusal::Store(StoreError::Busy) => Some(1),
            ReceiveRefusal::Store(_) => Some(5),
            ReceiveRefusal::Bad(_)
            | ReceiveRefusal::TooLarge { .. }
            | ReceiveRefusal::BodyTooLarge { .. }
            | ReceiveRefusal::NeverFits
            | ReceiveRefusal::Unsupported(_) => None,
        }
    }

    /// Whether the refusal may come before the body was read, so that the rest has to be drained.
    pub(super) fn is_early(&self) -> bool {
        matches!(
            self,
            ReceiveRefusal::Busy
                | ReceiveRefusal::ClientShare
                | ReceiveRefusal::NeverFits
                | ReceiveRefusal::TooLarge { .. }
        )
    }
}
