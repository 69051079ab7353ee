//! What can be set, by flag or by environment.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Orders that are paid once.
#[derive(Clone, Debug, Parser)]
#[command(name = "order-service", version)]
pub struct Cli {
    /// Which of the two processes this one is.
    #[command(subcommand)]
    pub role: Role,
}

/// Which of the two processes one is.
#[derive(Clone, Debug, Subcommand)]
pub enum Role {
    /// Serves orders, accounts and stock over HTTP.
    Serve(ServeConfig),
    /// Takes the money: slowly, and not always.
    Provider(ProviderConfig),
}

/// What an instance of the service is told.
#[derive(Clone, Debug, Args)]
pub struct ServeConfig {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// `sqlite:FILE` or `postgres://..`.
    #[arg(long, env = "DATABASE_URL", default_value = "sqlite:orders.db")]
    pub database: String,
    /// Where the locks are, for example `redis://127.0.0.1`; without it they are in memory, for one instance alone.
    #[arg(long, env = "REDIS_URL")]
    pub redis: Option<String>,
    /// The payment provider.
    #[arg(long, env = "PROVIDER_URL", default_value = "http://127.0.0.1:8081")]
    pub provider: String,
    /// The first line of defence: one payment of an order at a time.
    #[arg(long, env = "LOCK", default_value = "on")]
    pub lock: Switch,
    /// The second: a unique key for each payment, and the first answer for its repeats.
    #[arg(long, env = "IDEMPOTENCY", default_value = "on")]
    pub idempotency: Switch,
    /// The third: the store refuses a holder that is late. Needs the lock, which hands out the tokens.
    #[arg(long, env = "FENCING", default_value = "on")]
    pub fencing: Switch,
    /// The lease's length.
    #[arg(long, env = "TTL", default_value = "2s", value_parser = humantime::parse_duration)]
    pub ttl: Duration,
    /// How long a request stands in line for the lock before it is told to come back.
    #[arg(long, env = "WAIT", default_value = "5s", value_parser = humantime::parse_duration)]
    pub wait: Duration,
    /// How long the provider may take to answer. Longer than the ttl: the lease is renewed meanwhile.
    #[arg(long, env = "PROVIDER_TIMEOUT", default_value = "10s", value_parser = some_time)]
    pub provider_timeout: Duration,
    /// How long after the intent was recorded a charge may still appear in the provider's list. By default twice the
    /// provider's time-out (once for the request to arrive, once for the provider) and the 5 seconds that may pass
    /// before it is sent.
    #[arg(long, env = "SETTLE_AFTER", value_parser = humantime::parse_duration)]
    pub settle_after: Option<Duration>,
    /// How often the reconciliation runs, on one of all instances. At once where it is overdue.
    #[arg(long, env = "RECONCILE_EVERY", default_value = "24h", value_parser = some_time)]
    pub reconcile_every: Duration,
    /// The name that others read when this instance holds a lock.
    #[arg(long, env = "OWNER")]
    pub owner: Option<String>,
}

/// What may pass between the record of an intent and its request to the provider. If it took longer, nothing is sent.
pub const SENDING_MARGIN: Duration = Duration::from_secs(5);

impl ServeConfig {
    /// The time after which the provider's list says for certain whether a charge was made.
    pub fn settle_after(&self) -> Duration {
        self.settle_after.unwrap_or(self.longest_charge())
    }

    /// The longest that a charge may take to appear in the list, counted from its intent, by what we assume: a request that
    /// arrives at all does so within the time-out after we began to send it, and the provider lists the charge within the
    /// time-out after that.
    pub fn longest_charge(&self) -> Duration {
        SENDING_MARGIN.saturating_add(self.provider_timeout.saturating_mul(2))
    }
}

/// What the payment provider is told.
#[derive(Clone, Debug, Args)]
pub struct ProviderConfig {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, env = "LISTEN", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// How long a charge takes, `500ms` or `100ms..3s`.
    #[arg(long, env = "DELAY", default_value = "100ms..3s", value_parser = delay)]
    pub delay: Delay,
    /// How many of the charges fail, and are not made: 0 to 1.
    #[arg(long, env = "FAILURE_RATE", default_value_t = 0.1)]
    pub failure_rate: f64,
    /// How many of the charges are made, but never answered: 0 to 1.
    #[arg(long, env = "LOSE_RATE", default_value_t = 0.0)]
    pub lose_rate: f64,
}

/// The shortest and the longest time that a charge takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delay(pub RangeInclusive<Duration>);

/// A line of defence, there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It is there.
    On,
    /// It is not.
    Off,
}

impl Switch {
    /// Whether it is there.
    pub fn is_on(self) -> bool {
        self == Switch::On
    }
}

fn some_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|why| why.to_string())?;
    if time.is_zero() { Err("it must be more than nothing".to_owned()) } else { Ok(time) }
}

fn delay(text: &str) -> Result<Delay, String> {
    let (shortest, longest) = text.split_once("..").unwrap_or((text, text));
    let duration = |text| humantime::parse_duration(text).map_err(|why| format!("`{text}`: {why}"));
    let (shortest, longest) = (duration(shortest)?, duration(longest)?);
    if shortest > longest {
        return Err(format!("`{text}` ends before it begins"));
    }
    Ok(Delay(shortest..=longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request may be on its way for nearly the whole time-out, and the provider then needs its own time.
    #[test]
    fn a_payment_is_settled_after_two_time_outs_and_the_margin() {
        let arguments = ["order-service", "serve", "--provider-timeout", "7s"];
        let Role::Serve(config) = Cli::parse_from(arguments).role else { panic!("another role") };
        assert_eq!(config.settle_after(), Duration::from_secs(7 + 7 + 5));
    }

    #[test]
    fn a_delay_is_one_duration_or_two() {
        assert_eq!(delay("1s"), Ok(Delay(Duration::from_secs(1)..=Duration::from_secs(1))));
        assert_eq!(delay("100ms..3s"), Ok(Delay(Duration::from_millis(100)..=Duration::from_secs(3))));
        assert!(delay("3s..1s").is_err());
    }
}
