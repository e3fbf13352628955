//! `GET /api/v1/jobs/JOB/operations`: what ranks have done lately, and what they are in.
use super::routes::{Asked, Refusal, Shared, ask_brain, bad_request, named, not_diagnosed, parameters};
use crate::api::OperationsJson;
use crate::command::Command;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Json;
use axum::{Router, routing::get as on_get};
use mycroft_diagnose::operations::Wanted;
use mycroft_record::{CommId, Rank};
use serde::Deserialize;
use std::sync::Arc;

/// Without parameters: what fits a screen. At most: 32 x 512 rows of 64 operations are some 10 MB.
const GROUPS: (usize, usize) = (4, 32);
const RANKS: (usize, usize) = (64, 512);
const COLUMNS: (usize, usize) = (32, 64);
const IN_FLIGHT: (usize, usize) = (100, 10_000);

/// The route.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/api/v1/jobs/{job}/operations", on_get(operations))
}

/// `?group=HEX&groups=N&first=RANK&ranks=N&columns=N&in_flight=N`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OperationsQuery {
    group: Option<String>,
    groups: Option<usize>,
    first: Option<u32>,
    ranks: Option<usize>,
    columns: Option<usize>,
    in_flight: Option<usize>,
}

impl OperationsQuery {
    fn wanted(&self) -> Result<Wanted, Refusal> {
        let group = |text: &String| {
            let number = u64::from_str_radix(text, 16).map(CommId);
            number.map_err(|_| bad_request("group: expected a communicator's 16 hex digits, as answers name them"))
        };
        Ok(Wanted {
            group: self.group.as_ref().map(group).transpose()?,
            groups: within("groups", self.groups, GROUPS)?,
            first: self.first.map(Rank),
            ranks: within("ranks", self.ranks, RANKS)?,
            columns: within("columns", self.columns, COLUMNS)? as u64,
            in_flight: within("in_flight", self.in_flight, IN_FLIGHT)?,
        })
    }
}

fn within(name: &str, told: Option<usize>, (usual, most): (usize, usize)) -> Result<usize, Refusal> {
    match told {
        None => Ok(usual),
        Some(count) if (1..=most).contains(&count) => Ok(count),
        Some(count) => Err(bad_request(format!("{name}={count}: expected 1 to {most}"))),
    }
}

async fn operations(
    State(shared): State<Arc<Shared>>,
    job: Result<Path<String>, PathRejection>,
    asked: Asked<OperationsQuery>,
) -> Result<Json<OperationsJson>, Refusal> {
    let job = named(job)?;
    let wanted = parameters(asked, "group, groups, first, ranks, columns and in_flight")?.wanted()?;
    let question = |reply| Command::Operations { job: job.as_str().into(), wanted, reply };
    let told = ask_brain(&shared, question).await?.ok_or_else(|| not_diagnosed(&job))?;
    Ok(Json(OperationsJson::of(&job, &told, (shared.clock)())))
}
