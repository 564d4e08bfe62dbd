//! The phases of a deploy, in their order, and the report that comes of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ramen_group::{Finding, Group, LayerRef, Reason, Report, SecretTable, scan};
use ramen_redact::{Redactor, chain};
use ramen_source::layer::{code_dir, pack_tree};
use ramen_source::tree::{TreeError, TreeLimits, refused, walk_folder};
use ramen_source::{Cache, Kind};

use crate::hosts::{HostSpec, Memory};
use crate::names;
use crate::packages::{self, LoadSetting};
use crate::remote::{DeployRun, Depot, StoreAt};

use super::deps::{Deps, Installer, Spent};
use super::golden::GoldenRun;
use super::host::{Host, describe, find, unneeded};
use super::import::Importer;
use super::index::IndexConfig;
use super::log::RunLog;
use super::progress::{Phase, Progress};
use super::requirements::Plan;
use super::uv::Uv;
use super::verdict::{empty_report, settle};
use super::work::Work;
use super::{DeployArgs, millis};

/// How long a host that has nothing to do may take to end.
const END: Duration = Duration::from_millis(300);

/// Calls at once in the host: as `serve` has it, so that imports see the same.
const THREADS: usize = 8;

/// The code of the revision, unpacked.
struct Code {
    layer: LayerRef,
    mcp: PathBuf,
}

struct Run {
    args: DeployArgs,
    vars: BTreeMap<String, String>,
    depot: Depot,
    remote: Option<DeployRun>,
    cache: Cache,
    work: Work,
    log: RunLog,
    progress: Progress,
    index: IndexConfig,
    secrets: SecretTable,
    /// For whatever runs code of the group.
    memory: Arc<Memory>,
    deadline: Instant,
    report: Report,
}

pub(super) async fn run(
    args: DeployArgs,
    vars: BTreeMap<String, String>,
) -> anyhow::Result<Report> {
    let started = Instant::now();
    let work = Work::open(&args.out)
        .with_context(|| format!("cannot write to the output folder {}", args.out.display()))?;
    let out = args.out.clone();
    let token_file = args.store_token_file.as_deref();
    let at = StoreAt::read(&args.store, token_file).map_err(anyhow::Error::msg)?;
    let remote = match (&args.report_url, token_file) {
        (Some(url), Some(file)) => {
            let run = DeployRun::new(url, file.to_owned());
            Some(run.map_err(|fault| anyhow::anyhow!("--report-url: {fault}"))?)
        }
        _ => None,
    };
    let cache_dir = args
        .cache_dir
        .clone()
        .unwrap_or_else(|| at.default_cache(&out));
    let cache = Cache::open(&cache_dir).map_err(|error| anyhow::anyhow!(chain(&error)))?;
    let depot = Depot::open(&at, cache.root()).map_err(|error| anyhow::anyhow!(chain(&error)))?;

    let index = IndexConfig::load(&vars);
    let own = vars
        .iter()
        .filter(|(name, _)| name.starts_with(names::SECRET_PREFIX));
    let platform = args.host_env.read(|name| vars.get(name).cloned());
    let within = crate::config::passwords_in(&platform);
    let masked = own.map(|(_, value)| value).chain(&index.secrets);
    let masked = masked.chain(&within);
    let log = RunLog::new(Redactor::new(masked));
    let given = if args.secrets_from_env {
        vars.clone()
    } else {
        BTreeMap::new()
    };
    let secrets = SecretTable::from_env(&args.group, given);

    let mut run = Run {
        memory: Memory::new(args.hosts_memory_mib),
        deadline: started + Duration::from_secs(args.timeout),
        progress: Progress(args.progress),
        report: empty_report(&args),
        args,
        vars,
        depot: depot.patient(),
        remote,
        cache,
        work,
        log,
        index,
        secrets,
    };
    run.phases().await;
    let Run {
        mut report,
        log,
        work,
        remote,
        ..
    } = run;
    settle(&mut report);
    report.log = log.text();
    report.timings.total_ms = millis(started);
    // First, so that a disk that the installer filled has room for the report.
    drop(work);
    let json = serde_json::to_vec_pretty(&report).context("cannot write the report")?;
    super::write_by_rename(&out, &out.join("report.json"), &json)
        .with_context(|| format!("cannot write the report to {}", out.display()))?;
    if let Some(remote) = remote {
        let handed = remote.report(&report).await;
        handed.map_err(|error| {
            anyhow::anyhow!("the report was not handed over: {}", chain(&error))
        })?;
    }
    Ok(report)
}

