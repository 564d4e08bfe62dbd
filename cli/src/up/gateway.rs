//! The gateway in this process: every group at `http://127.0.0.1:8080/<namespace>/<group>/mcp`.
//!
//! It learns of groups from their status and of keys from their files, as on a cluster it learns of
//! them from the API server.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ramen_gateway::callers::{Callers, Limits};
use ramen_gateway::door::Door;
use ramen_gateway::oidc::SettingsFile;
use ramen_gateway::operations::{
    Grant, Keyring, Level, Operations, Operators, Rule, path_beside, platform,
};
use ramen_gateway::origin::Sites;
use ramen_gateway::recent::Recent;
use ramen_gateway::upstreams::{Policy, UpstreamSpec};
use ramen_gateway::{Gateway, GroupName, GroupSpec, Groups, Oidc, WorkerAt, gateway, listener};
use ramen_group::{AccessRules, AddressRule, CidrSet, KeyFiles, KeyPrint};
use ramen_redact::KeySet;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::desk::Desk;
use super::group::Key;
use super::keys;
use super::status::Status;
use crate::connect::read_key;
use crate::state::{GroupDir, GroupInfo, StateDir, read_json, write_atomic};

/// Where clients expect it.
const PORT: u16 = 8080;
/// How often key files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The deadline of one call, the worker's own default.
const CALL_TIMEOUT: Duration = Duration::from_mins(2);
/// Connections at once.
const MAX_CONNECTIONS: usize = 4096;
/// Who may call: this machine.
const LOOPBACK: &str = "127.0.0.0/8,::1/128";

/// The running gateway. It ends with this.
pub(super) struct Front {
    url: String,
    served: Served,
    stop: watch::Sender<bool>,
}

/// The groups that it serves, and what is known of them.
#[derive(Clone)]
pub(super) struct Served {
    groups: Groups,
    known: Arc<Mutex<BTreeMap<Key, Known>>>,
}

/// Who is let in besides the bearers of the keys that are made here.
#[derive(Clone, Copy, Default)]
pub(super) struct Trust<'a> {
    /// File that says whose tokens count.
    pub(super) oidc: Option<&'a Path>,
    /// Folder of operators.
    pub(super) operators: Option<&'a Path>,
}

/// What is known of a group.
struct Known {
    dir: GroupDir,
    worker: Option<String>,
    access: Option<Arc<AccessRules>>,
    seen: KeyPrint,
    upstreams: Vec<UpstreamSpec>,
}

impl Known {
    fn of<'k>(all: &'k mut BTreeMap<Key, Self>, state: &StateDir, key: &Key) -> &'k mut Self {
        all.entry(key.clone()).or_insert_with(|| Self {
            dir: state.group(&key.0, &key.1),
            worker: None,
            access: None,
            seen: KeyPrint::default(),
            upstreams: Vec::new(),
        })
    }
}

impl Front {
    /// Listens at `listen`; without it at port 8080 of this machine, or where it listened last, or at a
    /// free port.
    pub(super) async fn open(
        state: &StateDir,
        listen: Option<SocketAddr>,
        upstreams: Policy,
        trust: Trust<'_>,
        desk: &Desk,
    ) -> io::Result<Self> {
        let listener = bind(state, listen).await?;
        let address = listener.local_addr()?;
        write_atomic(&state.gateway(), address.to_string().as_bytes())?;
        let oidc = trust.oidc.map(|file| trusted(file, address)).transpose()?;
        let (stop, stopping) = watch::channel(false);
        let groups = Groups::new(upstreams);
        let recent = Arc::<Recent>::default();
        let keyring = keyring(state, trust.operators, oidc.clone())?;
        let operations = operations(keyring, desk, &groups, &recent)?;
        let gateway = Arc::new(Gateway {
            groups: groups.clone(),
            door: Door {
                address: AddressRule::default(),
                sites: Sites {
                    loopback: address.ip().is_loopback(),
                    ..Sites::default()
                },
                callers: Callers::new(Limits::default()),
            },
            call_timeout: CALL_TIMEOUT,
            stopping,
            oidc,
            operations: Some(operations),
            recent,
            metrics: Arc::default(),
            info: gateway::info(),
        });
        tokio::spawn(listener::serve(listener, gateway, None, MAX_CONNECTIONS));
        let served = Served {
            groups,
            known: Arc::default(),
        };
        tokio::spawn(watch_keys(served.clone(), stop.subscribe()));
        Ok(Self {
            url: format!("http://{address}"),
            served,
            stop,
        })
    }

    /// What it serves, for those who outlive a borrow of it.
    pub(super) fn served(&self) -> Served {
        self.served.clone()
    }

    /// The address of a group, when it has one of its own.
    pub(super) fn url(&self, key: &Key) -> Option<String> {
        path_beside(&name_of(key)).map(|path| format!("{}{path}", self.url))
    }

