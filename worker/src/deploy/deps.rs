//! From requirements to a layer of installed packages.
//!
//! ```text
//! requirements + Python + platform + index   --(known?)-->  lock     <store>/locks/<inputs>.txt
//! lock + Python + platform                   --(known?)-->  layer    <store>/deps/<lock key>
//! ```
//! Only what is not known is done. The second step needs no network at all, the first none when
//! the same inputs were resolved before; `--refresh` resolves again. A lock names each file by its
//! hashes, so that the same key cannot mean other bytes.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ramen_group::{Finding, LayerRef, Reason};
use ramen_redact::chain;
use ramen_source::layer::Layer;
use ramen_source::{Cache, Kind};

use crate::remote::{DeployRun, Depot, RemoteError};

use super::host::Described;
use super::progress::{Phase, Progress};
use super::requirements::Plan;
use super::uv::{Uv, UvFault, measure, too_large};

mod install;
mod local;
mod lock;

use lock::{packages, with_pinned_hashes};

/// Goes up when the same inputs would be locked or installed in another way.
const FORMAT: &str = "ramen-deps-1";

/// Locks that are kept in a store.
const LOCKS: usize = 500;
/// Bytes from which on compiling in several processes pays.
const PARALLEL_FROM: u64 = 5_000_000;

/// The installed requirements of one revision.
#[derive(Debug, Clone)]
pub(crate) struct Deps {
    /// The layer in the store.
    pub(crate) layer: LayerRef,
    /// The layer unpacked.
    pub(crate) dir: PathBuf,
    /// The lock.
    pub(crate) lock: String,
}

/// What the step needs.
pub(crate) struct Installer<'a> {
    pub(crate) uv: &'a Uv,
    pub(crate) depot: &'a Depot,
    pub(crate) remote: Option<&'a DeployRun>,
    pub(crate) cache: &'a Cache,
    pub(crate) host: &'a Described,
    pub(crate) progress: Progress,
    pub(crate) allow_sources: bool,
    pub(crate) max_bytes: u64,
    pub(crate) refresh: bool,
}

/// Milliseconds of both halves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) resolve_ms: u64,
    pub(crate) install_ms: u64,
}

/// A failure with what was found out before it.
pub(crate) struct Failed {
    pub(crate) finding: Finding,
    pub(crate) lock: Option<String>,
}

