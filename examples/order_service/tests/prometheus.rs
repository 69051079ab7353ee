//! A real Prometheus scrapes a running service, and is asked what the dashboard asks.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test says what broke"
)]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// For what takes a second or two; a machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Panels that are right to stay empty where a test can't be sure of what they show.
const MAY_BE_EMPTY: &[&str] = &[
    // Whether something is left behind, and whether a release goes unanswered, is a matter of a moment.
    "Reclaims, and releases without an answer",
];

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        let program = command.get_program().to_owned();
        Process(command.spawn().unwrap_or_else(|why| panic!("{}: {why}; see `cargo xtask needs`", program.display())))
    }

    /// Starts the service or its provider, and returns where it listens.
    fn of_ours(arguments: &[&str]) -> (Process, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_order-service"));
        let mut process = Process::start(command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()));
        let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let line = lines.next().expect("it ended before it listened").unwrap();
        let address = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected: {line}")).to_owned();
        // What it says later has to go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        (process, address)
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.0.id().cast_signed()).unwrap(), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Redis, the provider and one instance of the service.
struct Service {
    redis: Process,
    address: String,
    client: Client,
    _others: [Process; 2],
}

impl Service {
    /// A charge takes longer than the lease, so that there are renewals; and nobody waits long for a lock, so that it is found busy.
    fn start(folder: &Path) -> Service {
        let port = free_port().to_string();
        let mut redis = Command::new("redis-server");
        redis.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(folder).stdout(Stdio::null());
        let redis = Process::start(&mut redis);
        soon("Redis listens", || std::net::TcpStream::connect(format!("127.0.0.1:{port}")).ok());
        let (provider, provider_address) =
            Process::of_ours(&["provider", "--listen", "127.0.0.1:0", "--delay", "2s", "--failure-rate", "0"]);
        let database = format!("sqlite:{}", folder.join("orders.db").display());
        let redis_url = format!("redis://127.0.0.1:{port}");
        let (service, address) = Process::of_ours(&[
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--database",
            &database,
            "--redis",
            &redis_url,
            "--provider",
            &provider_address,
            "--ttl",
            "700ms",
            "--wait",
            "100ms",
        ]);
        Service { redis, address, client: Client::new(), _others: [provider, service] }
    }

    async fn create_order(&self) -> String {
        let url = format!("{}/orders", self.address);
        let order = self.client.post(url).json(&json!({ "amount": 1_200 })).send().await.unwrap();
        let order: Value = order.error_for_status().unwrap().json().await.unwrap();
        order["id"].as_str().unwrap().to_owned()
    }

    async fn pay(&self, order: &str, key: &str) -> u16 {
        let url = format!("{}/orders/{order}/pay", self.address);
        let paid = self.client.post(url).header("Idempotency-Key", format!("{order}-{key}")).send().await;
        paid.unwrap().status().as_u16()
    }

    /// An order that two devices pay for at once: one finds it busy.
    async fn pay_twice(&self) {
        let order = self.create_order().await;
        let (one, other) = tokio::join!(self.pay(&order, "phone"), self.pay(&order, "laptop"));
        let mut both = [one, other];
        both.sort_unstable();
        assert_eq!(both, [200, 409], "one pays, and the other finds the order busy");
    }

    /// A payment that loses its lock, since Redis stands still.
    async fn lose_a_lock(&self) {
        let order = self.create_order().await;
        let payment = self.pay(&order, "phone");
        let outage = async {
            soon_that("the payment holds its lock", async || (self.held().await >= 1.0).then_some(())).await;
            self.redis.send(Signal::STOP);
        };
        let (status, ()) = tokio::join!(payment, outage);
        assert_eq!(status, 503, "the lock is lost");
        // Asking for a lock fails, too.
        assert_eq!(self.pay(&self.create_order().await, "phone").await, 503);
        self.redis.send(Signal::CONT);
    }

