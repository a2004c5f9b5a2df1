//! The rubrics that the server knows.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use gradus_eval::rubric::RubricSubject;
use serde::Serialize;
use utoipa::ToSchema;

use crate::state::ServerState;

#[derive(Serialize, ToSchema)]
#[schema(as = Rubrics)]
pub(super) struct RubricList {
    items: Vec<RubricBody>,
}

/// A rubric without its prompt text.
#[derive(Serialize, ToSchema)]
pub(super) struct RubricBody {
    name: String,
    title: String,
    /// `step` or `trajectory`.
    subject: &'static str,
    /// Best label first.
    labels: Vec<LabelBody>,
    /// Digest of the question. Verdicts with different hashes answer different questions.
    hash: String,
    /// Name of its annotations in Phoenix.
    phoenix_name: String,
}

/// A possible answer and its score.
#[derive(Serialize, ToSchema)]
pub(super) struct LabelBody {
    label: String,
    score: f64,
}

/// All rubrics: the built-in ones and those of the configuration.
#[utoipa::path(get, path = "/api/v1/rubrics", tag = "rubrics", responses((status = 200, body = RubricList)))]
pub(super) async fn list_rubrics(State(server): State<Arc<ServerState>>) -> Json<RubricList> {
    let reloadable = server.reloadable();
    let items = reloadable.library.iter().map(|rubric| RubricBody {
        name: rubric.name.clone(),
        title: rubric.title.clone(),
        subject: match rubric.subject {
            RubricSubject::Step => "step",
            RubricSubject::Trajectory => "trajectory",
        },
        labels: rubric.labels.iter().map(|(label, score)| LabelBody { label: label.to_owned(), score }).collect(),
        hash: rubric.hash.clone(),
        phoenix_name: rubric.phoenix_name.clone(),
    });
    Json(RubricList { items: items.collect() })
}
