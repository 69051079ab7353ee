//! How the service talks to the provider.

use std::time::Duration;

use reqwest::Response;
use reqwest::redirect::Policy;
use serde::Deserialize;
use serde_json::json;

use super::Charge;

/// The provider, seen from the service.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    url: String,
}

/// What is known after a charge was asked for.
#[derive(Debug)]
pub enum Charged {
    /// It was made.
    Yes(String),
    /// It was not made, and will not be: the provider said so, or was never reached.
    No(String),
    /// No answer. It may have been made, or may still be.
    Unknown(String),
}

/// The provider could not be asked which charges there are.
#[derive(Debug, thiserror::Error)]
#[error("the payment provider can't be asked for its charges")]
pub struct Unreachable(#[from] reqwest::Error);

#[derive(Deserialize)]
struct Answer {
    charge: String,
}

#[derive(Deserialize)]
struct Refusal {
    charged: bool,
}

impl Client {
    /// Makes a client, whose requests end after `timeout`.
    ///
    /// # Errors
    ///
    /// Where the system has no means for a client.
    pub fn new(url: &str, timeout: Duration) -> reqwest::Result<Client> {
        // Nothing is sent again behind our back, and nothing to where we didn't send it. Over HTTP/1, which is all that this
        // build speaks, reqwest sends nothing again anyway; a feature that somebody switches on must not change that.
        let http = reqwest::Client::builder().retry(reqwest::retry::never()).redirect(Policy::none()).no_proxy();
        let http = http.timeout(timeout).build()?;
        Ok(Client { http, url: url.trim_end_matches('/').to_owned() })
    }

    /// Asks for a charge, once.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the outcome is as unknown as after a time-out.
    pub async fn charge(&self, order: &str, amount: i64) -> Charged {
        let request = self.http.post(format!("{}/charge", self.url)).json(&json!({ "order": order, "amount": amount }));
        match request.send().await {
            Ok(response) if response.status().is_success() => match response.json::<Answer>().await {
                Ok(answer) => Charged::Yes(answer.charge),
                Err(why) => Charged::Unknown(why.to_string()),
            },
            Ok(response) => refused(response).await,
            Err(why) if why.is_connect() => Charged::No(why.to_string()),
            Err(why) => Charged::Unknown(why.to_string()),
        }
    }

    /// The charges that were made for an order, the first one first.
    ///
    /// # Errors
    ///
    /// Where there is no answer.
    pub async fn charges_for(&self, order: &str) -> Result<Vec<Charge>, Unreachable> {
        let request = self.http.get(format!("{}/charges", self.url)).query(&[("order", order)]);
        Ok(request.send().await?.error_for_status()?.json().await?)
    }

    /// All charges that were made, the first one first.
    ///
    /// # Errors
    ///
    /// Where there is no answer.
    pub async fn charges(&self) -> Result<Vec<Charge>, Unreachable> {
        let request = self.http.get(format!("{}/charges", self.url));
        Ok(request.send().await?.error_for_status()?.json().await?)
    }
}

/// Only the provider knows that it has made no charge. Who stands before it, and answers 502 or 504 when that takes too long, does
/// not: so an error status alone says nothing.
async fn refused(response: Response) -> Charged {
    let status = response.status();
    match response.json::<Refusal>().await {
        Ok(Refusal { charged: false }) if status.is_client_error() || status.is_server_error() => {
            Charged::No(status.to_string())
        }
        _ => Charged::Unknown(format!("{status}, and not a word of whether it has charged")),
    }
}
