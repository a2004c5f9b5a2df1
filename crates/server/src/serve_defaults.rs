//! The defaults of `[serve]`. The settings and the configuration reference both read them here.

/// The default ports of OTLP (4318 for HTTP, 4317 for gRPC), on loopback only, so that no key is needed.
pub const HTTP_ADDRESS: &str = "127.0.0.1:4318";
pub(crate) const GRPC_ADDRESS: &str = "127.0.0.1:4317";
pub(crate) const QUIET_S: f64 = 5.0;
pub(crate) const GIVE_UP_S: f64 = 60.0;
pub(crate) const MAX_REQUEST_MB: u32 = 20;
pub(crate) const MAX_TRACE_MB: u32 = 64;
pub(crate) const MAX_MEMORY_MB: u32 = 128;
pub(crate) const MAX_CONNECTIONS: usize = 2000;
pub(crate) const HEADER_TIMEOUT_S: f64 = 10.0;
pub(crate) const BODY_TIMEOUT_S: f64 = 30.0;
pub(crate) const IDLE_TIMEOUT_S: f64 = 60.0;
pub(crate) const STALL_TIMEOUT_S: f64 = 30.0;
pub(crate) const QUERY_TIMEOUT_S: f64 = 10.0;
pub(crate) const DOWNLOAD_TIMEOUT_S: f64 = 300.0;
pub(crate) const ANCHOR_COUNT: usize = 20;
pub(crate) const ANCHOR_INTERVAL: &str = "1d";
/// Share of trajectories that a rule grades.
pub(crate) const SAMPLE: f64 = 1.0;
/// Whether a rule grades all trajectories with an error, whatever the share.
pub(crate) const GRADES_ERRORS: bool = true;
