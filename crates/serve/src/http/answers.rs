//! Answers that were worked out lately: pages that look at the same job ask for the same each second.
use crate::series::Pieces;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use mycroft_diagnose::Report;
use mycroft_wire::sync::lock;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Bytes of answers that are kept together: of 10,240 ranks a page's are some 150 KB each, all ranks in full 3 MB.
const KEPT_BYTES: usize = 8 << 20;

/// What an answer is about: two with the same key are the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    what: &'static str,
    job: String,
    limit: usize,
    /// Of what it was made.
    source: u64,
}

impl Key {
    /// Of pieces of a series.
    pub(crate) fn new<P>(what: &'static str, job: &str, limit: usize, pieces: &Pieces<P>) -> Key {
        Key { what, job: job.to_owned(), limit, source: pieces.fingerprint() }
    }

    /// Of the ranks of a report.
    pub(crate) fn of_report(report: &Report, limit: usize, is_trouble_first: bool) -> Key {
        let what = if is_trouble_first { "trouble" } else { "report" };
        Key { what, job: report.job.to_string(), limit, source: report.as_of.0 }
    }
}

/// The answers, newest last.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<VecDeque<(Key, Arc<[u8]>)>>);

impl Answers {
    /// The answer as JSON: the one that is known, or what `make` says, elsewhere than on the threads that answer others; `None`: it
    /// failed.
    pub(super) async fn told<T: Serialize>(
        &self,
        key: Key,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Response> {
        let known = lock(&self.0).iter().find(|(other, _)| *other == key).map(|(_, body)| Arc::clone(body));
        let body = match known {
            Some(body) => body,
            None => {
                let work = move || serde_json::to_vec(&make());
                let made = tokio::task::spawn_blocking(work).await.ok()?.ok()?;
                let body: Arc<[u8]> = made.into();
                let mut answers = lock(&self.0);
                answers.push_back((key, Arc::clone(&body)));
                let mut bytes: usize = answers.iter().map(|(_, body)| body.len()).sum();
                while bytes > KEPT_BYTES {
                    bytes -= answers.pop_front().map_or(bytes, |(_, body)| body.len());
                }
                body
            }
        };
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
        Some((kind, body.to_vec()).into_response())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(job: &str, source: u64) -> Key {
        Key { what: "ranks", job: job.to_owned(), limit: 4, source }
    }

    fn told(answers: &Answers, key: Key, number: impl Serialize + Send + 'static) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let response = answers.told(key, move || number).await.expect("an answer");
            let bytes = axum::body::to_bytes(response.into_body(), 2 * KEPT_BYTES).await.expect("a body");
            String::from_utf8(bytes.to_vec()).expect("text")
        })
    }

    #[test]
    fn what_was_worked_out_is_told_again_until_it_is_of_something_else() {
        let answers = Answers::default();
        assert_eq!(told(&answers, key("a", 1), 1), "1");
        assert_eq!(told(&answers, key("a", 1), 2), "1", "not worked out again");
        assert_eq!((told(&answers, key("a", 2), 3), told(&answers, key("b", 1), 4)), ("3".to_owned(), "4".to_owned()));
        let half = "x".repeat(KEPT_BYTES / 2);
        told(&answers, key("c", 1), half.clone());
        assert_eq!(told(&answers, key("b", 1), 5), "4", "there is room for both");
        told(&answers, key("c", 2), half);
        assert_eq!(told(&answers, key("b", 1), 6), "6", "the oldest are forgotten for large ones");
        told(&answers, key("d", 1), "x".repeat(KEPT_BYTES));
        assert_eq!(lock(&answers.0).len(), 0, "what is too large is not kept");
    }
}
