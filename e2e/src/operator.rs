//! The operator as a plain process, with the account that the chart gives it: where no pod runs, and where a test ends
//! and restarts it at will. Needs no root and no helm.

mod account;

use std::{
    env,
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use serde_json::json;
use tokio::process::{Child, Command};

use crate::namespace::Namespace;
pub use account::{Account, crd};

/// For the process to list everything, or to end.
const LIMIT: Duration = Duration::from_mins(1);
const TICK: Duration = Duration::from_millis(50);

/// An operator, running or not. Its store, its addresses and its account stay over restarts. It is killed when dropped.
pub struct Operator {
    program: PathBuf,
    /// Kubeconfig, store, scratch, hooks, log.
    dir: PathBuf,
    server: String,
    account: Account,
    ports: [u16; 3],
    env: Vec<(String, String)>,
    child: Option<Child>,
}

impl Operator {
    /// Of the account, for the API server at this address ([`Account::server`], or that of a proxy before it), with everything it keeps
    /// below `dir`. It watches the whole cluster when the account may, else the account's namespace, and is not started.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn new(account: &Account, server: &str, dir: &Path) -> anyhow::Result<Self> {
        let mut operator = Self {
            program: binary("ramen-operator")?,
            dir: dir.to_owned(),
            server: server.to_owned(),
            account: account.clone(),
            ports: free_ports()?,
            env: Vec::new(),
            child: None,
        };
        if !account.cluster_wide {
            operator.set("RAMEN_OPERATOR_NAMESPACES", &account.namespace);
        }
        operator.set("RAMEN_OPERATOR_NAMESPACE", &account.namespace);
        operator.set("RAMEN_OPERATOR_IDENTITY", "one");
        operator.set("RAMEN_OPERATOR_ALLOW_HTTP", "1");
        fs::create_dir_all(operator.hooks_dir())?;
        Ok(operator)
    }

    /// Sets a variable for starts from now on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Another replica: same account, same store, a name and addresses of its own.
    ///
    /// # Errors
    /// When there are no free ports.
    pub fn replica(&self, identity: &str) -> anyhow::Result<Self> {
        let mut env = self.env.clone();
        env.retain(|(name, _)| name != "RAMEN_OPERATOR_IDENTITY");
        env.push(("RAMEN_OPERATOR_IDENTITY".to_owned(), identity.to_owned()));
        Ok(Self {
            program: self.program.clone(),
            dir: self.dir.clone(),
            server: self.server.clone(),
            account: self.account.clone(),
            ports: free_ports()?,
            env,
            child: None,
        })
    }

    /// From its next start on it reaches the API server at this address.
    pub fn reaches(&mut self, server: &str) {
        server.clone_into(&mut self.server);
    }

    /// Starts it.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let config = self.dir.join(format!("kubeconfig-{}", self.ports[0]));
        fs::write(&config, kubeconfig(&self.account, &self.server).to_string())?;
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.log_file())?;
        let listen = |port: u16| format!("0.0.0.0:{port}");
        let [pages, artifacts, hooks] = self.ports;
        let child = Command::new(&self.program)
            .env("KUBECONFIG", &config)
            .env("RAMEN_OPERATOR_LISTEN", listen(pages))
            .env("RAMEN_OPERATOR_ARTIFACTS_LISTEN", listen(artifacts))
            .env("RAMEN_OPERATOR_ARTIFACTS_URL", self.artifacts_url())
            .env("RAMEN_OPERATOR_HOOKS_LISTEN", listen(hooks))
            .env("RAMEN_OPERATOR_HOOKS_DIR", self.hooks_dir())
            .env("RAMEN_OPERATOR_STORE", self.dir.join("store"))
            .env("RAMEN_OPERATOR_SCRATCH", self.dir.join("scratch"))
            .env("RAMEN_OPERATOR_LOG", "info,ramen_operator=debug")
            .env("RAMEN_OPERATOR_LOG_FORMAT", "text")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", self.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Starts it and waits until it has listed everything.
    ///
    /// # Errors
    /// When it ends before, or takes longer than a minute.
    pub async fn up(&mut self) -> anyhow::Result<()> {
        self.start()?;
        self.ready().await
    }

    /// Waits until it has listed everything.
    ///
    /// # Errors
    /// When it ends before, or takes longer than a minute.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let end = tokio::time::Instant::now() + LIMIT;
        loop {
            if let Some(child) = &mut self.child
                && let Some(status) = child.try_wait()?
            {
                bail!("the operator ended: {status}");
            }
            if self.page("/readyz").await.is_ok() {
                return Ok(());
            }
            if tokio::time::Instant::now() > end {
                bail!("the operator is not ready after {LIMIT:?}");
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// A page of it that answers 200.
    ///
    /// # Errors
    /// When it answers anything else, or not at all.
    pub async fn page(&self, path: &str) -> anyhow::Result<String> {
        let url = format!("http://127.0.0.1:{}{path}", self.ports[0]);
        crate::http::get(&url).await
    }

    /// The value of a metric: the sum over its labels; `None` when there is none of that name.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        Ok(sum(&self.page("/metrics").await?, name))
    }

    /// What [`Operator::metric`] gives for each name, of one page; 0 for those that it does not know yet.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn metrics<const N: usize>(&self, names: [&str; N]) -> anyhow::Result<[f64; N]> {
        let page = self.page("/metrics").await?;
        Ok(names.map(|name| sum(&page, name).unwrap_or_default()))
    }

    /// Where pods reach its artifact endpoint.
    pub fn artifacts_url(&self) -> String {
        // The node's address, which does not lead out of the cluster's namespaces; loopback outside of them.
        let host = if env::var_os("RAMEN_CLUSTER").is_some() {
            "10.0.0.1"
        } else {
            "127.0.0.1"
        };
        format!("http://{host}:{}", self.ports[1])
    }

    /// Its webhook receiver.
    pub fn hooks_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1/hooks", self.ports[2])
    }

    /// Where receivers lie: files `<receiver>.<sender>`.
    pub fn hooks_dir(&self) -> PathBuf {
        self.dir.join("hooks")
    }

    /// Its artifact store.
    pub fn store_dir(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// Whether it runs now; it may have ended by itself.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn runs(&mut self) -> anyhow::Result<bool> {
        match &mut self.child {
            Some(child) => Ok(child.try_wait()?.is_none()),
            None => Ok(false),
        }
    }

    /// The process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// SIGKILL: nothing is tidied up.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let mut child = self.child.take().context("the operator does not run")?;
        child.kill().await.context("killing the operator")
    }

    /// SIGTERM; gives whether it ended well.
    ///
    /// # Errors
    /// When it does not run, or does not end within a minute.
    pub async fn stop(&mut self) -> anyhow::Result<bool> {
        let mut child = self.child.take().context("the operator does not run")?;
        signal(&child, "TERM")?;
        let ended = tokio::time::timeout(LIMIT, child.wait()).await;
        Ok(ended.context("the operator does not end")??.success())
    }

    /// Waits until it ends by itself; gives whether well.
    ///
    /// # Errors
    /// When it does not run, or does not end within a minute.
    pub async fn ended(&mut self) -> anyhow::Result<bool> {
        let mut child = self.child.take().context("the operator does not run")?;
        let ended = tokio::time::timeout(LIMIT, child.wait()).await;
        Ok(ended.context("the operator does not end")??.success())
    }

    /// What it said since its first start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join(format!("operator-{}.log", self.ports[0]))
    }
}

