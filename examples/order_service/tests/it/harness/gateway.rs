//! What stands between the service and its provider, and has answers of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Passes everything on to the provider, but the first charge it answers itself: the provider charges, and is not heard.
pub(crate) struct Gateway {
    pub(crate) url: String,
    posts: Arc<AtomicUsize>,
    at_work: JoinHandle<()>,
}

/// What it says by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) status: u16,
    pub(crate) body: &'static str,
}

#[derive(Clone)]
struct Ways {
    provider: String,
    own: Own,
    posts: Arc<AtomicUsize>,
}

impl Gateway {
    pub(crate) async fn before(provider: &str, own: Own) -> Gateway {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let posts = Arc::new(AtomicUsize::new(0));
        let ways = Ways { provider: provider.to_owned(), own, posts: posts.clone() };
        let router = axum::Router::new().fallback(pass_on).with_state(ways);
        let at_work = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Gateway { url, posts, at_work }
    }

    /// How many charges it was asked for.
    pub(crate) fn posts(&self) -> usize {
        self.posts.load(Ordering::Relaxed)
    }
}

async fn pass_on(State(ways): State<Ways>, method: Method, uri: Uri, body: Bytes) -> Response {
    let request = reqwest::Client::new().request(method.clone(), format!("{}{uri}", ways.provider));
    let reply = request.header("content-type", "application/json").body(body).send().await.unwrap();
    if method == Method::POST && ways.posts.fetch_add(1, Ordering::Relaxed) == 0 {
        let status = StatusCode::from_u16(ways.own.status).unwrap();
        // A client that follows it would charge again.
        return (status, [("location", "/charge")], ways.own.body).into_response();
    }
    (reply.status(), reply.bytes().await.unwrap()).into_response()
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.at_work.abort();
    }
}