    /// Takes what a status says about the worker of a group.
    pub(super) fn update(&self, state: &StateDir, status: &Status) {
        let key = (status.namespace.clone(), status.name.clone());
        let mut all = self.served.locked();
        let known = Known::of(&mut all, state, &key);
        if known.worker != status.address {
            known.worker.clone_from(&status.address);
            serve(&self.served.groups, &key, known);
        }
    }

    /// Takes what a file of groups says about the upstreams of one, and about who may use what of it.
    pub(super) fn offer(
        &self,
        state: &StateDir,
        key: &Key,
        upstreams: &[UpstreamSpec],
        access: Option<&Arc<AccessRules>>,
    ) {
        let mut all = self.served.locked();
        let known = Known::of(&mut all, state, key);
        if known.upstreams != upstreams || known.access.as_ref() != access {
            known.upstreams = upstreams.to_vec();
            known.access = access.cloned();
            serve(&self.served.groups, key, known);
        }
    }

    /// Serves this group no more.
    pub(super) fn forget(&self, key: &Key) {
        self.served.locked().remove(key);
        self.served.groups.remove(&name_of(key));
    }
}

impl Served {
    fn locked(&self) -> MutexGuard<'_, BTreeMap<Key, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes other keys where their files changed.
    pub(super) fn look_at_keys(&self) {
        for (key, known) in self.locked().iter_mut() {
            if files(&known.dir).print() != known.seen {
                serve(&self.groups, key, known);
            }
        }
    }
}

/// Whether the file says whose tokens count, before anything is started.
pub(super) fn check_oidc(file: &Path) -> Result<(), String> {
    let read = SettingsFile::read(file.to_owned(), Some("http://127.0.0.1".to_owned()));
    read.map(|_| ()).map_err(|error| error.to_string())
}

/// Those whose tokens count, as the file says from now on. Clients reach the gateway where it listens, unless the file says something else.
fn trusted(file: &Path, address: SocketAddr) -> io::Result<Arc<Oidc>> {
    let file = SettingsFile::read(file.to_owned(), Some(format!("http://{address}")));
    Ok(file.map_err(io::Error::other)?.follow())
}

/// Who operates it: whoever has the key in the state directory, and those that the folder names.
fn keyring(
    state: &StateDir,
    operators: Option<&Path>,
    oidc: Option<Arc<Oidc>>,
) -> io::Result<Arc<Keyring>> {
    let own = vec![Grant {
        name: String::new(),
        keys: KeySet::from_lines(&keys::operator(state)?),
        rule: Some(Rule::everywhere(Level::Write)),
    }];
    if let Some(dir) = operators {
        return Ok(Operators::read(dir.to_owned(), own, oidc, None).follow());
    }
    let keyring = Keyring::default();
    keyring.set(own);
    Ok(Arc::new(keyring))
}

/// The platform's operations.
fn operations(
    keyring: Arc<Keyring>,
    desk: &Desk,
    groups: &Groups,
    recent: &Arc<Recent>,
) -> io::Result<Operations> {
    platform::mount(
        Arc::new(desk.clone()),
        groups.clone(),
        Arc::clone(recent),
        keyring,
        CidrSet::parse_list(LOOPBACK).unwrap_or_default(),
        "This is `ramen up` on one machine.",
    )
    .map_err(io::Error::other)
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn bind(state: &StateDir, listen: Option<SocketAddr>) -> io::Result<TcpListener> {
    if let Some(listen) = listen {
        return TcpListener::bind(listen).await;
    }
    let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let last = std::fs::read_to_string(state.gateway()).ok();
    let last = last.and_then(|text| text.trim().parse::<SocketAddr>().ok());
    for address in last
        .into_iter()
        .filter(|last| last.ip().is_loopback())
        .chain([local(PORT)])
    {
        if let Ok(listener) = TcpListener::bind(address).await {
            return Ok(listener);
        }
    }
    TcpListener::bind(local(0)).await
}

fn name_of((namespace, name): &Key) -> GroupName {
    GroupName {
        namespace: namespace.clone(),
        name: name.clone(),
    }
}

fn files(dir: &GroupDir) -> KeyFiles {
    KeyFiles {
        dir: Some(dir.keys()),
        file: None,
    }
}

/// Serves a group as its files and its worker are now.
fn serve(groups: &Groups, key: &Key, known: &mut Known) {
    let files = files(&known.dir);
    known.seen = files.print();
    let (keys, _) = files.read();
    // Any key opens the worker; without one nobody gets as far.
    let own =
        read_json::<GroupInfo>(&known.dir.info()).and_then(|info| read_key(&info.key_file).ok());
    groups.set(&GroupSpec {
        name: name_of(key),
        keys,
        access: known.access.clone(),
        ranges: CidrSet::parse_list(LOOPBACK).unwrap_or_default(),
        worker_key: own.unwrap_or_default().into(),
        workers: known.worker.iter().cloned().map(WorkerAt::from).collect(),
        upstreams: known.upstreams.clone(),
    });
}

/// Takes other keys when their files change.
async fn watch_keys(served: Served, mut stopping: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        served.look_at_keys();
    }
}
