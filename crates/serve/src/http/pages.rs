//! The live page: its document, modules and style sheets, and the cookie that a browser reads with.
use super::auth;
use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};

/// The page at `/`.
const DOCUMENT: &str = include_str!("../../../../web/live.html");

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// What the page is made of, below `/page/`: name, type, content.
const FILES: &[(&str, &str, &str)] = &[
    ("live.js", SCRIPT, include_str!("../../../../web/live.js")),
    ("colour.js", SCRIPT, include_str!("../../../../web/colour.js")),
    ("compare.js", SCRIPT, include_str!("../../../../web/compare.js")),
    ("data.js", SCRIPT, include_str!("../../../../web/data.js")),
    ("grid.js", SCRIPT, include_str!("../../../../web/grid.js")),
    ("layout.js", SCRIPT, include_str!("../../../../web/layout.js")),
    ("operations.js", SCRIPT, include_str!("../../../../web/operations.js")),
    ("painter.js", SCRIPT, include_str!("../../../../web/painter.js")),
    ("ranks.js", SCRIPT, include_str!("../../../../web/ranks.js")),
    ("captures.js", SCRIPT, include_str!("../../../../web/captures.js")),
    ("case.js", SCRIPT, include_str!("../../../../web/case.js")),
    ("stackgrid.js", SCRIPT, include_str!("../../../../web/stackgrid.js")),
    ("waitgraph.js", SCRIPT, include_str!("../../../../web/waitgraph.js")),
    ("job.js", SCRIPT, include_str!("../../../../web/job.js")),
    ("notes.js", SCRIPT, include_str!("../../../../web/notes.js")),
    ("paths.js", SCRIPT, include_str!("../../../../web/paths.js")),
    ("server.js", SCRIPT, include_str!("../../../../web/server.js")),
    ("spent.js", SCRIPT, include_str!("../../../../web/spent.js")),
    ("strip.js", SCRIPT, include_str!("../../../../web/strip.js")),
    ("words.js", SCRIPT, include_str!("../../../../web/words.js")),
    ("dom.js", SCRIPT, include_str!("../../../../web/dom.js")),
    ("theme.css", STYLE, include_str!("../../../../web/theme.css")),
    ("page.css", STYLE, include_str!("../../../../web/page.css")),
    ("live.css", STYLE, include_str!("../../../../web/live.css")),
];

/// What the page may do: its own files and questions to this server. Text never becomes markup or code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; form-action 'none'; \
                      base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// How long a browser reads before it has to show the token again, seconds: a working day.
const COOKIE_S: u32 = 12 * 3600;

fn with_policy(answer: impl IntoResponse) -> Response {
    let mut response = answer.into_response();
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// `GET /`.
pub(super) async fn document() -> Response {
    with_policy(Html(DOCUMENT))
}

/// `GET /page/NAME`.
pub(super) async fn file(Path(wanted): Path<String>) -> Response {
    match FILES.iter().find(|(name, _, _)| *name == wanted) {
        Some((_, kind, content)) => with_policy(([(header::CONTENT_TYPE, *kind)], *content)),
        None => (StatusCode::NOT_FOUND, "the page has no such part\n").into_response(),
    }
}

/// `POST /login`, from somebody who has shown `token`: from now on the browser shows it as a cookie, which scripts cannot read
/// and other sites cannot send; of a server that speaks HTTPS only there. The error says why it cannot be one.
pub(super) fn login(token: Option<&str>, is_https: bool) -> Result<Response, &'static str> {
    let Some(token) = token else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let value =
        auth::cookie(token).ok_or("the token has characters that no cookie can have: use the header instead")?;
    let secure = if is_https { "; Secure" } else { "" };
    let cookie = format!("{value}; Path=/; Max-Age={COOKIE_S}; HttpOnly; SameSite=Strict{secure}");
    let cookie = HeaderValue::from_str(&cookie).map_err(|_| "the token cannot be a header")?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_that_the_page_asks_for_is_there_and_none_has_markup_or_foreign_addresses() {
        let names: Vec<&str> = FILES.iter().map(|(name, _, _)| *name).collect();
        for (_, _, content) in FILES.iter().chain([&("", "", DOCUMENT)]) {
            assert!(content.is_ascii() && !content.contains("innerHTML") && !content.contains("http://www.example"));
            for asked in content.split("/page/").skip(1).chain(content.split("from \"./").skip(1)) {
                let name: String = asked.chars().take_while(|c| c.is_alphanumeric() || *c == '.').collect();
                assert!(names.contains(&name.as_str()), "{name}");
            }
        }
        assert!(!DOCUMENT.contains("<style") && !DOCUMENT.contains("<script>"), "the policy refuses inline code");
    }

    #[test]
    fn only_a_token_that_a_cookie_can_hold_is_one() {
        let answer = login(Some("abc-DEF_123"), false).unwrap();
        let cookie = answer.headers()[header::SET_COOKIE].to_str().unwrap();
        assert!(
            cookie.contains("abc-DEF_123;") && cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"),
            "{cookie}"
        );
        assert!(login(Some("a;b"), true).is_err() && login(Some("a b"), true).is_err());
        assert!(login(None, true).unwrap().headers().get(header::SET_COOKIE).is_none());
    }
}
