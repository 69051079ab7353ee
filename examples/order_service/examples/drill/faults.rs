//! Freezing and killing.

use std::sync::Arc;
use std::time::Duration;

use order_service::Failure;
use tokio::time::{Instant, sleep, sleep_until};

use crate::plan::{Fault, Group};
use crate::progress::Progress;
use crate::world::World;

/// How often the provider is looked at: much less than the shortest charge takes.
const LOOK: Duration = Duration::from_millis(20);

/// Waits for the time of a group's fault, in the middle of a payment, and does it and undoes it.
pub(crate) async fn strike(
    world: Arc<World>,
    group: Group,
    orders: Vec<String>,
    begin: Instant,
    progress: Arc<Progress>,
) -> Result<(), Failure> {
    sleep_until(begin + group.begins).await;
    while !world.under_way().await?.keys().any(|order| orders.contains(order)) {
        // The provider is asked by others, and does not call us.
        sleep(LOOK).await;
    }
    sleep(group.strikes_after).await;
    progress.say(&format!("{} for {:.1} s", group.fault.told(group.instance), group.lasts.as_secs_f64()));
    let instance = world.instances.get(group.instance).ok_or("there is no such instance")?;
    match group.fault {
        Fault::FreezeInstance => {
            let mut instance = instance.lock().await;
            instance.process()?.freeze()?;
            sleep(group.lasts).await;
            instance.process()?.go_on()?;
            progress.say(&format!("instance {} goes on, and does not know of the pause", group.instance));
        }
        Fault::KillInstance => {
            let mut instance = instance.lock().await;
            instance.process()?.kill().await?;
            sleep(group.lasts).await;
            world.moved(group.instance, instance.start().await?);
            progress.say(&format!("instance {} is back", group.instance));
        }
        Fault::FreezeRedis => {
            let redis = world.redis.lock().await;
            redis.process.freeze()?;
            sleep(group.lasts).await;
            redis.process.go_on()?;
            progress.say("Redis goes on");
        }
        Fault::RestartRedis => {
            let mut redis = world.redis.lock().await;
            redis.process.kill().await?;
            sleep(group.lasts).await;
            redis.start_again().await?;
            progress.say("Redis is back, empty");
        }
    }
    Ok(())
}
