//! The service over HTTP.

mod handlers;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;
use crate::app::App;
use crate::config::ServeConfig;
use crate::{observe, reconcile};

/// How long payments that are under way may take when the service is told to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves until the process is told to end. Prints `listening on http://..` first.
///
/// # Errors
///
/// Where it can't listen, or the database or the server of the locks is not to be had.
pub async fn serve(config: ServeConfig) -> Result<(), Failure> {
    observe::start();
    let listener = TcpListener::bind(&config.listen).await?;
    let app = Arc::new(App::connect(config).await?);
    println!("listening on http://{}", listener.local_addr()?);

    let nightly = tokio::spawn({
        let app = app.clone();
        async move { reconcile::every(&app, app.config.reconcile_every).await }
    });
    tokio::select! {
        ended = axum::serve(listener, router(app.clone())) => ended?,
        () = told_to_end() => {}
    }
    nightly.abort();
    // Payments are tasks of their own: what holds a lock may end, and frees it.
    app.locks.shutdown(FAREWELL).await;
    Ok(())
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
        .route("/reconcile", post(handlers::reconcile))
        .route("/health", get(handlers::health))
        .route("/metrics", get(observe::metrics))
        .layer(from_fn(observe::count))
        .with_state(app)
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
