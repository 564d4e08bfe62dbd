//! `ramen up`: groups on one machine, with the same source, deploy step and worker as on a cluster.
//!
//! One task for each group ([`group`]), one for what is printed; a group that fails touches no other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ramen_gateway::upstreams::Policy;
use ramen_group::CidrSet;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use self::control::Asked;
use self::desk::Desk;
use self::gateway::{Front, Trust};
use self::group::{Handle, Key, News, Poke};
use self::machine::Machine;
use self::spec::Plan;
use self::status::{Board, Status};
use self::watch::Changes;
use crate::exit::Failure;
use crate::names;
use crate::output::{self, Format, OutputArg};
use crate::state::StateDir;
use crate::worker_bin;

mod child;
mod control;
pub(crate) mod deploy;
mod desk;
mod gateway;
mod group;
mod keys;
mod machine;
mod port;
mod source;
pub(crate) mod spec;
mod status;
mod watch;
mod worker;

/// This machine and private networks: whoever writes a group may run code here anyway. Link-local addresses, where clouds
/// keep their metadata, are not among them.
const NEARBY: &str = "127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7";
pub(crate) use keys::{end_key, has_given_keys, new_key};

/// `ramen up`.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub(crate) struct UpArgs {
    /// A folder that holds mcp/: served as it is and reloaded on save
    #[arg(group = "what", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// File with McpGroup documents and the Secret documents they name; read again when it changes and on SIGHUP
    #[arg(short, long, group = "what", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Where the worker listens; for a single group [default: a free port of 127.0.0.1, kept over restarts]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<SocketAddr>,
    /// Where MCP clients connect over HTTP [default: 127.0.0.1:8080, or a free port when that is taken]
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<SocketAddr>,
    /// Ranges that the upstreams of a group may be in although they are not public
    #[arg(long, env = names::UPSTREAM_ALLOWED_CIDRS, value_name = "CIDRS", default_value = NEARBY)]
    upstream_allowed_cidrs: String,
    /// File that says whose tokens count besides keys (OIDC), watched; what they open is up to `spec.access`
    #[arg(long, env = ramen_gateway::names::OIDC_CONFIG, value_name = "FILE")]
    oidc: Option<PathBuf>,
    /// Folder of operators' keys and rules, besides the key in the state directory
    #[arg(long, env = ramen_gateway::names::OPERATORS_DIR, value_name = "DIR")]
    operators_dir: Option<PathBuf>,
    /// State directory [default: `$XDG_STATE_HOME/ramen`]
    #[arg(long, env = names::STATE_DIR, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArg,
}

/// Runs the command.
pub(crate) fn run(args: &UpArgs) -> Result<ExitCode, Failure> {
    let plan = plan(args)?;
    let upstreams = upstreams(args)?;
    if let Some(file) = &args.oidc {
        gateway::check_oidc(file).map_err(|why| Failure::usage(format!("--oidc: {why}")))?;
    }
    let worker = worker_bin::find()?;
    let state = StateDir::locate(args.state_dir.as_deref())?;
    let _lock = lock(&state)?;
    if let Some(trouble) = args.listen.and_then(port::trouble) {
        return Err(Failure::error(trouble));
    }
    let runtime = crate::runtime()?;
    let code = runtime.block_on(async {
        let machine = Machine::open(state, worker)
            .map_err(|trouble| Failure::error(trouble.finding.to_string()))?;
        supervise(args, Arc::new(machine), plan, upstreams).await
    });
    // A fetch may still sit in its thread; nothing waits for it.
    runtime.shutdown_background();
    code
}

fn plan(args: &UpArgs) -> Result<Plan, Failure> {
    let plan = match (&args.dir, &args.file) {
        (Some(dir), _) => Plan::of_folder(dir),
        (None, Some(file)) => Plan::of_file(file),
        (None, None) => Err("a folder or a file is needed".to_owned()),
    };
    plan.and_then(|plan| plan.listening(args.listen))
        .map_err(Failure::usage)
}

/// What the upstreams of groups may be: programs too, as the groups' own code is one.
fn upstreams(args: &UpArgs) -> Result<Policy, Failure> {
    let allowed = CidrSet::parse_list(&args.upstream_allowed_cidrs).map_err(|errors| {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        Failure::usage(format!("--upstream-allowed-cidrs: {}", errors.join("; ")))
    })?;
    Ok(Policy {
        allowed,
        commands: true,
        ..Policy::default()
    })
}

