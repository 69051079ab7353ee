//! Customers: impatient, and each on two devices.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use order_service::Failure;
use reqwest::{Response, StatusCode, header::RETRY_AFTER};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::plan::Device;
use crate::world::World;

/// After so long without an answer a customer tries elsewhere.
pub(crate) const IMPATIENCE: Duration = Duration::from_secs(3);
/// After so long a customer gives up. It is far more than any fault and what comes of it takes.
const PATIENCE: Duration = Duration::from_secs(25);
/// A customer who is told to come back does so, but does not wait for long.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often customers got which answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) paid: usize,
    pub(crate) busy: usize,
    pub(crate) unavailable: usize,
    pub(crate) other: usize,
    pub(crate) none: usize,
}

/// One device, which wants one order paid.
#[derive(Clone)]
pub(crate) struct Customer {
    pub(crate) world: Arc<World>,
    pub(crate) answers: Arc<Mutex<Answers>>,
    pub(crate) order: String,
    pub(crate) key: String,
}

enum Answer {
    Paid,
    Later(Duration),
}

impl Customer {
    /// Taps as planned, and then, one request at a time, until there is a receipt. Returns how long that took from the first
    /// tap on, or nothing if the customer gave up.
    pub(crate) async fn pay(self, device: Device, begin: Instant) -> Result<Option<Duration>, Failure> {
        let Some(first) = device.taps.iter().map(|tap| begin + tap.at).min() else {
            return Ok(None);
        };
        let mut next = device.taps.last().map_or(0, |tap| tap.instance);
        let mut taps = JoinSet::new();
        for tap in device.taps {
            let customer = self.clone();
            taps.spawn(async move {
                sleep_until(begin + tap.at).await;
                (customer.tap(tap.instance).await, first.elapsed())
            });
        }
        // All of them are let through to their end: what is on its way has its effect, receipt or not.
        let (mut receipt, mut pause) = (None, LONGEST_PAUSE);
        while let Some(tap) = taps.join_next().await {
            match tap? {
                (Answer::Paid, after) => receipt = receipt.or(Some(after)),
                (Answer::Later(longer), _) => pause = pause.min(longer),
            }
        }
        while receipt.is_none() && first.elapsed() < PATIENCE {
            // As the service asks for.
            sleep(pause).await;
            next += 1;
            match self.tap(next).await {
                Answer::Paid => receipt = Some(first.elapsed()),
                Answer::Later(longer) => pause = longer,
            }
        }
        Ok(receipt)
    }

    async fn tap(&self, instance: usize) -> Answer {
        let url = format!("{}/orders/{}/pay", self.world.address(instance), self.order);
        let sent = self.world.client().post(url).header("Idempotency-Key", &self.key).send().await;
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(response) = sent else {
            answers.none += 1;
            return Answer::Later(Duration::from_millis(200));
        };
        let later = asked_to_wait(&response);
        match response.status() {
            StatusCode::OK => answers.paid += 1,
            // Another device has paid it, and here is the receipt.
            StatusCode::CONFLICT if later.is_none() => answers.paid += 1,
            StatusCode::CONFLICT => answers.busy += 1,
            StatusCode::SERVICE_UNAVAILABLE => answers.unavailable += 1,
            _ => answers.other += 1,
        }
        match (response.status(), later) {
            (StatusCode::OK, _) | (StatusCode::CONFLICT, None) => Answer::Paid,
            (_, later) => Answer::Later(later.unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)),
        }
    }
}

fn asked_to_wait(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}