impl Installer<'_> {
    /// Makes the layer of `plan` ready; `plan` asks for something and has no errors.
    pub(crate) async fn ready(&self, mut plan: Plan, spent: &mut Spent) -> Result<Deps, Failed> {
        let inputs = self.inputs_key(&plan);
        let use_memo = !self.refresh && !plan.moving;
        let known = if use_memo {
            self.known_lock(&inputs).await
        } else {
            None
        };
        if let Some(lock) = known {
            let count = packages(&lock);
            self.progress.step(
                Phase::Resolve,
                count,
                Some(count),
                None,
                "requirements unchanged: lock reused",
            );
            match self.layer(&plan, &lock, true, spent).await {
                Ok((layer, dir)) => return Ok(Deps { layer, dir, lock }),
                // The index may have withdrawn a file: one fresh resolution decides.
                Err(fault) if may_heal(fault.reason) => {
                    self.uv.log.line(
                        "ramen",
                        &format!("the known lock failed ({}); resolving again", fault.message),
                    );
                }
                Err(fault) => {
                    return Err(Failed {
                        finding: finding(&plan, fault),
                        lock: Some(lock),
                    });
                }
            }
        }
        let started = Instant::now();
        let resolved = self.resolve(&mut plan).await;
        spent.resolve_ms += millis(started);
        let lock = resolved.map_err(|fault| Failed {
            finding: finding(&plan, fault),
            lock: None,
        })?;
        let (layer, dir) = match self.layer(&plan, &lock, false, spent).await {
            Ok(found) => found,
            Err(fault) => {
                return Err(Failed {
                    finding: finding(&plan, fault),
                    lock: Some(lock),
                });
            }
        };
        if !plan.moving {
            self.keep_lock(&inputs, &lock).await;
        }
        Ok(Deps { layer, dir, lock })
    }

    fn lock_file(&self, inputs: &str) -> std::path::PathBuf {
        let locks = self.depot.store().root().join("locks");
        locks.join(format!("{inputs}.txt"))
    }

    async fn known_lock(&self, inputs: &str) -> Option<String> {
        match self.remote {
            None => std::fs::read_to_string(self.lock_file(inputs)).ok(),
            Some(remote) => match remote.lock(inputs).await {
                Ok(lock) => lock,
                Err(error) => {
                    let error = chain(&error);
                    self.uv
                        .log
                        .line("ramen", &format!("no known lock could be read: {error}"));
                    None
                }
            },
        }
    }

    async fn keep_lock(&self, inputs: &str, lock: &str) {
        let kept = match self.remote {
            None => remember(&self.lock_file(inputs), lock).map_err(|error| error.to_string()),
            Some(remote) => {
                let kept = remote.keep_lock(inputs, lock).await;
                kept.map_err(|error| chain(&error))
            }
        };
        if let Err(error) = kept {
            self.uv.log.line(
                "ramen",
                &format!("the lock could not be kept for next time: {error}"),
            );
        }
    }

    /// The layer under a key, if there is one.
    async fn find(&self, key: &str) -> Result<Option<LayerRef>, UvFault> {
        match self.remote {
            None => self
                .depot
                .store()
                .find(Kind::Deps, key)
                .await
                .map_err(|error| store_fault(&error)),
            Some(remote) => remote.deps(key).await.map_err(|error| remote_fault(&error)),
        }
    }

    async fn put(&self, key: &str, packed: &Layer) -> Result<LayerRef, UvFault> {
        match self.remote {
            None => self
                .depot
                .store()
                .put(Kind::Deps, key, packed)
                .await
                .map_err(|error| store_fault(&error)),
            Some(remote) => remote
                .put_deps(key, packed)
                .await
                .map_err(|error| remote_fault(&error)),
        }
    }

    /// The layer of a lock: from the store, or installed. With `known_only`, a lock whose local
    /// sources would have to be built first is not installed.
    async fn layer(
        &self,
        plan: &Plan,
        lock: &str,
        known_only: bool,
        spent: &mut Spent,
    ) -> Result<(LayerRef, PathBuf), UvFault> {
        let started = Instant::now();
        let result = self.layer_inner(plan, lock, known_only).await;
        spent.install_ms += millis(started);
        result
    }

    async fn layer_inner(
        &self,
        plan: &Plan,
        lock: &str,
        known_only: bool,
    ) -> Result<(LayerRef, PathBuf), UvFault> {
        let key = self.lock_key(lock);
        let count = packages(lock);
        if let Some(layer) = self.find(&key).await? {
            match self.depot.ready(self.cache, Kind::Deps, &layer).await {
                Ok(dir) => {
                    self.progress.step(
                        Phase::Install,
                        count,
                        Some(count),
                        Some(layer.size),
                        "installed before: layer reused",
                    );
                    return Ok((layer, dir));
                }
                Err(error) if error.needs_rebuild() => {
                    self.uv
                        .log
                        .line("ramen", &format!("{error}; installing again"));
                }
                Err(error) => return Err(UvFault::new(error.reason(), chain(&error))),
            }
        }
        if known_only && !plan.local.is_empty() {
            return Err(UvFault::new(
                Reason::InstallFailed,
                "its local sources must be built again",
            ));
        }
        let target = self.uv.scratch.join("target");
        discard(&target);
        self.install(plan, lock, &target, count).await?;
        let (_, bytes) = measure(&target);
        if bytes > self.max_bytes {
            return Err(UvFault::new(
                Reason::DepsTooLarge,
                too_large(bytes, self.max_bytes),
            ));
        }
        self.progress
            .step(Phase::Install, count, Some(count), Some(bytes), "compiling");
        self.uv.compile(&target, bytes > PARALLEL_FROM).await?;
        let packed = self.pack(&target).await?;
        let layer = self.put(&key, &packed).await?;
        // Moved rather than unpacked, where it can be.
        let cached = match self.cache.adopt(&target, &packed).await {
            Ok(true) => Ok(self.cache.path_of(packed.digest)),
            _ => self.depot.ready(self.cache, Kind::Deps, &layer).await,
        };
        let dir = cached.map_err(|error| UvFault::new(error.reason(), chain(&error)))?;
        discard(&target);
        Ok((layer, dir))
    }

    async fn resolve(&self, plan: &mut Plan) -> Result<String, UvFault> {
        self.build_local(plan).await?;
        let scratch = &self.uv.scratch;
        write(&scratch.join("requirements.txt"), &plan.text())?;
        self.progress
            .step(Phase::Resolve, 0, None, None, "resolving requirements");
        let mut args = args([
            "pip",
            "compile",
            "requirements.txt",
            "--generate-hashes",
            "--no-header",
            "--no-annotate",
            "--quiet",
            "--python",
        ]);
        args.push(self.uv.python.clone().into());
        self.source_args(plan, &mut args);
        let constraints = plan.constraints_text();
        if !constraints.is_empty() {
            write(&scratch.join("constraints.txt"), &constraints)?;
            args.extend(["-c".into(), "constraints.txt".into()]);
        }
        if plan.pre {
            args.extend(["--prerelease".into(), "allow".into()]);
        }
        let find_links = self.find_links(plan);
        let env: Vec<_> = find_links
            .iter()
            .map(|all| ("UV_FIND_LINKS", all.as_str()))
            .collect();
        let lock = self.uv.run(&args, &env, None).await?;
        let lock = with_pinned_hashes(&lock, &plan.hashes);
        let count = packages(&lock);
        self.progress.step(
            Phase::Resolve,
            count,
            Some(count),
            None,
            "requirements resolved",
        );
        Ok(lock)
    }

    /// Options that say where packages may come from.
    fn source_args(&self, plan: &Plan, args: &mut Vec<OsString>) {
        args.extend(self.uv.config.flags.iter().map(OsString::from));
        if self.allow_sources {
            for what in &plan.no_binary {
                args.extend(["--no-binary".into(), what.into()]);
            }
        } else {
            args.extend(["--only-binary".into(), ":all:".into()]);
        }
    }

    /// Folders with wheels of the repo, beside those that the environment names: the option would
    /// take their place.
    fn find_links(&self, plan: &Plan) -> Option<String> {
        let named = self.uv.config.env.get("UV_FIND_LINKS").cloned();
        let own = plan.wheel_dirs.iter().map(|dir| dir.display().to_string());
        let all: Vec<String> = named.into_iter().chain(own).collect();
        (!plan.wheel_dirs.is_empty()).then(|| all.join(","))
    }

    /// All that a resolution depends on but the content of the index.
    fn inputs_key(&self, plan: &Plan) -> String {
        let mut text = format!(
            "{FORMAT}\nlock\n{}\n{}\n",
            self.host.version, self.host.platform
        );
        let _ = writeln!(
            text,
            "{}\n{}\n{:?}",
            self.allow_sources, plan.pre, plan.no_binary
        );
        let _ = writeln!(
            text,
            "{}\n{}\n{}",
            plan.text(),
            plan.constraints_text(),
            self.uv.config.fingerprint
        );
        for (name, hashes) in &plan.hashes {
            let _ = writeln!(text, "{name} {hashes:?}");
        }
        for source in &plan.local {
            let _ = writeln!(
                text,
                "{} {} {}",
                local::tree_hash(&source.path),
                source.extras,
                source.marker
            );
        }
        super::sha256_hex(text.as_bytes())
    }

    /// The key of a lock's layer.
    pub(crate) fn lock_key(&self, lock: &str) -> String {
        let (python, platform) = (&self.host.python, &self.host.platform);
        super::sha256_hex(format!("{FORMAT}\n{python}\n{platform}\n{lock}").as_bytes())
    }
}