/// One `ramen up` for each state directory.
fn lock(state: &StateDir) -> Result<std::fs::File, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::error(format!(
            "the state directory {} cannot be used: {error}",
            state.root().display()
        ))
    };
    state.make().map_err(|error| failed(&error))?;
    let file = crate::state::append(&state.lock()).map_err(|error| failed(&error))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(
        |_| {
            Failure::usage(format!(
                "another `ramen up` uses {}: name another --state-dir",
                state.root().display()
            ))
        },
    )?;
    Ok(file)
}

/// All running groups.
struct Groups {
    machine: Arc<Machine>,
    running: BTreeMap<Key, Handle>,
    news: mpsc::UnboundedSender<News>,
    desk: Desk,
    front: Option<Front>,
    /// Names for the control socket, which answers on its own.
    doors: Arc<std::sync::Mutex<BTreeMap<Key, mpsc::UnboundedSender<Poke>>>>,
}

async fn supervise(
    args: &UpArgs,
    machine: Arc<Machine>,
    plan: Plan,
    upstreams: Policy,
) -> Result<ExitCode, Failure> {
    let (sender, mut news) = mpsc::unbounded_channel();
    let mut board = Board::new(args.output.output);
    let desk = Desk::new(machine.state.clone());
    let trust = Trust {
        oidc: args.oidc.as_deref(),
        operators: args.operators_dir.as_deref(),
    };
    let front = match Front::open(&machine.state, args.http, upstreams, trust, &desk).await {
        Ok(front) => Some(front),
        Err(error) if args.http.is_some() || args.oidc.is_some() => {
            let at = args.http.map_or_else(String::new, |at| format!(" at {at}"));
            return Err(Failure::error(format!("cannot serve HTTP{at}: {error}")));
        }
        Err(error) => {
            // Where an earlier one listened leads nowhere now, or to somebody else.
            let _ = std::fs::remove_file(machine.state.gateway());
            board.remark(&format!("groups are not served over HTTP: {error}"));
            None
        }
    };
    let mut groups = Groups {
        machine,
        running: BTreeMap::new(),
        news: sender,
        desk,
        front,
        doors: Arc::default(),
    };
    let control = groups.control();
    if let Err(error) = &control {
        board.remark(&format!("`ramen poke` will not work: {error}"));
    }
    let mut file = args
        .file
        .as_deref()
        .and_then(|file| watch_file(file, &board));
    let mut hangup =
        signal(SignalKind::hangup()).map_err(|error| Failure::error(error.to_string()))?;
    let stop = crate::signals::stop();
    tokio::pin!(stop);
    let mut hint = (args.output.output == Format::Table).then(|| flags(args));
    groups.apply(plan, &mut board).await;
    loop {
        let reread = tokio::select! {
            () = &mut stop => break,
            Some(mut news) = news.recv() => {
                groups.hear(&mut news);
                hint = show(news, &mut board, hint);
                false
            }
            Some(()) = hangup.recv() => true,
            () = changed(&mut file) => true,
        };
        if reread {
            match self::plan(args) {
                Ok(plan) => groups.apply(plan, &mut board).await,
                Err(failure) => board.remark(&format!("the groups stay as they are: {failure}")),
            }
        }
    }
    if let Ok(control) = control {
        control.abort();
    }
    let _ = std::fs::remove_file(groups.machine.state.socket());
    let ended = futures::future::join_all(groups.running.into_values().map(Handle::stop));
    tokio::select! {
        _ = ended => Ok(ExitCode::SUCCESS),
        // Asked twice: at once. What is dropped here kills what is left.
        () = crate::signals::stop() => Ok(ExitCode::from(130)),
    }
}

fn watch_file(file: &std::path::Path, board: &Board) -> Option<Changes> {
    Changes::of_file(file)
        .map_err(|error| {
            board.remark(&format!(
                "{} is read again only on SIGHUP: {error}",
                file.display()
            ));
        })
        .ok()
}

async fn changed(file: &mut Option<Changes>) {
    match file {
        Some(file) => file.next().await,
        None => std::future::pending().await,
    }
}

/// What other commands need to find this `ramen up`.
fn flags(args: &UpArgs) -> String {
    let dir = args.state_dir.as_deref().map(|dir| dir.to_string_lossy());
    dir.map_or_else(String::new, |dir| {
        format!(" --state-dir {}", output::word(&dir))
    })
}

/// Prints one piece of news; the flags for the hint for clients, while that is still to be given.
fn show(news: News, board: &mut Board, hint: Option<String>) -> Option<String> {
    match news {
        News::Status(status) => {
            board.update(&status);
            if let Some(flags) = hint.as_ref().filter(|_| status.ready) {
                let group = board.called(&status.namespace, &status.name);
                let group = format!("--group {group}{flags}");
                if let Some(url) = &status.url {
                    board.remark(&format!(
                        "over HTTP: {url} with `Authorization: Bearer` and the group's key; in a shell: `eval \"$(ramen bridge {group} --print-config env)\"`"
                    ));
                }
                board.remark(&format!(
                    "connect a client: `ramen bridge {group} --print-config claude|cursor|vscode`; try it: `ramen ls {group}`"
                ));
                return None;
            }
        }
        News::Progress(key, text) => board.progress(&key, &text),
        News::Remark(text) => board.remark(&text),
    }
    hint
}

