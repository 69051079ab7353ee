//! The service and its payment provider: see the README beside.

use clap::Parser;
use order_service::config::{Cli, Role};
use order_service::{Failure, provider, service};

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match Cli::parse().role {
        Role::Serve(config) => service::serve(config).await,
        Role::Provider(config) => provider::serve(config).await,
    }
}
