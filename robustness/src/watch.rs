//! Looks at all that stands on the server all the time, and writes down what the locks are, and until when they stand.

use std::time::Duration;

use harness::holders::now;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};
use tokio::time::sleep;

use crate::history::nanos;
use crate::settings::Topology;
use crate::world::World;

/// Between two looks: many within one lease.
const PAUSE: Duration = Duration::from_millis(10);

/// The longest expiry that anything has, of fencing tokens: a day, and what the server's clock may be set back by, from five seconds
/// ahead to five behind.
const LONGEST: i64 = (24 * 60 * 60 + 11) * 1_000;

/// What stands on the server at one moment: the time, and for each name its expiry and what it has: one value, or members and scores.
const LOOK: &str = "
    local time, all = redis.call('TIME'), {}
    for _, name in ipairs(redis.call('KEYS', '*')) do
        local has = {}
        local kind = redis.call('TYPE', name).ok
        if kind == 'string' then
            has = {redis.call('GET', name)}
        elseif kind == 'zset' then
            has = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
        end
        all[#all + 1] = {name, redis.call('PTTL', name), has}
    end
    return {time[1] * 1000 + math.floor(time[2] / 1000), all}
";

/// A name on the server, its expiry in milliseconds, and what it has.
type Entry = (String, i64, Vec<String>);

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

async fn look(world: &World, connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let sent = now();
    let (time, entries): (i64, Vec<Entry>) = cmd("EVAL").arg(LOOK).arg(0).query_async(connection).await?;
    // The server has looked before this, so a lock ends no later than is counted from now.
    let now = now();
    let lines = entries.iter().flat_map(|entry| lines(entry, time, now));
    for line in std::iter::once(format!("looked {sent}")).chain(lines) {
        world.journal.note_at(now, "-", &line);
    }
    Ok(())
}

/// What there is to say of one name, where the server's clock and that of all processes say so.
fn lines((name, millis, has): &Entry, time: i64, now: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if !(0..=LONGEST).contains(millis) {
        lines.push(format!("endless {name} ({millis} ms)"));
    }
    let Some(key) = name.strip_prefix("lock:{").and_then(|name| name.strip_suffix('}')) else { return lines };
    let until = |millis: i64| now.saturating_add(nanos(Duration::from_millis(u64::try_from(millis + 1).unwrap_or(0))));
    let forever = |millis: i64| if millis < 0 { u64::MAX } else { until(millis) };
    let mut stands = |value: &str, until: u64| {
        // What follows the second slash says whether others wait.
        if let [token, owner, ..] = value.split('/').collect::<Vec<_>>()[..] {
            lines.push(format!("stands {key} {token} {owner} {until}"));
        }
    };
    match &has[..] {
        [value] => stands(value, forever(*millis)),
        shares => {
            for share in shares.chunks_exact(2) {
                #[allow(clippy::cast_possible_truncation, reason = "milliseconds")]
                let ends = share[1].parse().map_or(0, |score: f64| score as i64);
                // `r:<value>` or `p<permits>:<value>`; what has no colon is no share.
                if let Some((_, value)) = share[0].split_once(':') {
                    stands(value, until(ends - time));
                }
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, millis: i64, has: &[&str]) -> Vec<String> {
        lines(&(name.to_owned(), millis, has.iter().map(|part| (*part).to_owned()).collect()), 1_000, 5_000_000)
    }

    #[test]
    fn a_lock_stands_with_its_token_and_its_owner_whatever_sign_it_has() {
        for value in ["t/client-7", "t/client-7/", "t/client-7/+"] {
            assert_eq!(told("lock:{x:1}", 100, &[value]), ["stands x:1 t client-7 106000000"]);
        }
    }

    #[test]
    fn of_several_shares_each_has_its_own_end() {
        let has = ["r:t/client-7", "1099", "p3:u/client-8", "1049", "#3", "1000000000000003"];
        let lines = ["stands rw:1 t client-7 105000000", "stands rw:1 u client-8 55000000"];
        assert_eq!(told("lock:{rw:1}", 100, &has), lines);
    }

    #[test]
    fn whatever_has_no_end_is_told_of() {
        assert_eq!(told("lock:{x:1}:fence", -1, &["7"]), ["endless lock:{x:1}:fence (-1 ms)"]);
        assert_eq!(told("lock:{x:1}:line", 2 * LONGEST, &["a", "1"]).len(), 1);
        assert!(told("lock:{x:1}:fence", LONGEST, &["7"]).is_empty());
        let lines = ["endless lock:{x:1} (-1 ms)".to_owned(), format!("stands x:1 t client-7 {}", u64::MAX)];
        assert_eq!(told("lock:{x:1}", -1, &["t/client-7"]), lines);
    }
}