impl Groups {
    /// Takes what a group tells of itself to those who serve it.
    fn hear(&self, news: &mut News) {
        if let News::Status(status) = news {
            if let Some(front) = &self.front {
                front.update(&self.machine.state, status);
                status.url = front.url(&(status.namespace.clone(), status.name.clone()));
            }
            self.desk.update(status);
        }
    }

    /// Starts, changes and ends groups until they are those of the plan.
    async fn apply(&mut self, plan: Plan, board: &mut Board) {
        for remark in &plan.remarks {
            board.remark(remark);
        }
        let faulty = plan.faulty.iter().map(|(key, _)| key);
        for key in plan.groups.iter().map(|spec| &spec.key).chain(faulty) {
            board.expect(key);
        }
        let mut left = std::mem::take(&mut self.running);
        for (key, faults) in plan.faulty {
            let why = faults.join("; ");
            if let Some(handle) = left.remove(&key) {
                board.remark(&format!("{}: goes on as it was: {why}", key.1));
                self.running.insert(key, handle);
            } else {
                let message = why;
                board.update(&Status {
                    message,
                    ..Status::new(&key.0, &key.1)
                });
            }
        }
        for spec in plan.groups {
            let key = spec.key.clone();
            if let Some(front) = &self.front {
                let (upstreams, access) = (&spec.upstreams, spec.access.as_ref());
                front.offer(&self.machine.state, &key, upstreams, access);
            }
            let handle = match left.remove(&key) {
                Some(handle) => {
                    handle.spec.send_replace(Arc::new(spec));
                    handle
                }
                None => group::start(Arc::clone(&self.machine), spec, self.news.clone()),
            };
            self.running.insert(key, handle);
        }
        let doors = self
            .running
            .iter()
            .map(|(key, handle)| (key.clone(), handle.poke.clone()))
            .collect();
        *self
            .doors
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = doors;
        for (key, handle) in &self.running {
            self.desk
                .reach(key, handle.spec.clone(), handle.poke.clone());
        }
        for (key, handle) in left {
            if let Some(front) = &self.front {
                front.forget(&key);
            }
            self.desk.forget(&key);
            handle.stop().await;
            board.forget(&key);
        }
    }

    /// Opens the control socket and answers it in a task of its own.
    fn control(&self) -> std::io::Result<tokio::task::JoinHandle<()>> {
        let listener = control::listen(&self.machine.state.socket())?;
        let doors = Arc::clone(&self.doors);
        let served = self.front.as_ref().map(Front::served);
        Ok(tokio::spawn(control::serve(
            listener,
            move |asked, wanted| {
                let poke = match asked {
                    Asked::Look => Poke::Look,
                    Asked::Again => Poke::Again(token()),
                    Asked::Keys => {
                        // Of all groups: that is cheap, and a name may be one of several.
                        if let Some(served) = &served {
                            served.look_at_keys();
                        }
                        return Ok(0);
                    }
                };
                let doors = doors
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                let matches = |key: &Key| {
                    wanted.is_empty() || wanted == key.1 || wanted == format!("{}/{}", key.0, key.1)
                };
                let poked = doors
                    .iter()
                    .filter(|(key, door)| matches(key) && door.send(poke.clone()).is_ok())
                    .count();
                if poked == 0 && !wanted.is_empty() {
                    return Err(format!("there is no group {wanted}"));
                }
                Ok(poked)
            },
        )))
    }
}

/// A token that was never used before.
fn token() -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    now.as_nanos().to_string()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        up: UpArgs,
    }

    #[test]
    fn the_hint_names_the_group_and_the_state_directory_as_the_next_command_needs_them() {
        let line = Line::parse_from(["up", "x", "--state-dir", "a b"]);
        assert_eq!(flags(&line.up), " --state-dir 'a b'");
        let mut status = Status::new("default", "calc");
        let mut board = Board::new(Format::Json);
        let hint = || Some(flags(&line.up));
        let told = show(News::Status(Box::new(status.clone())), &mut board, hint());
        assert!(told.is_some(), "it is not ready");
        status.ready = true;
        let told = show(News::Status(Box::new(status)), &mut board, hint());
        assert_eq!(told, None);
    }
}
