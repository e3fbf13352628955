//! The route through which a command holds ranks on the hosts of agents; for who shows the token that acts.
use super::routes::{Refusal, Shared, body, named, who};
use crate::api::{GateAnswers, GateRequest};
use crate::gates::NotExchanged;
use axum::Router;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::Json;
use axum::routing::post as on_post;
use std::sync::Arc;
use tracing::info;

/// Largest request: for each of 4,096 agents what its ranks are to do, 2 KB in hex.
const BODY_BYTES_MAX: usize = 8 << 20;

/// The route.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/v1/gates/{session}/{number}", on_post(exchange))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

async fn exchange(
    State(shared): State<Arc<Shared>>,
    key: Result<Path<(u64, u32)>, PathRejection>,
    request: Result<Json<GateRequest>, JsonRejection>,
) -> Result<Json<GateAnswers>, Refusal> {
    let (key, request) = (named(key)?, body(request)?);
    who(&request.who)?;
    let (session, number) = key;
    if number == 0 {
        info!(job = request.job, session, "the gates of job {:?} are asked for by {}", request.job, request.who);
    }
    let refusal = |why: NotExchanged| {
        let status = if why == NotExchanged::Busy { StatusCode::CONFLICT } else { StatusCode::BAD_REQUEST };
        Refusal(status, why.to_string())
    };
    shared.gates.exchange(key, &request).await.map(Json).map_err(refusal)
}
