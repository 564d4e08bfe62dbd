//! `ramen-worker serve`: puts the parts together, and takes them apart on SIGTERM.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ramen_listener::{Tls, TlsError, serve_metrics, tls};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::config::{Config, ServeArgs};
use crate::desired::Follower;
use crate::gate::{Door, DoorFiles, Gate, InFlight, watch_keys};
use crate::generation::{Manager, Setting};
use crate::hosts::{LoadLimits, Memory};
use crate::listener;
use crate::metrics::Metrics;
use crate::service::{self, Front};
use crate::telemetry;

/// How long the answers of calls that were cut off may take to be sent, at most: it is over when all are.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// Threads for files and scans. Each has memory of its own in the allocator, which a reload must not
/// leave spread over many.
const BLOCKING_THREADS: usize = 4;

/// Why the worker does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A port cannot be opened.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// TLS cannot be offered.
    #[error("TLS is not possible")]
    Tls(#[source] TlsError),
    /// The address file cannot be written.
    #[error("cannot write {path}")]
    AddressFile {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A worker that runs.
pub struct Worker {
    /// Where the gRPC services are.
    pub grpc: SocketAddr,
    /// Where `/metrics` is.
    pub metrics: Option<SocketAddr>,
    manager: Arc<Manager>,
    gate: Arc<Gate>,
    stopping: watch::Sender<bool>,
    look: Arc<Notify>,
    look_at_desired: Arc<Notify>,
    tls: Option<Arc<Tls>>,
    drain: Duration,
    serving: JoinHandle<()>,
    helpers: Vec<JoinHandle<()>>,
}

impl Worker {
    /// Opens the ports and begins to serve. Revisions load in the background.
    #[expect(
        clippy::too_many_lines,
        reason = "takes the configuration apart and hands it on"
    )]
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let Config {
            listen,
            metrics_listen,
            group,
            zone,
            keys,
            admin_keys,
            gateway_keys,
            admin_ranges,
            ranges,
            address,
            max_inflight,
            max_connections,
            call_timeout,
            hosts,
            host_threads,
            host_max_rss,
            host_max_calls,
            hosts_memory_mib,
            import_timeout,
            host_env,
            store,
            cache_dir,
            desired,
            host_dir,
            tls,
            reflection,
            log: _,
            drain,
            address_file,
            secrets,
        } = config;
        let tls = match tls {
            None => None,
            Some((cert, key)) => Some(Arc::new(
                Tls::read(cert, key, tls::H2).map_err(StartError::Tls)?,
            )),
        };
        let gate = Arc::new(Gate {
            mcp: Door::new(ranges),
            admin: Door::new(admin_ranges),
            address,
            in_flight: InFlight::new(max_inflight),
        });
        let metrics = Metrics::new();
        let zone = zone.unwrap_or_default();
        let memory = Memory::new(hosts_memory_mib);
        let hosts_memory_mib = memory.budget_mib();
        tracing::info!(
            group,
            zone,
            hosts,
            host_threads,
            hosts_memory_mib,
            max_inflight,
            "starting"
        );
        let setting = Setting {
            group,
            store,
            cache_dir,
            desired: desired.clone(),
            host_dir,
            hosts,
            host_threads,
            host_max_rss,
            host_max_calls,
            host_env,
            call_timeout,
            drain,
            limits: LoadLimits::of_package(import_timeout),
            memory,
            secrets,
        };
        let manager = Manager::new(setting, Arc::clone(&metrics));
        let (stopping_in, stopping) = watch::channel(false);
        let front = Arc::new(Front {
            gate: Arc::clone(&gate),
            manager: Arc::clone(&manager),
            metrics: Arc::clone(&metrics),
            stopping,
        });

        let (grpc, grpc_address) = open(listen).await?;
        let mut helpers = Vec::new();
        let mut metrics_address = None;
        if let Some(address) = metrics_listen {
            let (listener, address) = open(address).await?;
            metrics_address = Some(address);
            let (front, tls) = (Arc::clone(&front), tls.clone());
            let text = move || {
                let stale = tls.as_ref().is_some_and(|tls| tls.is_stale());
                front.metrics.certificate_stale.set(stale.into());
                front.metrics_text()
            };
            helpers.push(tokio::spawn(serve_metrics(listener, text)));
        }
        let (look, look_at_desired) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        // The keys are there before the first call can be.
        let files = DoorFiles {
            mcp: keys,
            gateway: gateway_keys,
            admin: admin_keys,
        };
        files.open(&gate);
        helpers.push(tokio::spawn(watch_keys(
            Arc::clone(&gate),
            files,
            Arc::clone(&look),
        )));
        if let Some(file) = desired {
            let (manager, look) = (Arc::clone(&manager), Arc::clone(&look_at_desired));
            helpers.push(tokio::spawn(Follower::new(manager, file).run(look)));
        }
        let routes = service::routes(&front, reflection);
        let serving = tokio::spawn(listener::serve(
            grpc,
            front,
            routes,
            tls.clone(),
            max_connections,
        ));
        if let Some(file) = address_file {
            write_addresses(&file, grpc_address, metrics_address).map_err(|source| {
                StartError::AddressFile {
                    path: file.display().to_string(),
                    source,
                }
            })?;
        }
        let metrics = metrics_address.map(tracing::field::display);
        tracing::info!(grpc = %grpc_address, metrics, "listening");
        Ok(Self {
            grpc: grpc_address,
            metrics: metrics_address,
            manager,
            gate,
            stopping: stopping_in,
            look,
            look_at_desired,
            tls,
            drain,
            serving,
            helpers,
        })
    }

    /// The revisions.
    pub fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    /// Reads keys, certificate and desired state again.
    pub fn refresh(&self) {
        self.look.notify_one();
        self.look_at_desired.notify_one();
        if let Some(tls) = &self.tls
            && let Err(error) = tls.renew()
        {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the old certificate stays"
            );
        }
    }

    /// Not serving any more, no new connections; calls in flight get their answers, as far as the
    /// drain time allows.
    pub async fn stop(self) {
        let Self {
            manager,
            gate,
            stopping,
            drain,
            mut serving,
            helpers,
            ..
        } = self;
        manager.stop_serving();
        stopping.send_replace(true);
        let calls = gate.in_flight.taken();
        tracing::info!(calls, drain_secs = drain.as_secs(), "stopping");
        let drained = async {
            // First the calls, then the connections that carry their answers.
            gate.in_flight.empty().await;
            let _ = (&mut serving).await;
        };
        if tokio::time::timeout(drain, drained).await.is_err() {
            tracing::warn!(calls = gate.in_flight.taken(), "the drain time is over");
            // The calls that are left lose their hosts; their callers are told so.
            manager.end().await;
            let _ = tokio::time::timeout(LAST_ANSWERS, &mut serving).await;
        }
        serving.abort();
        for helper in helpers {
            helper.abort();
        }
        manager.end().await;
        tracing::info!("stopped");
    }
}

