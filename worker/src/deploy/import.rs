//! Importing every package in a real host, so that what is wrong is found before anyone calls it.
//!
//! A package that hangs or ends the process is put down to its name; the host is started again
//! without it. What the host says of the others (exceptions, callables, signatures) becomes
//! findings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ramen_group::{Finding, Reason};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::hosts::{
    Death, EndCause, HostError, HostProcess, HostSpec, Load, LoadLimits, LoadPackage, LoadReport,
    OutputLine,
};

use super::log::RunLog;
use super::progress::{Phase, Progress};

/// How long a host may take before it begins to import.
const START: Duration = Duration::from_secs(20);
/// In place of a package: what is printed while packages are imported comes through another pipe
/// than the news of who is imported, so that it cannot be put down to one. (A line that is read late
/// may for the same reason carry the name of the first golden call: names in the log are a hint.)
const IMPORTING: u32 = u32::MAX;
/// How long the output of a host that ended is waited for.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Starts hosts with the packages of one revision.
pub(crate) struct Importer {
    pub(crate) spec: HostSpec,
    /// Everything but the packages to leave out.
    pub(crate) load: Load,
    pub(crate) import_timeout: Duration,
    pub(crate) deadline: Instant,
    pub(crate) log: RunLog,
    pub(crate) progress: Progress,
}

/// What came of importing.
#[derive(Default)]
pub(crate) struct Imported {
    /// The host, with all packages loaded that can be.
    pub(crate) host: Option<HostProcess>,
    /// What is wrong, by package.
    pub(crate) failed: BTreeMap<u32, Finding>,
    /// What is wrong with the host as a whole.
    pub(crate) fatal: Option<Finding>,
    /// Remarks.
    pub(crate) warnings: Vec<Finding>,
}

impl Importer {
    /// Forwards what hosts print to the log. Awaited after the last host ended.
    pub(crate) fn listen(&mut self) -> Listener {
        let (sender, receiver) = mpsc::channel(1024);
        let running = Arc::new(AtomicU32::new(IMPORTING));
        self.spec.output = Some(sender);
        let names = self
            .load
            .packages
            .iter()
            .map(|package| (package.id, package.dir.clone()));
        let task = forward(
            receiver,
            self.log.clone(),
            names.collect(),
            Arc::clone(&running),
        );
        Listener {
            task: tokio::spawn(task),
            running,
        }
    }

    /// Imports all packages, as often as it takes to leave out those that end or hang the host.
    pub(crate) async fn import(&self, listener: &Listener) -> Imported {
        let mut imported = Imported::default();
        loop {
            let (host, result, last) = match self.start(&imported.failed, listener).await {
                Ok(started) => started,
                Err(error) => {
                    imported.fatal = Some(host_fault(&error));
                    return imported;
                }
            };
            let finding = match result {
                Ok(report) => {
                    self.judge(&report, &mut imported);
                    imported.host = Some(host);
                    return imported;
                }
                Err(HostError::ImportTimeout { id, limit }) => Some((
                    id,
                    Reason::ImportTimeout,
                    format!("importing did not end within {} s", limit.as_secs()),
                )),
                Err(HostError::Died {
                    death,
                    package: Some(id),
                }) => Some((
                    id,
                    Reason::ImportCrashed,
                    format!("importing {}", ended(&death)),
                )),
                Err(error) => {
                    let mut fault = host_fault(&error);
                    let running = self.load.packages.iter();
                    if let HostError::LoadTimeout { .. } = error
                        && let Some(package) = running.into_iter().find(|p| Some(p.id) == last)
                    {
                        fault.message =
                            format!("the deadline passed while {} was imported", package.dir);
                        fault.path = Some(code_path(package));
                    }
                    imported.fatal = Some(fault);
                    None
                }
            };
            match finding.and_then(|(id, reason, message)| self.finding(id, reason, message)) {
                Some((id, finding)) if !imported.failed.contains_key(&id) => {
                    imported.failed.insert(id, finding);
                }
                // Not put down to a package: the same would happen again.
                _ => {
                    imported.fatal.get_or_insert_with(|| {
                        Finding::group(Reason::HostCrashed, "the host ended while it loaded")
                    });
                    return imported;
                }
            }
        }
    }

