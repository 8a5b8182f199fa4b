//! The server: 127.0.0.1 only, for the page that it serves and for no other.
//!
//! A page of another origin could let a visitor's browser send requests here. So `Host` must name this
//! machine (which stops DNS rebinding), and `Origin`, where a browser sends one, must be ours.

use crate::Subject;
use crate::assets;
use crate::engine::{Engine, Refusal};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hearken_base::{Error, Result};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The longest question, in bytes.
pub const MOST_BODY: usize = 1 << 20;

/// How long a question may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct Shared {
    engine: Engine,
    port: u16,
}

/// Serves the page on 127.0.0.1 until the process ends; `ready` is told the address. Without a port,
/// any free one is taken.
pub fn serve(subject: Subject, port: Option<u16>, ready: impl FnOnce(SocketAddr)) -> Result<()> {
    let failed = |error: std::io::Error| {
        let hint = "give another port with --port, or leave it out";
        Error::new(format!("cannot serve on 127.0.0.1: {error}"), hint)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(failed)?.block_on(async move {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.unwrap_or(0)));
        let listener = tokio::net::TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Shared { engine: Engine::start(subject)?, port: address.port() };
        ready(address);
        axum::serve(listener, router(shared)).await.map_err(failed)
    })
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/", get(|| async { file("index.html") }))
        .route("/{name}", get(|Path(name): Path<String>| async move { file(&name) }))
        .route("/api/{name}", post(question))
        .layer(middleware::from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

/// Lets only requests to this machine from this page through.
async fn guard(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    if let Err(problem) = is_ours(request.headers(), shared.port) {
        return refuse(StatusCode::FORBIDDEN, problem, "open the address that was printed");
    }
    let mut response = next.run(request).await;
    let policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
        img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
        frame-ancestors 'none'";
    let headers: [(HeaderName, &'static str); 4] = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn is_ours(headers: &HeaderMap, port: u16) -> Result<(), &'static str> {
    let allowed = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if !text(header::HOST).is_some_and(|host| allowed.iter().any(|own| own == host)) {
        return Err("the Host of the request is not this server");
    }
    let Some(origin) = text(header::ORIGIN) else { return Ok(()) };
    let host = origin.strip_prefix("http://").unwrap_or_default();
    if allowed.iter().any(|own| own == host) {
        Ok(())
    } else {
        Err("the request comes from another page")
    }
}

fn file(name: &str) -> Response {
    match assets::find(name) {
        Some((kind, text)) => ([(header::CONTENT_TYPE, kind)], text).into_response(),
        None => refuse(StatusCode::NOT_FOUND, "there is no such file", "open /"),
    }
}

async fn question(State(shared): State<Shared>, Path(name): Path<String>, body: Body) -> Response {
    let body = match tokio::time::timeout(PATIENCE, to_bytes(body, MOST_BODY)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let (message, hint) = ("the question is too long", "at most one megabyte");
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, message, hint);
        }
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the question did not end", "again"),
    };
    let Some(body) = object(&body) else {
        let hint = "send {} or {\"ids\": [1, 2, 3]}";
        return refuse(StatusCode::BAD_REQUEST, "the question is no JSON object", hint);
    };
    match shared.engine.ask(name, body).await {
        Ok(answer) => ([(header::CONTENT_TYPE, "application/json")], answer).into_response(),
        Err(Refusal::Bad(error)) => {
            refuse(StatusCode::BAD_REQUEST, error.message(), error.hint().unwrap_or_default())
        }
        Err(Refusal::Unknown) => refuse(StatusCode::NOT_FOUND, "there is no such question", ""),
        Err(Refusal::Busy) => {
            let (message, hint) = ("too many questions are waiting", "ask again in a moment");
            let mut response = refuse(StatusCode::SERVICE_UNAVAILABLE, message, hint);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        Err(Refusal::Broken) => {
            let message = "the engine made a mistake with this question";
            refuse(StatusCode::INTERNAL_SERVER_ERROR, message, "please report it")
        }
    }
}

fn object(body: &Bytes) -> Option<Value> {
    serde_json::from_slice(body).ok().filter(Value::is_object)
}

fn refuse(status: StatusCode, message: &str, hint: &str) -> Response {
    let body = json!({ "error": message, "hint": hint }).to_string();
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}
