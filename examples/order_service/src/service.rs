//! The service over HTTP.

mod handlers;
mod read;

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::Failure;
use crate::app::{self, App};
use crate::config::ServeConfig;
use crate::error::Error;
use crate::{observe, reconcile};

/// Time to write what the last payment has come to.
const AFTER_THE_LAST_PAYMENT: Duration = Duration::from_secs(5);

/// Serves until the process is told to end. Prints `listening on http://..` first.
///
/// Told to end, it takes no more connections, lets the payments that are under way finish for as long as the provider may take,
/// and answers those that wait for a lock with 503. Some seconds later it ends whoever is still connected.
///
/// # Errors
///
/// Where it can't listen, or the database or the server of the locks is not to be had.
pub async fn serve(config: ServeConfig) -> Result<(), Failure> {
    // Before there are metrics: it is no lock of the service's.
    app::check_lock_options(&config).await?;
    observe::start();
    let listener = TcpListener::bind(&config.listen).await?;
    let app = Arc::new(App::connect(config).await?);
    println!("listening on http://{}", listener.local_addr()?);

    let nightly = tokio::spawn({
        let app = app.clone();
        async move { reconcile::every(&app, app.config.reconcile_every).await }
    });
    let (tell, told) = oneshot::channel::<()>();
    let server = axum::serve(listener, router(app.clone())).with_graceful_shutdown(async move {
        // That its other end is gone is what it tells.
        let _ = told.await;
    });
    let mut server = pin!(server.into_future());
    tokio::select! {
        outcome = &mut server => return Ok(outcome?),
        () = told_to_end() => {}
    }
    drop(tell);
    nightly.abort();
    // A client that sends half of a request would hold it up for ever.
    let patience = app.config.provider_timeout.saturating_add(AFTER_THE_LAST_PAYMENT);
    let (outcome, ()) =
        tokio::join!(tokio::time::timeout(patience, server), app.locks.shutdown(app.config.provider_timeout));
    let Ok(outcome) = outcome else {
        tracing::warn!("somebody is still connected");
        return Ok(());
    };
    Ok(outcome?)
}

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/orders", post(handlers::add_order))
        .route("/orders/{id}", get(handlers::order))
        .route("/orders/{id}/pay", post(handlers::pay))
        .route("/accounts", post(handlers::add_account))
        .route("/accounts/{id}", get(handlers::account))
        .route("/transfers", post(handlers::transfer))
        .route("/stock", post(handlers::set_stock))
        .route("/stock/{sku}", get(handlers::stock))
        .route("/stock/{sku}/reserve", post(handlers::reserve))
        .route("/health", get(handlers::health))
        .route_layer(from_fn_with_state(app.clone(), in_time))
        // Takes as long as it takes.
        .route("/reconcile", post(handlers::reconcile))
        .route("/metrics", get(observe::metrics))
        .fallback(async || Error::NotFound("path"))
        .layer(from_fn(observe::count))
        .with_state(app)
}

/// Also of one that sends its body too slowly.
async fn in_time(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    app.in_time(async { Ok(next.run(request).await) }).await.unwrap_or_else(IntoResponse::into_response)
}

/// SIGINT from a terminal, SIGTERM from whatever runs services.
async fn told_to_end() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