    /// What `/metrics` says of locks that are held.
    async fn held(&self) -> f64 {
        let metrics = self.client.get(format!("{}/metrics", self.address)).send().await.unwrap();
        let metrics = metrics.text().await.unwrap();
        let held = metrics.lines().filter(|line| line.starts_with("distlock_held{"));
        held.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

struct Prometheus {
    address: String,
    client: Client,
    _process: Process,
}

impl Prometheus {
    async fn start(folder: &Path, target: &str) -> Prometheus {
        let config = json!({
            "global": { "scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "500ms" },
            "rule_files": [observability("prometheus/alerts.yml")],
            "scrape_configs": [{
                "job_name": "order-service",
                "static_configs": [{ "targets": [target.strip_prefix("http://").unwrap()] }],
            }],
        });
        // JSON is YAML, too.
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config.to_string()).unwrap();
        let listen = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
        command.arg(format!("--web.listen-address={listen}")).arg("--log.level=error");
        let process = Process::start(&mut command);
        let prometheus = Prometheus { address: format!("http://{listen}"), client: Client::new(), _process: process };
        soon_that("Prometheus has scraped the service", async || prometheus.has_data("up == 1").await.ok()).await;
        prometheus
    }

    async fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let url = format!("{}/api/v1/{path}", self.address);
        let answer = self.client.get(url).query(query).send().await.map_err(|error| error.to_string())?;
        let answer: Value = answer.json().await.map_err(|error| error.to_string())?;
        if answer["status"] == "success" { Ok(answer["data"].clone()) } else { Err(answer.to_string()) }
    }

    /// Whether there is a value that is a number; the quotient of nothing by nothing is none.
    async fn has_data(&self, query: &str) -> Result<(), String> {
        let data = self.get("query", &[("query", query)]).await?;
        let values = data["result"].as_array().ok_or("no result")?.iter();
        let mut numbers = values.filter_map(|series| series["value"][1].as_str()).filter(|value| *value != "NaN");
        numbers.next().map(|_| ()).ok_or_else(|| format!("no data: {data}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_query_of_the_dashboard_is_answered_by_a_real_prometheus() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    let prometheus = Prometheus::start(folder.path(), &service.address).await;
    // A rate needs a counter that is there, and grows.
    service.pay_twice().await;
    soon_that("the first payment is scraped", async || {
        prometheus.has_data(r#"distlock_acquires_total{result="acquired"}"#).await.ok()
    })
    .await;
    service.pay_twice().await;
    service.lose_a_lock().await;
    service.pay_twice().await;

    for (panel, query) in queries() {
        let mut last = Ok(());
        let begin = Instant::now();
        let answered = loop {
            let may_be_empty = MAY_BE_EMPTY.contains(&panel.as_str());
            match prometheus.has_data(&query).await {
                Ok(()) => break true,
                Err(why) if may_be_empty && why.starts_with("no data") => break true,
                Err(_) if begin.elapsed() > PATIENCE => break false,
                Err(why) => last = Err(why),
            }
            // Between two scrapes there is nothing new.
            tokio::time::sleep(Duration::from_millis(250)).await;
        };
        assert!(answered, "panel `{panel}`, query `{query}`: {last:?}");
    }

    let rules = prometheus.get("rules", &[]).await.unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() >= 4, "{rules:?}");
    assert!(rules.iter().all(|rule| rule["health"] == "ok"), "{rules:?}");
    let lost = r#"ALERTS{alertname="DistlockLockLost",reason="expired",alertstate="firing"}"#;
    soon_that("the lost lock is told", async || prometheus.has_data(lost).await.ok()).await;
}

#[test]
fn the_alert_rules_pass_their_tests() {
    for arguments in
        [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"], ["check", "config", "prometheus.yml"]]
    {
        let mut promtool = Command::new("promtool");
        let output = promtool.args(arguments).current_dir(observability("prometheus")).output();
        let output = output.unwrap_or_else(|why| panic!("promtool: {why}; see `cargo xtask needs`"));
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
    }
}

/// All queries of the dashboard with the panels that ask them, as Grafana would send them with everything chosen.
fn queries() -> Vec<(String, String)> {
    let dashboard = std::fs::read_to_string(observability("grafana/distlock.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] != "row");
    let queries: Vec<_> = panels
        .flat_map(|panel| {
            let title = panel["title"].as_str().unwrap();
            let targets = panel["targets"].as_array().unwrap().iter();
            targets.map(move |target| (title.to_owned(), filled_in(target["expr"].as_str().unwrap())))
        })
        .collect();
    assert!(queries.len() > 10, "the dashboard has lost its queries: {queries:?}");
    queries
}

fn filled_in(expression: &str) -> String {
    let values =
        [("$__rate_interval", "1m"), ("$__range", "30m"), ("$job", ".*"), ("$function", ".*"), ("$kind", ".*")];
    let filled = values.into_iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
    assert!(!filled.contains('$'), "an unknown variable in `{filled}`");
    filled
}

fn observability(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../observability").join(path).canonicalize().unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn soon<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        // Nobody tells when a server of others is up.
        std::thread::sleep(Duration::from_millis(20));
    }
}

async fn soon_that<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        // Neither the service nor Prometheus tells when there is something new.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
