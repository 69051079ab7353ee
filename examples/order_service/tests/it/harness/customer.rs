//! Somebody who calls an instance of the service.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Process, SOON, eventually};

/// A customer of one instance, which ends with the customer.
pub(crate) struct Customer {
    pub(crate) service: Process,
    http: reqwest::Client,
}

/// What the service said.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// In seconds.
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: Value,
}

impl Customer {
    pub(crate) fn of(service: Process) -> Customer {
        Customer { service, http: reqwest::Client::new() }
    }

    pub(crate) async fn order(&self, amount: i64) -> String {
        let made = self.post("/orders", &json!({ "amount": amount })).await;
        assert_eq!(made.status, 201, "{made:?}");
        made.body["id"].as_str().unwrap().to_owned()
    }

    /// Taps "pay" once.
    pub(crate) async fn pay(&self, order: &str, key: &str) -> Reply {
        self.try_to_pay(order, key, "").await.unwrap()
    }

    /// The same with a body; `Err` if the instance is not there, or goes away meanwhile.
    pub(crate) async fn try_to_pay(&self, order: &str, key: &str, body: &str) -> reqwest::Result<Reply> {
        let request = self.http.post(format!("{}/orders/{order}/pay", self.service.url)).body(body.to_owned());
        reply(request.header("Idempotency-Key", key).send().await?).await
    }

    /// Taps until there is a final answer, as a patient customer's app does.
    pub(crate) async fn pay_at_last(&self, order: &str, key: &str) -> Reply {
        let begin = Instant::now();
        loop {
            let reply = self.pay(order, key).await;
            if reply.retry_after.is_none() && !matches!(reply.status, 502..=504) {
                return reply;
            }
            assert!(begin.elapsed() < SOON, "no final answer after {SOON:?}, but {reply:?}");
            // What a customer's app would do; sooner than it is told, which must do no harm.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Taps until the answer is of this kind, past others on which nothing was done: on a busy machine Redis may take too long.
    pub(crate) async fn pay_until(&self, order: &str, key: &str, kind: &str) -> Reply {
        eventually(&format!("a payment ends as `{kind}`"), async || {
            let reply = self.pay(order, key).await;
            assert_ne!(reply.status, 200, "instead of `{kind}`: {reply:?}");
            (reply.body["kind"] == kind).then_some(reply)
        })
        .await
    }

    /// Posts until the lock was to be had: without it nothing was done.
    pub(crate) async fn post_at_last(&self, path: &str, body: &Value) -> Reply {
        eventually("the lock is to be had", async || {
            let reply = self.post(path, body).await;
            let is_refused = reply.body["kind"] == "busy" || reply.body["kind"] == "lock";
            (!is_refused).then_some(reply)
        })
        .await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        reply(self.http.get(format!("{}{path}", self.service.url)).send().await.unwrap()).await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        let request = self.http.post(format!("{}{path}", self.service.url)).json(body);
        reply(request.send().await.unwrap()).await.unwrap()
    }

    /// The same with an idempotency key.
    pub(crate) async fn post_with(&self, key: &str, path: &str, body: &Value) -> Reply {
        let request = self.http.post(format!("{}{path}", self.service.url)).json(body);
        reply(request.header("Idempotency-Key", key).send().await.unwrap()).await.unwrap()
    }

    /// Posts what may be no JSON, with an idempotency key.
    pub(crate) async fn send(&self, path: &str, content_type: Option<&str>, body: &[u8]) -> Reply {
        let request =
            self.http.post(format!("{}{path}", self.service.url)).header("Idempotency-Key", "key").body(body.to_vec());
        let request = match content_type {
            Some(content_type) => request.header("Content-Type", content_type),
            None => request,
        };
        reply(request.send().await.unwrap()).await.unwrap()
    }

    pub(crate) async fn text(&self, path: &str) -> String {
        self.http.get(format!("{}{path}", self.service.url)).send().await.unwrap().text().await.unwrap()
    }
}

async fn reply(response: reqwest::Response) -> reqwest::Result<Reply> {
    let status = response.status().as_u16();
    let retry_after = response.headers().get("retry-after").map(|after| after.to_str().unwrap().parse().unwrap());
    let body = response.text().await?;
    let body = serde_json::from_str(&body).unwrap_or(Value::String(body));
    Ok(Reply { status, retry_after, body })
}
