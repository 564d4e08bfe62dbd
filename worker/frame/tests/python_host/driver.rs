//! Starts hosts and speaks frames with them.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ramen_frame::{
    Decoder, FromHost, Load, LoadPackage, Loaded, LoadedPackage, Log, PackageKind, Progress, Stats,
    Status, ToHost,
};
use serde_json::Value;
use tempfile::TempDir;

/// Hang guard of everything that is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// A group on disk, under construction.
pub(crate) struct Group {
    pub(crate) folder: TempDir,
    packages: Vec<LoadPackage>,
    pub(crate) deps: Option<PathBuf>,
    pub(crate) exported: BTreeMap<String, String>,
    pub(crate) process_env: Vec<(String, String)>,
    pub(crate) uid: Option<u32>,
    pub(crate) threads: usize,
}

impl Group {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            packages: Vec::new(),
            deps: None,
            exported: BTreeMap::new(),
            process_env: Vec::new(),
            uid: None,
            threads: 8,
        }
    }

    pub(crate) fn tool(self, name: &str, params: &[&str], source: &str) -> Self {
        self.package(PackageKind::Tool, name, params, source)
    }

    pub(crate) fn resource(self, name: &str, source: &str) -> Self {
        self.package(PackageKind::Resource, name, &[], source)
    }

    /// The callable is always `run`.
    pub(crate) fn package(
        mut self,
        kind: PackageKind,
        name: &str,
        params: &[&str],
        source: &str,
    ) -> Self {
        let kinds = if kind == PackageKind::Tool {
            "tools"
        } else {
            "resources"
        };
        let dir = format!("{kinds}/{name}");
        let params = params
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>();
        self.packages.push(LoadPackage {
            id: u32::try_from(self.packages.len()).unwrap() + 10,
            kind,
            name: name.to_owned(),
            dir: dir.clone(),
            callable: "run".to_owned(),
            required: params.clone(),
            params,
        });
        self.file(&format!("{dir}/{name}.py"), source)
    }

    pub(crate) fn file(self, path: &str, contents: impl AsRef<[u8]>) -> Self {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
        self
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.process_env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_deps(mut self, folder: PathBuf) -> Self {
        self.deps = Some(folder);
        self
    }

    pub(crate) fn reversed(mut self) -> Self {
        self.packages.reverse();
        self
    }

    /// Starts a host and loads the group into it.
    pub(crate) fn start(&self, python: &Python) -> Host {
        let mut host = Host::spawn(python, self);
        host.send(&ToHost::Load(Load {
            group: "demo".to_owned(),
            code_dir: self.folder.path().to_string_lossy().into_owned(),
            deps_dir: self
                .deps
                .as_ref()
                .map(|path| path.to_string_lossy().into_owned()),
            packages: self.packages.clone(),
            env: self.exported.clone(),
            threads: self.threads,
            switch_interval_ms: 1,
        }));
        host.loaded = host.wait_for(|event| match event {
            Event::Loaded(loaded) => Some(loaded),
            _ => None,
        });
        for package in &self.packages {
            host.ids.insert(package.name.clone(), package.id);
        }
        host
    }
}

/// One interpreter that a host was built for.
pub(crate) struct Python {
    pub(crate) minor: u32,
    pub(crate) host: PathBuf,
}

impl Python {
    /// What its host says of itself.
    pub(crate) fn describe(&self) -> Value {
        let described = Command::new(&self.host).arg("--describe").output().unwrap();
        serde_json::from_slice(&described.stdout).unwrap()
    }
}

/// Runs a test for every host there is.
pub(crate) fn each_python(test: impl Fn(&Python)) {
    let pythons = pythons();
    assert!(
        !pythons.is_empty(),
        "no ramen-host-3.x found: run `cargo xtask hosts`"
    );
    for python in pythons {
        println!("with {}", python.host.display());
        test(&python);
    }
}

fn pythons() -> Vec<Python> {
    let folder = ["RAMEN_HOST_DIR", "RAMEN_BIN_DIR"]
        .iter()
        .find_map(std::env::var_os)
        .map_or_else(built, PathBuf::from);
    (11..=14)
        .map(|minor| Python {
            minor,
            host: folder.join(format!("ramen-host-3.{minor}")),
        })
        .filter(|python| python.host.is_file())
        .collect()
}

/// `target/debug`, from where this very program lies in it.
fn built() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program
        .parent()
        .and_then(Path::parent)
        .unwrap()
        .to_path_buf()
}

/// What a host says.
#[derive(Debug)]
pub(crate) enum Event {
    Importing(u32),
    Loaded(Loaded),
    Result(u64, Reply),
    Progress(u64, Progress),
    Log(u64, Log),
    Stats(Stats),
}

/// The end of a call.
#[derive(Debug, PartialEq, Eq, Clone)]
pub(crate) struct Reply {
    pub(crate) status: Status,
    pub(crate) payload: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).expect("a RESULT is UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        assert!(
            matches!(self.status, Status::Json | Status::Content),
            "{self:?}"
        );
        serde_json::from_slice(&self.payload).unwrap()
    }

    /// The line for the caller.
    pub(crate) fn error(&self) -> &str {
        assert_eq!(self.status, Status::Error, "{}", self.text());
        let (line, _place) = ramen_frame::error_parts(&self.payload);
        std::str::from_utf8(line).expect("a RESULT is UTF-8")
    }

    pub(crate) fn ok_text(&self) -> &str {
        assert_eq!(self.status, Status::Text, "{}", self.text());
        self.text()
    }
}

