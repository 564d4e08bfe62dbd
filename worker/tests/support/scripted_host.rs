//! A host without Python, for the tests of the front: each callable's name says what it does.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a host of tests: what surprises it must end it"
)]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ramen_frame::{
    Decoder, FromHost, Importing, Load, Loaded, LoadedPackage, Log, Progress, Stats, Status, ToHost,
};

#[derive(Default)]
struct Host {
    load: Load,
    /// Calls that wait, with their package.
    waiting: HashMap<u64, String>,
    cancels: usize,
    interrupts: usize,
    calls: u64,
}

fn main() {
    // SAFETY: the front starts us with one end of a socket pair as fd 3, and nobody else uses it.
    #[expect(unsafe_code, reason = "the channel arrives as a number")]
    let mut channel = unsafe { UnixStream::from_raw_fd(3) };
    let mut host = Host::default();
    let mut decoder = Decoder::new();
    let mut chunk = vec![0; 65536];
    loop {
        let read = channel.read(&mut chunk).unwrap();
        if read == 0 {
            return;
        }
        decoder.push(&chunk[..read]);
        let mut out = Vec::new();
        while let Some(frame) = decoder.next_frame().unwrap() {
            if !host.take(ToHost::parse(frame).unwrap(), &mut out) {
                channel.write_all(&out).unwrap();
                return;
            }
        }
        channel.write_all(&out).unwrap();
    }
}

fn result(out: &mut Vec<u8>, call: u64, status: Status, payload: &[u8]) {
    FromHost::Result {
        call,
        status,
        payload,
    }
    .encode(out)
    .unwrap();
}

impl Host {
    fn take(&mut self, frame: ToHost<'_>, out: &mut Vec<u8>) -> bool {
        match frame {
            ToHost::Load(load) => return self.load(load, out),
            ToHost::Call {
                call,
                package,
                arguments,
            } => {
                self.calls += 1;
                let what = self
                    .load
                    .packages
                    .iter()
                    .find(|one| one.id == package)
                    .unwrap();
                let what = what.callable.clone();
                self.call(call, &what, arguments, out);
            }
            ToHost::Cancel(call) => {
                self.cancels += 1;
                if self
                    .waiting
                    .get(&call)
                    .is_some_and(|what| what == "until_cancelled")
                {
                    self.waiting.remove(&call);
                    result(out, call, Status::Error, b"Cancelled: by the caller");
                }
            }
            ToHost::Interrupt(call) => {
                self.interrupts += 1;
                if self
                    .waiting
                    .get(&call)
                    .is_some_and(|what| what == "until_interrupted")
                {
                    self.waiting.remove(&call);
                    result(out, call, Status::Error, b"KeyboardInterrupt: ");
                }
            }
            ToHost::Stats => {
                let stats = Stats {
                    in_flight: self.waiting.len(),
                    threads: 1,
                    calls: self.calls,
                };
                FromHost::Stats(stats).encode(out).unwrap();
            }
            ToHost::Exit => return false,
        }
        true
    }

    fn load(&mut self, load: Load, out: &mut Vec<u8>) -> bool {
        let mut packages = Vec::new();
        for package in &load.packages {
            FromHost::Importing(Importing { id: package.id })
                .encode(out)
                .unwrap();
            let ok = package.callable != "refuses_to_load";
            if package.callable == "dies_at_load" {
                return false;
            }
            if package.callable == "waits_at_load" {
                // Until somebody has opened the pipe to write, and closed it.
                let pipe = std::env::var("RAMEN_SECRET_G__PIPE").unwrap();
                std::fs::read(pipe).unwrap();
            }
            packages.push(LoadedPackage {
                id: package.id,
                ok,
                reason: (!ok).then(|| "ImportFailed".into()),
                message: (!ok).then(|| "ImportError: on purpose".into()),
                is_async: false,
                ms: 0,
            });
        }
        let loaded = Loaded {
            packages,
            threads: 1,
            python: "3.11.0".into(),
            warnings: vec![],
        };
        FromHost::Loaded(loaded).encode(out).unwrap();
        self.load = load;
        true
    }

    fn call(&mut self, call: u64, what: &str, arguments: &[u8], out: &mut Vec<u8>) {
        match what {
            "echo" => result(out, call, Status::Json, arguments),
            "fail" => result(out, call, Status::Error, b"ValueError: on purpose"),
            "leak" => {
                let text = format!(
                    "RuntimeError: key {}",
                    std::env::var("RAMEN_SECRET_G__KEY").unwrap()
                );
                result(out, call, Status::Error, text.as_bytes());
            }
            "pid" => result(
                out,
                call,
                Status::Json,
                std::process::id().to_string().as_bytes(),
            ),
            "env" => {
                let env: std::collections::BTreeMap<_, _> = std::env::vars().collect();
                result(out, call, Status::Json, &serde_json::to_vec(&env).unwrap());
            }
            "seen" => {
                let seen = serde_json::json!({"cancels": self.cancels, "interrupts": self.interrupts,
                    "waiting": self.waiting.len()});
                result(out, call, Status::Json, seen.to_string().as_bytes());
            }
            "big" => {
                let size: serde_json::Value = serde_json::from_slice(arguments).unwrap();
                let size = usize::try_from(size["bytes"].as_u64().unwrap()).unwrap();
                result(out, call, Status::Text, &vec![b'x'; size]);
            }
            "controls" => result(out, call, Status::Text, &vec![1; 1_000_000]),
            "steps" => {
                for step in [1, 2, 2, 3] {
                    let update = Progress {
                        progress: step.into(),
                        total: Some(3.into()),
                        message: None,
                    };
                    FromHost::Progress { call, update }.encode(out).unwrap();
                }
                for (level, data) in [("debug", "\"fine\""), ("warning", "\"s3cr3t-value\"")] {
                    let data = serde_json::value::RawValue::from_string(data.into()).unwrap();
                    let entry = Log {
                        level: level.into(),
                        logger: None,
                        data,
                    };
                    FromHost::Log { call, entry }.encode(out).unwrap();
                }
                result(out, call, Status::Text, b"done");
            }
            "exit" => std::process::exit(9),
            "garbage" => out.extend_from_slice(&[0xff; 64]),
            "print" => {
                println!("printed s3cr3t-value");
                result(out, call, Status::Text, b"printed");
            }
            "fork" => {
                // A grandchild that keeps the channel open, then the host is gone.
                std::process::Command::new("sleep")
                    .arg("60")
                    .spawn()
                    .unwrap();
                std::process::exit(9);
            }
            "block" => std::thread::sleep(Duration::from_hours(1)),
            "wait" | "until_cancelled" | "until_interrupted" => {
                self.waiting.insert(call, what.to_owned());
            }
            "release" => {
                self.waiting.retain(|waiting, what| {
                    if what == "wait" {
                        result(out, *waiting, Status::Text, b"released");
                    }
                    what != "wait"
                });
                result(out, call, Status::Text, b"ok");
            }
            other => result(
                out,
                call,
                Status::Error,
                format!("NameError: {other}").as_bytes(),
            ),
        }
    }
}