impl Run {
    /// Goes as far as it makes sense; what stops it is in the errors list.
    async fn phases(&mut self) {
        for note in &self.index.notes {
            self.log.line("ramen", note);
        }
        let code = match self.code().await {
            Ok(code) => code,
            Err(finding) => return self.report.errors.push(finding),
        };
        self.progress
            .step(Phase::Check, 0, None, None, "checking the files");
        let group = scan(&code.mcp);
        self.report.code = Some(code.layer);
        self.report.packages.clone_from(&group.packages);
        self.report.errors.extend(group.errors.iter().cloned());
        self.report.warnings.extend(group.warnings.iter().cloned());
        let plan = Plan::read(&code.mcp, self.args.allow_sdist);
        self.report.errors.extend(plan.errors.iter().cloned());
        self.report.warnings.extend(plan.warnings.iter().cloned());
        let total = group.packages.len() as u64;
        self.progress
            .step(Phase::Check, total, Some(total), None, "files checked");
        if self.args.no_install {
            return;
        }
        let host_dir = self
            .args
            .host_dir
            .clone()
            .or_else(own_folder)
            .unwrap_or_default();
        let python = self.args.python.as_deref();
        let runs_nothing = group.tools.is_empty() && group.resources.is_empty() && plan.is_empty();
        let host = match find(&host_dir, python) {
            Ok(host) => host,
            Err(_) if runs_nothing => unneeded(&host_dir, python),
            Err(finding) => return self.report.errors.push(finding),
        };
        self.report.python = Some(host.python.clone());
        if !plan.errors.is_empty() {
            return;
        }
        let deps = match self.deps(plan, &host).await {
            Ok(deps) => deps,
            Err(finding) => return self.report.errors.push(finding),
        };
        self.code_checks(group, &code.mcp, &host, deps.as_ref())
            .await;
    }

    /// Puts the code into the store and unpacks it, or takes it from there.
    async fn code(&mut self) -> Result<Code, Finding> {
        let layer = match (&self.args.code_layer, &self.args.code_dir) {
            (Some(wanted), _) => {
                let known = self
                    .depot
                    .store()
                    .find(Kind::Code, &wanted.key)
                    .await
                    .ok()
                    .flatten();
                known
                    .filter(|layer| layer.digest == wanted.digest)
                    .unwrap_or_else(|| LayerRef {
                        key: wanted.key.clone(),
                        digest: wanted.digest.clone(),
                        size: 0,
                    })
            }
            (None, Some(dir)) => self.pack_code(dir).await?,
            (None, None) => return Err(Finding::group(Reason::Internal, "no code was named")),
        };
        self.report.tree = Some(layer.key.clone());
        let unpacked = self.depot.ready(&self.cache, Kind::Code, &layer).await;
        let unpacked = unpacked.map_err(|error| Finding::group(error.reason(), chain(&error)))?;
        match refused(&unpacked) {
            Ok(refused) => {
                self.report.errors.extend(refused.errors);
                self.report.warnings.extend(refused.warnings);
            }
            Err(error) => return Err(Finding::group(Reason::LayerCorrupt, error.to_string())),
        }
        Ok(Code {
            layer,
            mcp: code_dir(&unpacked),
        })
    }

    async fn pack_code(&self, dir: &Path) -> Result<LayerRef, Finding> {
        let tree =
            walk_folder(dir, &TreeLimits::default()).map_err(|error: TreeError| error.finding())?;
        if let Ok(Some(layer)) = self.depot.store().find(Kind::Code, &tree.id).await {
            return Ok(layer);
        }
        let scratch = self.work.dir("scratch");
        let scratch =
            scratch.map_err(|error| Finding::group(Reason::Internal, error.to_string()))?;
        let packed = pack_tree(&tree, &scratch)
            .map_err(|error| Finding::group(error.reason(), chain(&error)))?;
        let put = self.depot.store().put(Kind::Code, &tree.id, &packed).await;
        put.map_err(|error| Finding::group(error.reason(), chain(&error)))
    }

