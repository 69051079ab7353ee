"""redis-py as a party of `cargo xtask compare`: see ../src/party.rs for what it is told and what it answers.

redis-py advises `Redis.lock`. One task uses the ordinary client, which is the faster one for it. Many use the one for asyncio: as many
threads take more than twice as long, since they wait for the interpreter. Both set TCP_NODELAY, and give each command
that is under way a connection of its own. It renews nothing by itself.
"""

import asyncio
import sys
import time

import redis
import redis.asyncio

_, _, _, threads, ttl, url = sys.argv[:6]
alone = threads == "1"
client = (redis.Redis if alone else redis.asyncio.Redis).from_url(url)
ttl = int(ttl) / 1000


def lock(key, sleep=0.1):
    # Without `thread_local` the lock needn't look at the thread.
    return client.lock(key, timeout=ttl, sleep=sleep, thread_local=False)


def cycles_alone(count):
    for _ in range(count):
        held = lock("order:0")
        assert held.acquire()
        held.release()


async def cycles_of(task, count):
    for _ in range(count):
        held = lock(f"order:{task}")
        assert await held.acquire()
        await held.release()


async def cycles(tasks, count):
    begin = time.perf_counter_ns()
    if alone:
        cycles_alone(count)
    else:
        await asyncio.gather(*(cycles_of(task, count) for task in range(tasks)))
    return str(time.perf_counter_ns() - begin)


async def turns_of(key, end):
    waits = []
    while (asked := time.perf_counter()) < end:
        # Polls every millisecond, as the other contenders that poll; by default it waits 100 ms.
        held = lock(key, sleep=0.001)
        if not await held.acquire(blocking_timeout=end - asked):
            return [time.perf_counter() - asked] + waits
        waits.append(time.perf_counter() - asked)
        await asyncio.sleep(0.001)
        await held.release()
        await asyncio.sleep(0.001)
    return [None] + waits


async def turns(tasks, millis, key):
    def micros(wait):
        return "-" if wait is None else str(int(wait * 1e6))

    end = time.perf_counter() + millis / 1000
    lines = await asyncio.gather(*(turns_of(key, end) for _ in range(tasks)))
    return ";".join(" ".join(map(micros, line)) for line in lines)


async def main():
    print("ready", flush=True)
    for line in sys.stdin:
        command, *words = line.split()
        if command == "cycles":
            answer = await cycles(int(words[0]), int(words[1]))
        elif command == "turns":
            answer = await turns(int(words[0]), int(words[1]), words[2])
        else:
            answer = "can't: redis-py has no such thing"
        print(answer, flush=True)


asyncio.run(main())