/// A running host.
pub(crate) struct Host {
    pub(crate) child: Child,
    pub(crate) socket: UnixStream,
    decoder: Decoder,
    pub(crate) loaded: Loaded,
    pub(crate) ids: BTreeMap<String, u32>,
    next_call: u64,
    /// Results that came while another was waited for.
    early: BTreeMap<u64, Reply>,
    /// Everything else that came meanwhile.
    pub(crate) events: Vec<Event>,
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Host {
    fn spawn(python: &Python, group: &Group) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let fd = theirs.as_raw_fd();
        let mut command = Command::new(&python.host);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(group.process_env.iter().map(|(name, value)| (name, value)))
            .current_dir(group.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(uid) = group.uid {
            command.uid(uid).gid(uid);
        }
        // SAFETY: only dup2 and fcntl run between fork and exec.
        unsafe {
            command.pre_exec(move || {
                let done = if fd == 3 {
                    libc::fcntl(3, libc::F_SETFD, 0)
                } else {
                    libc::dup2(fd, 3)
                };
                if done < 0 {
                    Err(std::io::Error::last_os_error())
                } else {
                    Ok(())
                }
            });
        }
        let child = command.spawn().unwrap();
        Self {
            child,
            socket: ours,
            decoder: Decoder::new(),
            loaded: Loaded {
                packages: vec![],
                threads: 0,
                python: String::new(),
                warnings: vec![],
            },
            ids: BTreeMap::new(),
            next_call: 0,
            early: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, message: &ToHost<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        self.socket.write_all(&bytes).unwrap();
    }

    /// The next frame; `None` = the host closed the channel.
    pub(crate) fn event(&mut self) -> Option<Event> {
        let began = Instant::now();
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some(match FromHost::parse(frame).unwrap() {
                    FromHost::Importing(importing) => Event::Importing(importing.id),
                    FromHost::Loaded(loaded) => Event::Loaded(loaded),
                    FromHost::Result {
                        call,
                        status,
                        payload,
                    } => Event::Result(
                        call,
                        Reply {
                            status,
                            payload: payload.to_vec(),
                        },
                    ),
                    FromHost::Progress { call, update } => Event::Progress(call, update),
                    FromHost::Log { call, entry } => Event::Log(call, entry),
                    FromHost::Stats(stats) => Event::Stats(stats),
                });
            }
            let mut buffer = [0; 16384];
            let read = self
                .socket
                .read(&mut buffer)
                .expect("the host answers in time");
            if read == 0 {
                return None;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "the host goes on without what is waited for"
            );
            self.decoder.push(&buffer[..read]);
        }
    }

    pub(crate) fn wait_for<T>(&mut self, mut pick: impl FnMut(Event) -> Option<T>) -> T {
        loop {
            let event = self.event().expect("the host lives");
            if let Event::Importing(_) | Event::Progress(..) | Event::Log(..) = event {
                self.events.push(event);
            } else if let Some(found) = pick(event) {
                return found;
            }
        }
    }

    /// Sends a call and gives its id.
    pub(crate) fn begin(&mut self, package: &str, arguments: &Value) -> u64 {
        self.next_call += 1;
        let (call, package) = (self.next_call, self.ids[package]);
        let arguments = arguments.to_string();
        self.send(&ToHost::Call {
            call,
            package,
            arguments: arguments.as_bytes(),
        });
        call
    }

    /// Waits for the result of a call.
    pub(crate) fn result(&mut self, call: u64) -> Reply {
        loop {
            if let Some(reply) = self.early.remove(&call) {
                return reply;
            }
            let (other, reply) = self.wait_for(|event| match event {
                Event::Result(call, reply) => Some((call, reply)),
                _ => None,
            });
            self.early.insert(other, reply);
        }
    }

    pub(crate) fn call(&mut self, package: &str, arguments: &Value) -> Reply {
        let call = self.begin(package, arguments);
        self.result(call)
    }

    /// A call without arguments.
    pub(crate) fn run(&mut self, package: &str) -> Reply {
        self.call(package, &serde_json::json!({}))
    }

    pub(crate) fn stats(&mut self) -> Stats {
        self.send(&ToHost::Stats);
        self.wait_for(|event| match event {
            Event::Stats(stats) => Some(stats),
            _ => None,
        })
    }

    pub(crate) fn outcome(&self, package: &str) -> &LoadedPackage {
        let id = self.ids[package];
        self.loaded
            .packages
            .iter()
            .find(|entry| entry.id == id)
            .unwrap()
    }

    pub(crate) fn assert_ok(&self, package: &str) {
        let outcome = self.outcome(package);
        assert!(outcome.ok, "{outcome:?}");
    }

    pub(crate) fn assert_fault(&self, package: &str, reason: &str, words: &[&str]) {
        let outcome = self.outcome(package);
        assert_eq!(outcome.reason.as_deref(), Some(reason), "{outcome:?}");
        let message = outcome.message.as_deref().unwrap();
        for word in words {
            assert!(message.contains(word), "{message:?} does not hold {word:?}");
        }
        assert!(!message.contains('\n'));
    }
}
