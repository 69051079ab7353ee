//! What is drilled: three instances, a database that they share, a provider, and a Redis, all of one mode.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use order_service::Failure;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex as AsyncMutex;

use crate::customers::IMPATIENCE;
use crate::modes::Mode;
use crate::process::Process;

pub(crate) const INSTANCES: usize = 3;
/// Shorter than most charges take, so that a pause of a little more than a second ends a lease.
pub(crate) const TTL: Duration = Duration::from_secs(1);

/// The running processes, and how to reach them.
pub(crate) struct World {
    pub(crate) redis: AsyncMutex<Redis>,
    pub(crate) instances: Vec<AsyncMutex<Instance>>,
    addresses: Mutex<Vec<String>>,
    provider: String,
    client: reqwest::Client,
    _provider: Process,
}

/// A charge as the provider tells it.
#[derive(Debug, Deserialize)]
pub(crate) struct Charge {
    pub(crate) order: String,
}

impl World {
    pub(crate) async fn start(mode: Mode, folder: &Path) -> Result<World, Failure> {
        std::fs::create_dir_all(folder)?;
        let redis = Redis::start(folder).await?;
        let arguments = ["provider", "--delay", "400ms..1500ms", "--failure-rate", "0.1", "--lose-rate", "0.03"];
        let (process, provider) =
            Process::start(&arguments.map(str::to_owned), &folder.join("provider.log"), address).await?;
        let (mut instances, mut addresses) = (Vec::new(), Vec::new());
        for number in 0..INSTANCES {
            let mut instance = Instance::of(number, mode, folder, &redis, &provider);
            addresses.push(instance.start().await?);
            instances.push(AsyncMutex::new(instance));
        }
        let (redis, addresses) = (AsyncMutex::new(redis), Mutex::new(addresses));
        // No connection is used twice: one that is idle may lead to an instance that was killed.
        let client = reqwest::Client::builder().timeout(IMPATIENCE).pool_max_idle_per_host(0).no_proxy().build()?;
        Ok(World { redis, instances, addresses, provider, client, _provider: process })
    }

    /// The address of an instance, or of where it was when it was last up.
    pub(crate) fn address(&self, instance: usize) -> String {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.get(instance % INSTANCES).cloned().unwrap_or_default()
    }

    pub(crate) fn moved(&self, instance: usize, to: String) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = addresses.get_mut(instance) {
            *address = to;
        }
    }

    pub(crate) fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// All charges that the provider has made, in their order.
    pub(crate) async fn charges(&self) -> Result<Vec<Charge>, Failure> {
        self.get(format!("{}/charges", self.provider)).await
    }

    /// What the provider was asked for and has not decided yet: how many charges, by order.
    pub(crate) async fn under_way(&self) -> Result<BTreeMap<String, usize>, Failure> {
        self.get(format!("{}/under-way", self.provider)).await
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, url: String) -> Result<T, Failure> {
        Ok(self.client.get(url).send().await?.error_for_status()?.json().await?)
    }
}

/// One of the instances of the service.
pub(crate) struct Instance {
    arguments: Vec<String>,
    log: PathBuf,
    process: Option<Process>,
}

impl Instance {
    fn of(number: usize, mode: Mode, folder: &Path, redis: &Redis, provider: &str) -> Instance {
        let switch = |is_on| if is_on { "on" } else { "off" }.to_owned();
        let database = format!("sqlite:{}", folder.join("orders.db").display());
        let flags = [
            ("--listen", "127.0.0.1:0".to_owned()),
            ("--database", database),
            ("--redis", redis.url()),
            ("--provider", provider.to_owned()),
            ("--lock", switch(mode.lock)),
            ("--idempotency", switch(mode.idempotency)),
            ("--fencing", switch(mode.fencing)),
            ("--ttl", format!("{}ms", TTL.as_millis())),
            ("--wait", "1500ms".to_owned()),
            ("--provider-timeout", "2500ms".to_owned()),
            // More than the longest pause, which may come between the record and the request, and the longest charge. The
            // default would assume a slower network than there is here, and warns that this is less.
            ("--settle-after", "6s".to_owned()),
            ("--owner", format!("instance-{number}")),
        ];
        let flags = flags.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        let arguments = std::iter::once("serve".to_owned()).chain(flags).collect();
        Instance { arguments, log: folder.join(format!("instance-{number}.log")), process: None }
    }

    /// Starts it and returns its address.
    pub(crate) async fn start(&mut self) -> Result<String, Failure> {
        let (process, address) = Process::start(&self.arguments, &self.log, address).await?;
        self.process = Some(process);
        Ok(address)
    }

    pub(crate) fn process(&mut self) -> Result<&mut Process, Failure> {
        self.process.as_mut().ok_or_else(|| "the instance is not running".into())
    }
}

/// A Redis that keeps nothing.
pub(crate) struct Redis {
    port: u16,
    folder: PathBuf,
    pub(crate) process: Process,
}

impl Redis {
    async fn start(folder: &Path) -> Result<Redis, Failure> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        Ok(Redis { port, folder: folder.to_owned(), process: start_redis(port, folder).await? })
    }

    /// Starts it again on its port, empty.
    pub(crate) async fn start_again(&mut self) -> Result<(), Failure> {
        self.process = start_redis(self.port, &self.folder).await?;
        Ok(())
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }
}

async fn start_redis(port: u16, folder: &Path) -> Result<Process, Failure> {
    let (port, dir) = (port.to_string(), folder.display().to_string());
    let arguments =
        ["redis", "--port", &port, "--bind", "127.0.0.1", "--dir", &dir, "--save", "", "--appendonly", "no"];
    let ready = |line: &str| line.contains("Ready to accept connections").then_some(());
    let (process, ()) = Process::start(&arguments.map(str::to_owned), &folder.join("redis.log"), ready).await?;
    Ok(process)
}

fn address(line: &str) -> Option<String> {
    line.strip_prefix("listening on ").map(|address| address.trim().to_owned())
}
