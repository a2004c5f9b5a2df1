//! Writes graded trajectories for other tools.
//!
//! [`GradedRuns`] holds trajectories with the verdicts on them, and knows which are turns of one conversation. Formats
//! are functions from there to rows of JSON: [`messages`](write_message_rows), [`ATIF`](write_atif_rows),
//! [`OTLP`](write_otlp_rows), [flat tables](write_table_rows), and the training data of [`training`]. Nothing is
//! invented: a row says only what was recorded and judged.

mod atif;
mod chat_form;
mod flat_tables;
mod graded_runs;
mod manifest;
mod otlp_json;
#[cfg(feature = "parquet")]
mod parquet_table;
pub mod training;

pub use atif::{AtifVersion, write_atif_rows};
pub use chat_form::{ArgumentForm, ChatForm, ChatShape, write_message_rows};
pub use flat_tables::{ColumnKind, FlatTable, write_table_rows};
pub use graded_runs::{GradedRun, GradedRuns, RunQuality, RunVerdict, StepQuality};
pub use manifest::{ExportManifest, VerdictSource};
pub use otlp_json::write_otlp_rows;
#[cfg(feature = "parquet")]
pub use parquet_table::ParquetTableWriter;
