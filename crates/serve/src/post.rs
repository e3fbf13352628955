//! A POST to somebody outside (webhook, collector): one try, and a few more where they may help.
use std::time::Duration;
use ureq::RequestBuilder;
use ureq::typestate::WithBody;

/// Limit of one try: connect, send, and the whole answer.
const TRY_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses after failed tries; with `TRY_TIMEOUT` a message is given up after 4 x 5 + 7 = 27 s.
const PAUSES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// What a receiver answered.
pub(crate) type Answer = ureq::http::Response<ureq::Body>;

/// What became of a try.
pub(crate) enum Outcome {
    /// It was taken.
    Delivered(Answer),
    /// Another try would not help.
    Refused(String),
    /// Another try may help, after so long where the receiver said it.
    TryAgain(String, Option<Duration>),
}

/// No redirects: a POST goes where the operator said and nowhere else.
pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(TRY_TIMEOUT))
        .max_redirects(0)
        .http_status_as_error(false)
        .user_agent(concat!("mycroft/", env!("CARGO_PKG_VERSION")))
        .build();
    ureq::Agent::new_with_config(config)
}

/// One try.
///
/// # Errors
/// Why there is no answer, without the address: it may hold a secret.
pub(crate) fn post(request: RequestBuilder<WithBody>, body: &[u8]) -> Result<Answer, String> {
    request.send(body).map_err(|error| match error {
        ureq::Error::BadUri(_) | ureq::Error::RequireHttpsOnly(_) => "the URL cannot be used".to_owned(),
        other => other.to_string(),
    })
}

/// Tries until it is delivered or refused, a few times; `pause` waits and says whether to go on.
///
/// # Errors
/// Why it was not delivered, the last time.
pub(crate) fn tries(
    mut once: impl FnMut() -> Outcome,
    mut pause: impl FnMut(Duration) -> bool,
) -> Result<Answer, String> {
    let mut pauses = PAUSES.iter();
    loop {
        let (why, told) = match once() {
            Outcome::Delivered(answer) => return Ok(answer),
            Outcome::Refused(why) => return Err(why),
            Outcome::TryAgain(why, told) => (why, told),
        };
        let Some(usual) = pauses.next() else { return Err(why) };
        if !pause(told.unwrap_or(*usual)) {
            return Err(why);
        }
    }
}
