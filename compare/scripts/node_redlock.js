// node-redlock as a party of `cargo xtask compare`: see ../src/party.rs for what it is told and what it answers.
//
// It advises one ioredis client for each server, and one Redlock over them; ioredis sets TCP_NODELAY by itself. Versions 4 and 5
// differ in names: `lock` and `unlock` became `acquire` and `release`, and `using` came, which renews.
"use strict";

const readline = require("readline");
const Redis = require("ioredis");
const module_ = require("redlock");

const Client = Redis.default || Redis;
const Redlock = module_.default || module_;
const [, , , , , ttlText, ...urls] = process.argv;
const ttl = Number(ttlText);
const clients = urls.map((url) => new Client(url));
// A frozen server gives no answer, for which ioredis would wait for ever, and redlock with it.
if (urls.length > 1) clients.forEach((client) => (client.options.commandTimeout = 1000));
// Polls every millisecond, without end, as the other contenders that poll; by default it waits 200 ms, ten times.
const redlock = new Redlock(clients, { retryCount: -1, retryDelay: 1, retryJitter: 1 });
// What is held is renewed with its defaults: with tries without end, a lock that is lost would be extended for ever.
const keeper = new Redlock(clients);
for (const each of [redlock, keeper]) for (const event of ["error", "clientError"]) each.on(event, () => {});

const isNew = typeof redlock.using === "function";
const acquire = (key) => (isNew ? redlock.acquire([key], ttl) : redlock.lock(key, ttl));
const release = (lock) => (isNew ? lock.release() : lock.unlock());
const sleep = (millis) => new Promise((wake) => setTimeout(wake, millis));
const now = () => process.hrtime.bigint();
const micros = (begin) => Number(now() - begin) / 1000;
const together = (tasks, work) => Promise.all(Array.from({ length: tasks }, (_, task) => work(task)));

async function cycle(task) {
  await release(await acquire(`order:${task}`));
}

async function cycles(tasks, count) {
  const begin = now();
  await together(tasks, async (task) => {
    for (let at = 0; at < count; at++) await cycle(task);
  });
  return String(now() - begin);
}

async function latencies(tasks, count) {
  const all = await together(tasks, async (task) => {
    const times = [];
    for (let at = 0; at < count; at++) {
      const begin = now();
      await cycle(task);
      times.push(micros(begin).toFixed(1));
    }
    return times;
  });
  return all.flat().join(" ");
}

async function turns(tasks, millis, key) {
  const end = now() + BigInt(millis) * 1000000n;
  const all = await together(tasks, async () => {
    const waits = [];
    while (now() < end) {
      const asked = now();
      const pending = acquire(key);
      const late = Symbol("late");
      const lock = await Promise.race([pending, sleep(Number(end - asked) / 1e6).then(() => late)]);
      if (lock === late) {
        // What comes after the end is given back.
        pending.then(release).catch(() => {});
        return [String(Math.round(micros(asked))), ...waits];
      }
      waits.push(String(Math.round(micros(asked))));
      await sleep(1);
      await release(lock);
      await sleep(1);
    }
    return ["-", ...waits];
  });
  return all.map((line) => line.join(" ")).join(";");
}

let holding;

async function hold(count) {
  if (!isNew) return `can't: no renewal in this version; version 5 has it`;
  let [held, lost, end] = [0, 0, undefined];
  const over = new Promise((resolve) => (end = resolve));
  const holders = [];
  for (let id = 0; id < count; id++) {
    const routine = async (signal) => {
      held++;
      await over;
      if (signal.aborted) throw signal.error;
    };
    holders.push(keeper.using([`held:${id}`], ttl, routine).catch(() => lost++));
    if (id % 100 === 99) await sleep(10);
  }
  const begin = now();
  while (held < count && micros(begin) < 20e6) await sleep(1);
  holding = async () => {
    end();
    await Promise.all(holders);
    return String(lost);
  };
  return String(held);
}

function cpu() {
  const { user, system } = process.cpuUsage();
  return String((user + system) / 1e6);
}

async function answer(line) {
  const [command, ...words] = line.split(" ");
  if (command === "cycles") return cycles(Number(words[0]), Number(words[1]));
  if (command === "latencies") return latencies(Number(words[0]), Number(words[1]));
  if (command === "turns") return turns(Number(words[0]), Number(words[1]), words[2]);
  if (command === "hold") return hold(Number(words[0]));
  if (command === "cpu") return cpu();
  if (command === "drop") return holding();
  return "can't: there is no such thing";
}

async function main() {
  await Promise.all(clients.map((client) => client.ping()));
  console.log("ready");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(await answer(line));
  }
  process.exit(0);
}

main();
