//! Reads the examples of a dataset, found by its name or its id.

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::error::PhoenixClientError;
use super::paging::{PageSize, request_list_page};
use super::rest_client::PhoenixClient;
use gradus_http::percent_encode;

const WHAT: &str = "reading a dataset";
/// Maximum bytes of a dataset. Phoenix sends all examples in one response.
const MAX_EXAMPLES_BYTES: usize = 512 << 20;
/// Maximum number of names in the message about a dataset that does not exist.
const MAX_LISTED_NAMES: usize = 10;

/// One example: what goes in, what should come out, and anything else.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct PhoenixExample {
    pub id: String,
    #[serde(default)]
    pub input: Map<String, Json>,
    #[serde(default)]
    pub output: Map<String, Json>,
    #[serde(default)]
    pub metadata: Map<String, Json>,
}

/// The latest version of a dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct PhoenixDataset {
    pub name: String,
    pub version_id: String,
    pub examples: Vec<PhoenixExample>,
}

/// Why a dataset cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PhoenixDatasetError {
    #[error(transparent)]
    Client(#[from] PhoenixClientError),
    #[error("dataset not found: {base}: there is no dataset {wanted:?}; hint: there are {known}")]
    NotFound { base: String, wanted: String, known: String },
    #[error("dataset not found: {base}: {count} datasets are called {wanted:?}; hint: give the id of one")]
    Ambiguous { base: String, wanted: String, count: usize },
}

#[derive(Deserialize)]
struct DatasetEntry {
    id: String,
    name: String,
}

#[derive(Deserialize)]
struct DatasetPage {
    data: Vec<DatasetEntry>,
}

#[derive(Deserialize)]
struct ExampleResponse {
    data: ExampleList,
}

#[derive(Deserialize)]
struct ExampleList {
    version_id: String,
    examples: Vec<PhoenixExample>,
}

impl PhoenixClient {
    /// Reads a dataset by its name or id. A name wins over an id.
    pub async fn read_dataset(&self, wanted: &str) -> Result<PhoenixDataset, PhoenixDatasetError> {
        let known = self.list_datasets().await?;
        let named: Vec<&DatasetEntry> = known.iter().filter(|entry| entry.name == wanted).collect();
        let found = match named.as_slice() {
            [one] => one,
            [] => known
                .iter()
                .find(|entry| entry.id == wanted)
                .ok_or_else(|| self.missing_dataset_error(wanted, &known))?,
            several => {
                let (base, wanted) = (self.base_url().to_owned(), wanted.to_owned());
                return Err(PhoenixDatasetError::Ambiguous { base, wanted, count: several.len() });
            }
        };
        let path = format!("/v1/datasets/{}/examples", percent_encode(&found.id));
        let answer = self.get_with_limit(&path, WHAT, MAX_EXAMPLES_BYTES).await?;
        let ExampleResponse { data } =
            serde_json::from_slice(&answer.body).map_err(|_| self.unexpected_response_error(&answer, &path, WHAT))?;
        Ok(PhoenixDataset { name: found.name.clone(), version_id: data.version_id, examples: data.examples })
    }

    async fn list_datasets(&self) -> Result<Vec<DatasetEntry>, PhoenixClientError> {
        const LIST: &str = "/v1/datasets?";
        let client = self.with_short_retry();
        let (mut known, mut cursor, mut size) = (Vec::new(), None, PageSize::default());
        loop {
            let (answer, next) = request_list_page(&client, LIST, cursor.as_deref(), &mut size, WHAT).await?;
            let page: DatasetPage = serde_json::from_slice(&answer.body)
                .map_err(|_| self.unexpected_response_error(&answer, LIST, WHAT))?;
            known.extend(page.data);
            match next {
                // A cursor that does not move would be read forever.
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => return Ok(known),
            }
        }
    }

    fn missing_dataset_error(&self, wanted: &str, known: &[DatasetEntry]) -> PhoenixDatasetError {
        let mut names: Vec<&str> = known.iter().map(|entry| entry.name.as_str()).take(MAX_LISTED_NAMES).collect();
        if known.len() > MAX_LISTED_NAMES {
            names.push("…");
        }
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        PhoenixDatasetError::NotFound { base: self.base_url().to_owned(), wanted: wanted.to_owned(), known }
    }
}