async fn open(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

fn write_addresses(file: &Path, grpc: SocketAddr, metrics: Option<SocketAddr>) -> io::Result<()> {
    let text = serde_json::json!({
        "grpc": grpc.to_string(),
        "metrics": metrics.map(|address| address.to_string()),
        "pid": std::process::id(),
    });
    let folder = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let temporary = tempfile::Builder::new().tempfile_in(folder.unwrap_or(Path::new(".")))?;
    fs::write(temporary.path(), format!("{text}\n"))?;
    temporary.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// Lets the threads take memory from few heaps, not each from one of its own: a reload touches all
/// threads in turn, and each heap would keep its own pieces of every generation.
fn share_memory() {
    #[cfg(target_env = "gnu")]
    {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let heaps = i32::try_from(cores / 2).unwrap_or(i32::MAX).max(1);
        // SAFETY: may be called at any time, by any thread.
        #[expect(unsafe_code, reason = "the C library is told so only here")]
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, heaps);
        }
    }
}

/// Runs `serve` until it is told to stop.
#[must_use]
pub fn run(args: ServeArgs) -> ExitCode {
    let config = match Config::read(args) {
        Ok(config) => config,
        Err(faults) => {
            eprintln!("{faults}");
            return ExitCode::from(2);
        }
    };
    share_memory();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(serve(config));
            // Nothing that still runs may hold up the end.
            runtime.shutdown_timeout(Duration::from_millis(200));
            code
        }
        Err(error) => {
            eprintln!("cannot start the runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(config: Config) -> ExitCode {
    let telemetry = telemetry::start(&config.log);
    let signals = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
        signal(SignalKind::hangup()),
    );
    let (Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)) = signals else {
        tracing::error!("signals cannot be handled");
        return ExitCode::FAILURE;
    };
    let worker = match Worker::start(config).await {
        Ok(worker) => worker,
        Err(error) => {
            let text = ramen_redact::chain(&error);
            tracing::error!(error = text, "cannot start");
            return ExitCode::FAILURE;
        }
    };
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => worker.refresh(),
        }
    }
    worker.stop().await;
    telemetry.stop();
    ExitCode::SUCCESS
}