    /// A host with all packages but `failed`, what it says of them, and the last one it began.
    pub(crate) async fn start(
        &self,
        failed: &BTreeMap<u32, Finding>,
        listener: &Listener,
    ) -> Result<(HostProcess, Result<LoadReport, HostError>, Option<u32>), HostError> {
        let packages = self.load.packages.iter();
        let packages: Vec<_> = packages
            .filter(|package| !failed.contains_key(&package.id))
            .cloned()
            .collect();
        let total = packages.len() as u64;
        let names: BTreeMap<u32, String> = packages
            .iter()
            .map(|package| (package.id, package.dir.clone()))
            .collect();
        let load = Load {
            packages,
            ..self.load.clone()
        };
        let limits = LoadLimits {
            start: START,
            package: self.import_timeout,
            total: self.deadline.saturating_duration_since(Instant::now()),
        };
        listener.runs(IMPORTING);
        let host = HostProcess::spawn(&self.spec).await?;
        let mut done = 0;
        let mut last = None;
        let report = host.load(&load, limits, |id| {
            last = Some(id);
            let name = names.get(&id).map_or("", String::as_str);
            self.progress
                .step(Phase::Import, done, Some(total), None, name);
            done += 1;
        });
        let report = report.await;
        if report.is_ok() {
            self.progress
                .step(Phase::Import, total, Some(total), None, "packages imported");
        }
        Ok((host, report, last))
    }

    fn judge(&self, report: &LoadReport, imported: &mut Imported) {
        for package in report.packages.iter().filter(|package| !package.ok) {
            let reason = package
                .reason
                .as_deref()
                .map_or(Reason::ImportFailed, reason);
            let message = package
                .message
                .as_deref()
                .unwrap_or("the host gave no reason");
            let message = super::log::cut(&self.log.clean(message), 1500);
            if let Some((id, finding)) = self.finding(package.id, reason, message) {
                imported.failed.insert(id, finding);
            }
        }
        for warning in &report.warnings {
            let text = self.log.clean(warning);
            imported
                .warnings
                .push(Finding::group(Reason::ModuleReserved, text));
        }
    }

    fn finding(&self, id: u32, reason: Reason, message: String) -> Option<(u32, Finding)> {
        let package = self.load.packages.iter().find(|package| package.id == id)?;
        let finding = Finding::package(package.dir.clone(), reason, message);
        Some((id, finding.at_path(code_path(package))))
    }
}

/// Collects what hosts print.
pub(crate) struct Listener {
    task: JoinHandle<()>,
    running: Arc<AtomicU32>,
}

impl Listener {
    /// Says which package runs from now on.
    pub(crate) fn runs(&self, id: u32) {
        self.running.store(id, Ordering::Relaxed);
    }

    /// Waits until all output arrived; every [`Importer`] that it belongs to must be gone.
    pub(crate) async fn finish(self) {
        let mut task = self.task;
        // A process that the code left behind may hold the pipe for ever.
        if tokio::time::timeout(LAST_OUTPUT, &mut task).await.is_err() {
            task.abort();
        }
    }
}

async fn forward(
    mut lines: mpsc::Receiver<OutputLine>,
    log: RunLog,
    names: BTreeMap<u32, String>,
    running: Arc<AtomicU32>,
) {
    while let Some(line) = lines.recv().await {
        let id = line
            .package
            .unwrap_or_else(|| running.load(Ordering::Relaxed));
        log.line(names.get(&id).map_or("import", String::as_str), &line.line);
    }
}

/// The file of a package's code.
fn code_path(package: &LoadPackage) -> String {
    format!("mcp/{}/{}.py", package.dir, package.name)
}

fn reason(name: &str) -> Reason {
    let known = Reason::ALL.iter().find(|reason| reason.as_str() == name);
    known.copied().unwrap_or(Reason::ImportFailed)
}

fn ended(death: &Death) -> String {
    match death {
        Death::Exited(code) => format!("ended the process with exit code {code}"),
        Death::Signalled(signal) => format!("ended the process with signal {signal}"),
        Death::Ended(cause @ EndCause::Budget { .. }) => format!("was {cause}"),
        other => format!("ended the process ({other})"),
    }
}

fn host_fault(error: &HostError) -> Finding {
    let reason = match error {
        HostError::Spawn { .. } => Reason::PythonUnavailable,
        // Whatever began last, or before the first: it is the code of the group that took so long.
        HostError::LoadTimeout { .. } => Reason::ImportTimeout,
        _ => Reason::HostCrashed,
    };
    Finding::group(reason, ramen_redact::chain(error))
}
