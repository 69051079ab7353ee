"""redis-py as a party of `cargo xtask compare`: see ../src/party.rs for what it is told and what it answers.

redis-py advises `Redis.lock`, with one client for all threads, whose pool gives each a connection of its own, which has TCP_NODELAY.
`thread_local=False` spares the lock a look at the thread. It renews nothing by itself.
"""

import sys
import threading
import time

import redis

_, _, _, _, ttl, url = sys.argv[:6]
client = redis.Redis.from_url(url)
ttl = int(ttl) / 1000


def lock(key, sleep=0.1):
    return client.lock(key, timeout=ttl, sleep=sleep, thread_local=False)


def cycle(task):
    held = lock(f"order:{task}")
    assert held.acquire()
    held.release()


def together(tasks, work):
    """Runs `work` in as many threads, or in this one, and returns what each returned."""
    if tasks == 1:
        return [work(0)]
    results = [None] * tasks

    def run(task):
        results[task] = work(task)

    threads = [threading.Thread(target=run, args=(task,)) for task in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def cycles(tasks, count):
    def work(task):
        for _ in range(count):
            cycle(task)

    begin = time.perf_counter_ns()
    together(tasks, work)
    return str(time.perf_counter_ns() - begin)


def turns(tasks, millis, key):
    end = time.perf_counter() + millis / 1000

    def work(_):
        waits = []
        while (asked := time.perf_counter()) < end:
            # Polls every millisecond, as the other contenders that poll; by default it waits 100 ms.
            held = lock(key, sleep=0.001)
            if not held.acquire(blocking_timeout=end - asked):
                return [time.perf_counter() - asked] + waits
            waits.append(time.perf_counter() - asked)
            time.sleep(0.001)
            held.release()
            time.sleep(0.001)
        return [None] + waits

    def micros(wait):
        return "-" if wait is None else str(int(wait * 1e6))

    return ";".join(" ".join(map(micros, line)) for line in together(tasks, work))


print("ready", flush=True)
for line in sys.stdin:
    command, *words = line.split()
    if command == "cycles":
        answer = cycles(int(words[0]), int(words[1]))
    elif command == "turns":
        answer = turns(int(words[0]), int(words[1]), words[2])
    else:
        answer = "can't: redis-py has no such thing"
    print(answer, flush=True)