    async fn deps(&mut self, plan: Plan, host: &Host) -> Result<Option<Deps>, Finding> {
        if plan.is_empty() {
            return Ok(None);
        }
        let described = describe(host).await?;
        let scratch = self.work.dir("scratch");
        let scratch =
            scratch.map_err(|error| Finding::group(Reason::Internal, error.to_string()))?;
        let program = self.uv_program(&described.executable)?;
        let uv = Uv {
            program,
            config: self.index.clone(),
            python: described.executable.clone(),
            scratch,
            deadline: self.deadline,
            log: self.log.clone(),
            memory: Arc::clone(&self.memory),
        };
        let installer = Installer {
            uv: &uv,
            depot: &self.depot,
            remote: self.remote.as_ref(),
            cache: &self.cache,
            host: &described,
            progress: self.progress,
            allow_sources: self.args.allow_sdist,
            max_bytes: self.args.max_deps_bytes,
            refresh: self.args.refresh,
        };
        let mut spent = Spent::default();
        let result = installer.ready(plan, &mut spent).await;
        self.report.timings.resolve_ms = spent.resolve_ms;
        self.report.timings.install_ms = spent.install_ms;
        let lock = match &result {
            Ok(deps) => Some(deps.lock.clone()),
            Err(failed) => failed.lock.clone(),
        };
        self.report.lock_key = lock.as_deref().map(|lock| installer.lock_key(lock));
        self.report.lock = lock.map(|lock| self.log.clean(&lock));
        match result {
            Ok(deps) => {
                self.report.deps = Some(deps.layer.clone());
                Ok(Some(deps))
            }
            Err(failed) => Err(failed.finding),
        }
    }

    /// The installer that was named; else the one on `PATH`, beside this program or beside the
    /// host's Python.
    fn uv_program(&self, python: &Path) -> Result<PathBuf, Finding> {
        let named = self.args.uv.clone().unwrap_or_else(|| "uv".into());
        let missing = |message| Err(Finding::group(Reason::InstallerMissing, message));
        if named.components().count() > 1 {
            let absolute = std::path::absolute(&named).unwrap_or_else(|_| named.clone());
            if absolute.is_file() {
                return Ok(absolute);
            }
            return missing(format!("{} does not exist", named.display()));
        }
        let path = self.vars.get("PATH").cloned().unwrap_or_default();
        let beside = [own_folder(), python.parent().map(Path::to_path_buf)];
        let found = std::env::split_paths(&path)
            .chain(beside.into_iter().flatten())
            .map(|dir| dir.join(&named))
            .find(|file| file.is_file());
        match found {
            Some(file) => Ok(file),
            None => missing(format!("no `{}` on PATH", named.display())),
        }
    }

    /// Imports, then golden calls.
    async fn code_checks(&mut self, group: Group, mcp: &Path, host: &Host, deps: Option<&Deps>) {
        let file = group.env.clone().unwrap_or_default();
        let platform = self.args.host_env.read(|name| self.vars.get(name).cloned());
        let resolved = file.resolve(&self.secrets, &platform);
        self.report.warnings.extend(resolved.warnings);
        let home = match self.work.dir("home") {
            Ok(home) => home,
            Err(error) => {
                let finding = Finding::group(Reason::Internal, error.to_string());
                return self.report.errors.push(finding);
            }
        };
        let spec = HostSpec {
            program: host.program.clone(),
            home,
            secrets: self
                .secrets
                .vars()
                .map(|(n, v)| (n.to_owned(), v.to_owned()))
                .collect(),
            env: BTreeMap::new(),
            output: None,
            memory: Arc::clone(&self.memory),
        };
        let setting = LoadSetting {
            group: &self.args.group,
            code_dir: mcp,
            deps_dir: deps.map(|deps| deps.dir.as_path()),
            env: resolved.vars.into_iter().collect(),
            threads: THREADS,
        };
        let load = packages::load(&group, setting);
        let mut importer = Importer {
            spec,
            load,
            import_timeout: Duration::from_secs(self.args.import_timeout),
            deadline: self.deadline,
            log: self.log.clone(),
            progress: self.progress,
        };
        let listener = importer.listen();
        let started = Instant::now();
        let mut outcome = if importer.load.packages.is_empty() {
            super::import::Imported::default()
        } else {
            importer.import(&listener).await
        };
        self.report.timings.import_ms = millis(started);
        self.report.errors.extend(outcome.failed.values().cloned());
        self.report.warnings.append(&mut outcome.warnings);
        if let Some(fatal) = outcome.fatal.take() {
            // Nothing is known of any package: none may serve, and no call can be tried.
            self.report
                .packages
                .iter_mut()
                .for_each(|package| package.ok = false);
            self.report.errors.push(fatal);
            return;
        }

        let started = Instant::now();
        let mut host = outcome.host.take();
        if let Some(tests) = group.tests.clone() {
            let golden =
                GoldenRun::new(group, &self.secrets, &importer, &listener, &outcome.failed);
            let findings;
            (self.report.golden, findings, host) = golden.run(&tests, host).await;
            self.report.errors.extend(findings);
            self.report.timings.tests_ms = millis(started);
        }
        if let Some(host) = host {
            host.end(END).await;
        }
        drop(importer);
        listener.finish().await;
    }
}

/// The folder of this program.
fn own_folder() -> Option<PathBuf> {
    std::env::current_exe()
        .ok()?
        .parent()
        .map(Path::to_path_buf)
}
