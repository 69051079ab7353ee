//! The payment provider: a process of its own, slow and not reliable, and without idempotency. Asked twice it charges twice.
//!
//! Its contract: `POST /charge` is answered by 200 with `{"charge": ".."}` where it was charged, and by an error status with
//! `{"charged": false}` where it was not and will not be. Any other answer is not its own, and says nothing of the charge.

mod client;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub use client::{Charged, Client, Unreachable};

use crate::Failure;
use crate::config::ProviderConfig;

/// A charge that was made. There is no way back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Charge {
    /// The charge's own name.
    pub charge: String,
    /// What it was made for.
    pub order: String,
    /// In cents.
    pub amount: i64,
    /// When it was made, in milliseconds since 1970.
    pub at_ms: u64,
}

#[derive(Deserialize)]
struct Wanted {
    order: String,
    amount: i64,
}

#[derive(Deserialize)]
struct Filter {
    order: Option<String>,
}

struct Provider {
    config: ProviderConfig,
    books: Mutex<Books>,
}

#[derive(Default)]
struct Books {
    /// In the order in which they were made.
    charges: Vec<Charge>,
    /// By order, the requests that have neither been charged nor refused yet.
    under_way: BTreeMap<String, usize>,
}

/// Serves until the process is told to end. Prints `listening on http://..` first.
///
/// # Errors
///
/// Where it can't listen.
pub async fn serve(config: ProviderConfig) -> Result<(), Failure> {
    let listener = TcpListener::bind(&config.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let router = Router::new()
        .route("/charge", post(charge))
        .route("/charges", get(charges))
        .route("/under-way", get(under_way))
        .with_state(Arc::new(Provider { config, books: Mutex::default() }));
    Ok(axum::serve(listener, router).await?)
}

/// The request goes on when its caller has hung up or died, as it does at a real provider: hence the task.
async fn charge(State(provider): State<Arc<Provider>>, Json(wanted): Json<Wanted>) -> (StatusCode, Json<Value>) {
    let at_work = tokio::spawn(async move { provider.charge(wanted).await });
    match at_work.await {
        Ok(Some(charge)) => (StatusCode::OK, Json(json!({ "charge": charge }))),
        Ok(None) => (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({ "charged": false }))),
        // It panicked, and nobody knows how far it came.
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Json(json!({ "error": "a mistake of ours" }))),
    }
}

async fn charges(State(provider): State<Arc<Provider>>, Query(filter): Query<Filter>) -> Json<Vec<Charge>> {
    let is_wanted = |charge: &&Charge| filter.order.as_ref().is_none_or(|order| *order == charge.order);
    Json(provider.with_books(|books| books.charges.iter().filter(is_wanted).cloned().collect()))
}

/// A real provider wouldn't tell. The tests wait for a payment to be here, to break something in the middle of it.
async fn under_way(State(provider): State<Arc<Provider>>) -> Json<BTreeMap<String, usize>> {
    Json(provider.with_books(|books| books.under_way.clone()))
}

impl Provider {
    /// Charges at the end of the delay, so that until then nobody can see that it will.
    async fn charge(&self, wanted: Wanted) -> Option<String> {
        let Wanted { order, amount } = wanted;
        self.with_books(|books| *books.under_way.entry(order.clone()).or_default() += 1);
        tokio::time::sleep(self.delay()).await;
        let fails = fastrand::f64() < self.config.failure_rate;
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let charge = uuid::Uuid::new_v4().to_string();
        self.with_books(|books| {
            books.leave(&order);
            if !fails {
                let at_ms = u64::try_from(at_ms).unwrap_or(u64::MAX);
                books.charges.push(Charge { charge: charge.clone(), order, amount, at_ms });
            }
        });
        if fails {
            return None;
        }
        if fastrand::f64() < self.config.lose_rate {
            // Charged, and the answer never arrives.
            return pending().await;
        }
        Some(charge)
    }

    fn delay(&self) -> Duration {
        let (shortest, longest) = (self.config.delay.0.start(), self.config.delay.0.end());
        shortest.saturating_add(longest.saturating_sub(*shortest).mul_f64(fastrand::f64()))
    }

    fn with_books<T>(&self, work: impl FnOnce(&mut Books) -> T) -> T {
        work(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Books {
    fn leave(&mut self, order: &str) {
        if let Some(count) = self.under_way.get_mut(order) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(order);
            }
        }
    }
}
