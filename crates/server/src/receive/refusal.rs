//! Why a request is not taken, and how that is answered over HTTP.

use axum::http::StatusCode;
use gradus_otlp::WireError;
use gradus_store::StoreError;

use crate::memory::MemoryRefusal;
use crate::work_pool::WorkLost;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// It can never be taken.
    #[error("{0}")]
    Bad(String),
    #[error("the request is larger than {limit} bytes; send smaller batches, or raise serve.max_request_mb")]
    TooLarge { limit: usize },
    /// Of a kind of request whose limit is no setting.
    #[error("the body is larger than {limit} bytes; send less at once")]
    BodyTooLarge { limit: usize },
    #[error(
        "the request, decompressed and parsed, needs more memory than one address may hold; send smaller batches, or raise serve.max_memory_per_address_mb"
    )]
    NeverFits,
    #[error("{0}")]
    Unsupported(String),
    /// It can be taken later.
    #[error("too much is waiting to be stored; try again later")]
    Busy,
    #[error("this address holds its share of the server's memory with other requests; try again later")]
    ClientShare,
    #[error("the request took too long to arrive")]
    TooSlow,
    #[error("{0}")]
    Store(StoreError),
}

impl From<MemoryRefusal> for Refusal {
    fn from(refusal: MemoryRefusal) -> Refusal {
        match refusal {
            MemoryRefusal::Full => Refusal::Busy,
            MemoryRefusal::ClientShare => Refusal::ClientShare,
            MemoryRefusal::NeverFits => Refusal::NeverFits,
        }
    }
}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Refusal {
        Refusal::Bad(error.to_string())
    }
}

impl From<WorkLost> for Refusal {
    fn from(lost: WorkLost) -> Refusal {
        Refusal::Bad(lost.to_string())
    }
}

impl Refusal {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Refusal::Bad(_) => StatusCode::BAD_REQUEST,
            Refusal::TooLarge { .. } | Refusal::BodyTooLarge { .. } | Refusal::NeverFits => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Refusal::Unsupported(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Refusal::Busy | Refusal::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::ClientShare => StatusCode::TOO_MANY_REQUESTS,
            Refusal::TooSlow => StatusCode::REQUEST_TIMEOUT,
        }
    }

    /// When to try again, in seconds; `None` when that is of no use.
    pub(crate) fn retry_after_s(&self) -> Option<u32> {
        match self {
            Refusal::Busy | Refusal::ClientShare | Refusal::TooSlow => Some(1),
            Refusal::Store(StoreError::Busy) => Some(1),
            Refusal::Store(_) => Some(5),
            Refusal::Bad(_)
            | Refusal::TooLarge { .. }
            | Refusal::BodyTooLarge { .. }
            | Refusal::NeverFits
            | Refusal::Unsupported(_) => None,
        }
    }

    /// Whether the request may have to be read to its end before it is answered.
    pub(super) fn is_early(&self) -> bool {
        matches!(self, Refusal::Busy | Refusal::ClientShare | Refusal::NeverFits | Refusal::TooLarge { .. })
    }
}
