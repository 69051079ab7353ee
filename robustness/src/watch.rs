//! Looks at the locks on the server all the time, and writes down until when they stand.

use std::time::Duration;

use harness::holders::now;
use tokio::time::sleep;

use crate::client::calls::KEYS;
use crate::settings::Topology;
use crate::world::World;

/// Between two looks: many within one lease.
const PAUSE: Duration = Duration::from_millis(10);

/// Never ends. On several servers no single one of them says for how long a lock stands, so they are not looked at.
pub(crate) async fn watch(world: &World) {
    let [server] = world.servers() else { return std::future::pending().await };
    if world.topology != Topology::Single {
        return std::future::pending().await;
    }
    let client = redis::Client::open(server.url()).expect("a URL");
    loop {
        let Ok(mut connection) = client.get_multiplexed_async_connection().await else {
            sleep(PAUSE).await;
            continue;
        };
        while look(world, &mut connection).await.is_ok() {
            sleep(PAUSE).await;
        }
    }
}

async fn look(world: &World, connection: &mut redis::aio::MultiplexedConnection) -> redis::RedisResult<()> {
    let mut questions = redis::pipe();
    questions.atomic();
    for key in 0..KEYS {
        let name = format!("lock:{{x:{key}}}");
        questions.get(&name).pttl(&name);
    }
    // Noted as seen when it was asked for: what is renewed while the answer is on its way is not in it.
    let asked = now();
    let answers: Vec<(Option<String>, i64)> = questions.query_async(connection).await?;
    // The server has looked before this, so the lock ends no later.
    let now = now();
    for (value, millis) in answers {
        let token = value.as_deref().and_then(|value| value.split('/').next());
        if let (Some(token), Ok(millis)) = (token, u64::try_from(millis)) {
            world.journal.note_at(asked, "-", &format!("stands {token} {}", now + (millis + 1) * 1_000_000));
        }
    }
    Ok(())
}
