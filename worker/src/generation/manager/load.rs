//! One load: layers, scan, hosts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ramen_group::{DesiredState, Finding, Group, GroupCatalog, Reason};
use ramen_mcp::model::Implementation;
use ramen_redact::{Redactor, chain};
use ramen_source::store::Kind;
use ramen_source::{Cache, layer};
use tokio::sync::mpsc;

use super::super::served;
use super::{Generation, Manager, ReloadError};
use crate::hosts::pool::{Pool, PoolError, PoolSpec};
use crate::hosts::{Death, EndCause, HostError, HostSpec, OutputLine, host_program};
use crate::packages::{self, LoadSetting};
use crate::remote::Depot;

/// Lines of output that wait to be logged; more are dropped.
const OUTPUT_QUEUE: usize = 1024;

impl Manager {
    pub(super) async fn load(&self, desired: DesiredState) -> Result<Arc<Generation>, ReloadError> {
        let setting = &self.setting;
        let (depot, cache) = self
            .layers
            .get_or_try_init(async || {
                let cache = Cache::open(&setting.cache_dir).map_err(ReloadError::Cache)?;
                let depot = Depot::open(&setting.store, cache.root());
                Ok((depot.map_err(ReloadError::Store)?, cache))
            })
            .await?;
        let code = depot
            .ready(cache, Kind::Code, &desired.code)
            .await
            .map_err(|source| ReloadError::Layer {
                layer: "code",
                source,
            })?;
        let deps =
            match &desired.deps {
                None => None,
                Some(deps) => Some(depot.ready(cache, Kind::Deps, deps).await.map_err(
                    |source| ReloadError::Layer {
                        layer: "deps",
                        source,
                    },
                )?),
            };
        let code_dir = layer::code_dir(&code);
        let scanned = {
            let code_dir = code_dir.clone();
            tokio::task::spawn_blocking(move || ramen_group::scan(&code_dir)).await
        };
        let group = scanned.map_err(|_| ReloadError::Packages("the scan failed".into()))?;
        refuse_faults(&group, &desired.exclude)?;
        let group = group.without(&desired.exclude);
        // The other remarks are in the report of the deploy; this one is about the calls that begin now.
        let unguarded = |finding: &&Finding| finding.reason == Reason::GuardrailsNotEnforced;
        if let Some(remark) = group.warnings.iter().find(unguarded) {
            tracing::warn!(reason = %remark.reason, remark = remark.message, "hooks are not run");
        }
        let program = host_program(&setting.host_dir, &desired.python);
        if !group.tools.is_empty() || !group.resources.is_empty() {
            match program.try_exists() {
                Ok(true) => {}
                _ => {
                    return Err(ReloadError::NoHostProgram {
                        python: desired.python.clone(),
                        path: program.display().to_string(),
                    });
                }
            }
        }
        let home = cache.scratch().map_err(ReloadError::Home)?;
        let pool = self
            .start_pool(&group, program, &code_dir, deps.as_deref(), home.path())
            .await?;
        let info = Implementation {
            name: setting.group.clone(),
            version: desired.version().to_owned(),
            title: None,
            description: None,
            website_url: None,
            icons: Vec::new(),
        };
        let (server, catalog) = served(GroupCatalog::new(group, info));
        Ok(Arc::new(Generation {
            number: self.numbers.fetch_add(1, Ordering::Relaxed) + 1,
            server,
            desired,
            catalog,
            pool,
            secrets: Arc::clone(&self.secrets),
            redactor: Arc::clone(&self.redactor),
            call_timeout: setting.call_timeout,
            metrics: Arc::clone(&self.metrics),
            failures: Arc::default(),
            home: Arc::new(home),
        }))
    }

