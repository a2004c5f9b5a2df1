//! What is asked, and what the answers are worth.

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

#[derive(Serialize, ToSchema)]
pub(super) struct RubricBody {
    name: String,
    title: String,
    /// `step` or `trajectory`.
    subject: &'static str,
    /// Best first.
    labels: Vec<LabelBody>,
    /// Changes when what is asked does.
    hash: String,
    /// The name of its annotations in Phoenix.
    phoenix_name: String,
}

#[derive(Serialize, ToSchema)]
pub(super) struct LabelBody {
    label: String,
    score: f64,
}

/// All rubrics, the built-in ones and those of the configuration.
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