/// A kubeconfig of an account, for the API server at this address.
pub(crate) fn kubeconfig(account: &Account, server: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "clusters": [{ "name": "it", "cluster": {
            // Not looked at when the server is a proxy without TLS.
            "server": server, "certificate-authority-data": account.authority,
        }}],
        "users": [{ "name": "it", "user": { "token": account.token } }],
        "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
    })
}

/// Sends a signal to a process that was started here.
pub(crate) fn signal(child: &Child, signal: &str) -> anyhow::Result<()> {
    let pid = child.id().context("the process has ended")?;
    let sent = std::process::Command::new("kill")
        .args([format!("-{signal}"), pid.to_string()])
        .status()?;
    anyhow::ensure!(sent.success(), "kill -{signal} {pid}: {sent}");
    Ok(())
}

/// A program that `make build` has built.
pub(crate) fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let built = env::var_os("RAMEN_BIN_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/debug"),
        PathBuf::from,
    );
    let program = built.join(name);
    anyhow::ensure!(
        program.exists(),
        "{} is not built (make build)",
        program.display()
    );
    Ok(program)
}

/// A port that nobody listens on now, and that stays free while its server is down: below those that the system gives to
/// connections, and locked against other tests until this process ends. Two tests begin to look at different places.
///
/// # Errors
/// When none of a thousand is free.
pub fn port() -> anyhow::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let dir = env::var_os("RAMEN_CLUSTER_DIR").map_or_else(env::temp_dir, PathBuf::from);
    let dir = dir.join("ramen-ports");
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let own = u16::try_from(std::process::id() * 32 % 20_000)?;
    for _ in 0..1000 {
        let port = 10_000 + (own + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let lock = dir.join(port.to_string());
        let lock =
            File::create(&lock).with_context(|| format!("cannot make {}", lock.display()))?;
        if lock.try_lock().is_ok() && TcpListener::bind(("0.0.0.0", port)).is_ok() {
            let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
            locks.push(lock);
            return Ok(port);
        }
    }
    bail!("no port is free")
}

fn free_ports() -> anyhow::Result<[u16; 3]> {
    Ok([port()?, port()?, port()?])
}

impl Namespace {
    /// The rules of the chart in this namespace alone; see [`Account`].
    ///
    /// # Errors
    /// When the API server refuses them.
    pub async fn operator_account(&self) -> anyhow::Result<Account> {
        Account::new(self, false).await
    }
}

/// The sum of a page's series of one name.
fn sum(page: &str, name: &str) -> Option<f64> {
    let mut lines = page.lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let value = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    let first = lines.next().and_then(value);
    first.map(|first| first + lines.filter_map(value).sum::<f64>())
}