    async fn start_pool(
        &self,
        group: &Group,
        program: PathBuf,
        code_dir: &Path,
        deps_dir: Option<&Path>,
        home: &Path,
    ) -> Result<Arc<Pool>, ReloadError> {
        let setting = &self.setting;
        let file = group.env.clone().unwrap_or_default();
        let resolved = file.resolve(&self.secrets, &setting.host_env);
        for warning in &resolved.warnings {
            tracing::warn!(warning = warning.message, "a key of env.yaml is left out");
        }
        let labels: Vec<String> = (0..group.tools.len() + group.resources.len())
            .map(|id| {
                packages::label(group, packages::tool_id(id))
                    .unwrap_or("?")
                    .to_owned()
            })
            .collect();
        let (output, lines) = mpsc::channel(OUTPUT_QUEUE);
        tokio::spawn(log_output(
            lines,
            Arc::clone(&self.redactor),
            labels.clone(),
        ));
        let metrics = Arc::clone(&self.metrics);
        let spec = PoolSpec {
            host: HostSpec {
                program,
                home: home.into(),
                secrets: self
                    .secrets
                    .vars()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
                env: BTreeMap::new(),
                output: Some(output),
                memory: Arc::clone(&setting.memory),
            },
            load: packages::load(
                group,
                LoadSetting {
                    group: &setting.group,
                    code_dir,
                    deps_dir,
                    env: resolved.vars.into_iter().collect(),
                    threads: setting.host_threads,
                },
            ),
            limits: setting.limits,
            hosts: setting.hosts,
            threads: setting.host_threads,
            max_rss: setting.host_max_rss,
            max_calls: setting.host_max_calls,
            on_restart: Arc::new(move |death| metrics.restarted(death)),
        };
        let name = |id: u32| labels.get(id as usize).map_or("?", String::as_str);
        Pool::start(spec).await.map_err(|error| match error {
            PoolError::Packages(loaded) => {
                let faults = loaded.packages.iter().filter(|one| !one.ok).map(|one| {
                    let message = one.message.as_deref().unwrap_or("did not load");
                    format!("{}: {message}", name(one.id))
                });
                ReloadError::Packages(list(faults))
            }
            PoolError::Host(HostError::ImportTimeout { id, limit }) => ReloadError::Packages(
                format!("{}: the import took longer than {limit:?}", name(id)),
            ),
            PoolError::Host(HostError::Died {
                death,
                package: Some(id),
            }) => {
                let text = format!("{}: its import ended the host process ({death})", name(id));
                match death {
                    // At another time, without the hosts of another revision, there may be room.
                    Death::Ended(EndCause::Budget { .. }) => ReloadError::Hosts(text),
                    _ => ReloadError::Packages(text),
                }
            }
            PoolError::Host(error) => ReloadError::Hosts(chain(&error)),
        })
    }
}

/// Every package that is not excluded must be free of faults. Faults of the group as a whole were
/// judged by the deploy step.
fn refuse_faults(group: &Group, exclude: &[String]) -> Result<(), ReloadError> {
    let counts = |finding: &&Finding| {
        finding
            .package
            .as_ref()
            .is_some_and(|package| !exclude.contains(package))
    };
    let mut faults = group.errors.iter().filter(counts).peekable();
    if faults.peek().is_none() {
        return Ok(());
    }
    Err(ReloadError::Packages(list(faults.map(|finding| {
        format!(
            "{}: {}",
            finding.package.as_deref().unwrap_or_default(),
            finding.message
        )
    }))))
}

/// At most ten, then how many more.
fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    let mut text = items
        .iter()
        .take(10)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    if items.len() > 10 {
        let more = (items.len() - 10).to_string();
        text.extend(["; and ", &more, " more"]);
    }
    text
}

async fn log_output(
    mut lines: mpsc::Receiver<OutputLine>,
    redactor: Arc<Redactor>,
    labels: Vec<String>,
) {
    while let Some(OutputLine {
        pid,
        stderr,
        line,
        package,
    }) = lines.recv().await
    {
        let package = package
            .and_then(|id| labels.get(id as usize))
            .map_or("", String::as_str);
        let stream = if stderr { "stderr" } else { "stdout" };
        let line = redactor.redact(&line);
        tracing::info!(target: "ramen_worker::output", pid, package, stream, line = &*line, "printed");
    }
}
