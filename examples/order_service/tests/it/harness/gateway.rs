//! What stands between the service and its provider, and has answers of its own, or takes its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Passes everything on to the provider, but the first charge it answers itself: the provider charges, and is not heard.
pub(crate) struct Gateway {
    pub(crate) url: String,
    posts: Arc<AtomicUsize>,
    _server: Server,
}

/// What it says by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) status: u16,
    pub(crate) body: &'static str,
}

impl Gateway {
    pub(crate) async fn before(provider: &str, own: Own) -> Gateway {
        let posts = Arc::new(AtomicUsize::new(0));
        let (url, server) =
            serve(Router::new().fallback(answer_first).with_state((provider.to_owned(), own, posts.clone()))).await;
        Gateway { url, posts, _server: server }
    }

    /// How many charges it was asked for.
    pub(crate) fn posts(&self) -> usize {
        self.posts.load(Ordering::Relaxed)
    }
}

type Answering = State<(String, Own, Arc<AtomicUsize>)>;

async fn answer_first(State((to, own, posts)): Answering, method: Method, uri: Uri, body: Bytes) -> Response {
    let reply = pass_on(&to, &method, &uri, body).await;
    if method == Method::POST && posts.fetch_add(1, Ordering::Relaxed) == 0 {
        // A client that follows it would charge again.
        return (StatusCode::from_u16(own.status).unwrap(), [("location", "/charge")], own.body).into_response();
    }
    reply
}

/// Passes everything on to the provider, and keeps the list of all charges, as it is then, until it is told to let it go.
pub(crate) struct SlowList {
    pub(crate) url: String,
    waiting: Arc<Waiting>,
    _server: Server,
}

struct Waiting {
    there: Semaphore,
    let_go: Semaphore,
}

impl SlowList {
    pub(crate) async fn before(provider: &str) -> SlowList {
        let waiting = Arc::new(Waiting { there: Semaphore::new(0), let_go: Semaphore::new(0) });
        let router = Router::new().fallback(keep_list).with_state((provider.to_owned(), waiting.clone()));
        let (url, server) = serve(router).await;
        SlowList { url, waiting, _server: server }
    }

    /// Waits until there is a list that wants to go.
    pub(crate) async fn is_there(&self) {
        self.waiting.there.acquire().await.unwrap().forget();
    }

    /// Lets one go.
    pub(crate) fn let_go(&self) {
        self.waiting.let_go.add_permits(1);
    }
}

type Keeping = State<(String, Arc<Waiting>)>;

async fn keep_list(State((to, waiting)): Keeping, method: Method, uri: Uri, body: Bytes) -> Response {
    let reply = pass_on(&to, &method, &uri, body).await;
    if uri == "/charges" {
        waiting.there.add_permits(1);
        waiting.let_go.acquire().await.unwrap().forget();
    }
    reply
}

async fn pass_on(to: &str, method: &Method, uri: &Uri, body: Bytes) -> Response {
    let request = reqwest::Client::new().request(method.clone(), format!("{to}{uri}"));
    let reply = request.header("content-type", "application/json").body(body).send().await.unwrap();
    (reply.status(), reply.bytes().await.unwrap()).into_response()
}

/// Ends when it is dropped.
struct Server(JoinHandle<()>);

async fn serve(router: Router) -> (String, Server) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (url, Server(tokio::spawn(async move { axum::serve(listener, router).await.unwrap() })))
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.abort();
    }
}
