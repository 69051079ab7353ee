//! A Postgres of the tests' own: one cluster for all that run at a time, a database for each.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak};

use tokio::sync::Mutex;

use super::process::{end, start, tied};
use super::{eventually, free_port};

static RUNNING: Mutex<Weak<Cluster>> = Mutex::const_new(Weak::new());

/// A database; the cluster ends with the last of them.
pub(crate) struct Postgres {
    cluster: Arc<Cluster>,
    name: String,
}

struct Cluster {
    port: u16,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Postgres {
    pub(crate) async fn start() -> Postgres {
        let cluster = {
            let mut running = RUNNING.lock().await;
            if let Some(cluster) = running.upgrade() {
                cluster
            } else {
                let cluster = Arc::new(Cluster::start().await);
                *running = Arc::downgrade(&cluster);
                cluster
            }
        };
        let name = format!("orders_{}", uuid::Uuid::new_v4().simple());
        cluster.run(&format!("CREATE DATABASE {name}")).await.unwrap();
        Postgres { cluster, name }
    }

    pub(crate) fn url(&self) -> String {
        self.cluster.url(&self.name)
    }
}

impl Cluster {
    async fn start() -> Cluster {
        // Somebody may take the port between our look and the server's.
        for _ in 0..5 {
            let folder = tempfile::Builder::new().prefix("orders-pg-").tempdir().unwrap();
            let port = free_port();
            let child = tokio::task::spawn_blocking({
                let folder = folder.path().to_owned();
                move || launch(&folder, port)
            });
            let mut cluster = Cluster { port, child: child.await.unwrap(), _folder: folder };
            if cluster.comes_up().await {
                return cluster;
            }
        }
        panic!("postgres ends at once, five times");
    }

    async fn comes_up(&mut self) -> bool {
        eventually("postgres answers", async || {
            if self.child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            self.run("SELECT 1").await.ok().map(|()| true)
        })
        .await
    }

    async fn run(&self, sql: &str) -> sqlx::Result<()> {
        use sqlx::Connection as _;
        sqlx::any::install_default_drivers();
        let mut connection = sqlx::AnyConnection::connect(&self.url("postgres")).await?;
        sqlx::raw_sql(sql).execute(&mut connection).await?;
        connection.close().await
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Makes a cluster in the folder and starts its server, as a user who is not root, since for root Postgres refuses.
fn launch(folder: &Path, port: u16) -> Child {
    let is_root = id(&["-u"]) == 0;
    let as_postgres: &[&str] =
        if is_root { &["--reuid", "postgres", "--regid", "postgres", "--clear-groups"] } else { &[] };
    if is_root {
        chown(folder, Some(id(&["-u", "postgres"])), Some(id(&["-g", "postgres"]))).unwrap();
    }
    let (programs, data) = (programs(), folder.join("data"));
    let mut make = tied(as_postgres, programs.join("initdb"));
    make.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--pgdata"]);
    let mut make = start({
        make.arg(&data).current_dir(folder).stdout(Stdio::null());
        make
    });
    assert!(make.wait().unwrap().success(), "initdb failed");

    let mut serve = tied(as_postgres, programs.join("postgres"));
    serve.arg("-D").arg(&data).args(["-p", &port.to_string(), "-k"]).arg(folder);
    // What a crash of the machine would do to the tables is of no interest here.
    for setting in ["listen_addresses=127.0.0.1", "fsync=off", "max_connections=300"] {
        serve.args(["-c", setting]);
    }
    start({
        serve.current_dir(folder).stdout(Stdio::null()).stderr(std::fs::File::create(folder.join("log")).unwrap());
        serve
    })
}

/// Debian keeps the programs of a server apart by version.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("no postgresql (`cargo xtask needs` installs it)");
    let mut folders: Vec<_> = versions.flatten().map(|version| version.path().join("bin")).collect();
    folders.retain(|folder| folder.join("initdb").exists());
    folders.sort();
    folders.pop().expect("no initdb under /usr/lib/postgresql")
}

fn id(arguments: &[&str]) -> u32 {
    let output = Command::new("id").args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().expect("there is no user postgres")
}
