//! A client for the REST API of Arize Phoenix: reads spans from it and writes verdicts to it as annotations.

mod address;
mod annotate;
mod dataset;
mod error;
mod exchange;
mod page;
mod paging;
mod read;
mod rest_client;
mod resumable_download;
mod traces;

pub use address::{AddressError, PhoenixAddress};
pub use annotate::{AnnotationUploadResult, AnnotationUploader};
pub use dataset::{PhoenixDataset, PhoenixDatasetError, PhoenixExample};
pub use error::{PhoenixClientError, PhoenixSettingsError};
pub use read::PhoenixSource;
pub use rest_client::{DEFAULT_RETRY_TIME, DEFAULT_TIMEOUT, PhoenixClient, PhoenixClientSettings};