fn args<const N: usize>(words: [&str; N]) -> Vec<OsString> {
    words.into_iter().map(OsString::from).collect()
}

/// Only a withdrawn file or a lost layer is worth a second resolution.
fn may_heal(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::InstallFailed | Reason::HashMismatch | Reason::RequirementsUnsatisfiable
    )
}

fn finding(plan: &Plan, fault: UvFault) -> Finding {
    let place = fault.offset.and_then(|offset| plan.place_at(offset));
    let place = place.or_else(|| plan.place_in(&fault.message));
    let finding = Finding::group(fault.reason, fault.message);
    match place {
        Some(place) => finding.at_path(place.path.clone()).at(place.line, 1),
        None => finding.at_path("mcp/requirements.txt"),
    }
}

fn discard(dir: &Path) {
    let _ = std::fs::remove_dir_all(dir);
}

fn write(path: &Path, text: &str) -> Result<(), UvFault> {
    std::fs::write(path, text).map_err(|error| io_fault("writing a scratch file", &error))
}

/// Keeps a lock for next time, and no more than the newest [`LOCKS`] of them.
fn remember(path: &Path, lock: &str) -> std::io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir)?;
    super::write_by_rename(dir, path, lock.as_bytes())?;
    let mut known = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        known.push((entry.metadata()?.modified()?, entry.path()));
    }
    known.sort_unstable();
    for (_, oldest) in known.iter().take(known.len().saturating_sub(LOCKS)) {
        std::fs::remove_file(oldest)?;
    }
    Ok(())
}

fn io_fault(doing: &str, error: &std::io::Error) -> UvFault {
    let full = matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
    );
    let reason = if full {
        Reason::DiskFull
    } else {
        Reason::InstallFailed
    };
    UvFault::new(reason, format!("{doing}: {error}"))
}

fn remote_fault(error: &RemoteError) -> UvFault {
    UvFault::new(Reason::Internal, chain(error))
}

fn store_fault(error: &ramen_source::store::StoreError) -> UvFault {
    UvFault::new(error.reason(), chain(error))
}

use super::millis;

#[cfg(test)]
mod tests;
