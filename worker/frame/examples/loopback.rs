//! Speed of one host alone, without a front: `cargo run --release -p ramen-frame --example loopback -- HOST [SECONDS]`.
//! Prints calls per second and the host's CPU time per call, by calls in flight.
#![expect(
    unsafe_code,
    clippy::print_stdout,
    reason = "a tool: starts the host with its socket on file descriptor 3"
)]
#![expect(clippy::unwrap_used, reason = "a tool: it may stop at any surprise")]

use std::{
    fs,
    io::{Read as _, Write as _},
    os::{
        fd::AsRawFd as _,
        unix::{net::UnixStream, process::CommandExt as _},
    },
    process::Command,
    time::{Duration, Instant},
};

use ramen_frame::{Decoder, FromHost, Load, LoadPackage, PackageKind, ToHost};

const CALCULATOR: &str = "def run(var1, var2, func):\n    \
    if func == 'add': return var1 + var2\n    \
    if func == 'multiply': return var1 * var2\n    \
    raise ValueError(func)\n";
const ECHO: &str = "def run(rows): return rows\n";
const ASYNC: &str = "async def run(): return 1\n";

#[expect(
    clippy::too_many_lines,
    reason = "a tool that does one thing after the other"
)]
fn main() {
    let host = std::env::args().nth(1).unwrap();
    let seconds = std::env::args()
        .nth(2)
        .map_or(1.0, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut packages = Vec::new();
    for (id, (name, source, params)) in [
        ("calc", CALCULATOR, &["var1", "var2", "func"][..]),
        ("echo", ECHO, &["rows"]),
        ("async", ASYNC, &[]),
    ]
    .into_iter()
    .enumerate()
    {
        let dir = format!("tools/{name}");
        fs::create_dir_all(folder.path().join(&dir)).unwrap();
        fs::write(folder.path().join(&dir).join(format!("{name}.py")), source).unwrap();
        let params = params
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>();
        packages.push(LoadPackage {
            id: u32::try_from(id).unwrap(),
            kind: PackageKind::Tool,
            name: name.to_owned(),
            dir,
            callable: "run".to_owned(),
            required: params.clone(),
            params,
        });
    }
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let fd = theirs.as_raw_fd();
    let mut command = Command::new(host);
    // SAFETY: only dup2 runs between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::dup2(fd, 3) < 0 {
                Err(std::io::Error::last_os_error())
            } else {
                Ok(())
            }
        });
    }
    let began = Instant::now();
    let mut child = command.spawn().unwrap();
    let load = Load {
        group: "bench".to_owned(),
        code_dir: folder.path().to_string_lossy().into_owned(),
        packages,
        ..Load::default()
    };
    send(&mut ours, &ToHost::Load(load));
    let mut decoder = Decoder::new();
    wait(&mut ours, &mut decoder, |message| {
        matches!(message, FromHost::Loaded(_))
    });
    println!("ready after {:.1} ms", began.elapsed().as_secs_f64() * 1e3);
    let rows = (0..2000)
        .map(|n| format!("{{\"id\":{n},\"name\":\"row {n}\",\"value\":{n}.5,\"ok\":true}}"))
        .collect::<Vec<_>>()
        .join(",");
    let small = br#"{"var1":6,"var2":7,"func":"multiply"}"#.to_vec();
    let large = format!("{{\"rows\":[{rows}]}}").into_bytes();
    for (name, package, arguments) in [
        ("calc", 0, &small),
        ("echo", 1, &large),
        ("async", 2, &b"{}".to_vec()),
    ] {
        for in_flight in [1, 8, 64] {
            let before = cpu(child.id());
            let began = Instant::now();
            let (mut sent, mut done) = (0_u32, 0_u32);
            let enough = Duration::from_secs_f64(seconds);
            while began.elapsed() < enough || done < sent {
                let mut bytes = Vec::new();
                while sent - done < in_flight && began.elapsed() < enough {
                    sent += 1;
                    let call = u64::from(sent);
                    let message = ToHost::Call {
                        call,
                        package,
                        arguments,
                    };
                    message.encode(&mut bytes).unwrap();
                }
                ours.write_all(&bytes).unwrap();
                let mut got = false;
                while let Some(frame) = decoder.next_frame().unwrap() {
                    FromHost::parse(frame).unwrap();
                    done += 1;
                    got = true;
                }
                if !got && done < sent {
                    read(&mut ours, &mut decoder);
                }
            }
            let took = began.elapsed().as_secs_f64();
            let used = cpu(child.id()) - before;
            println!(
                "{name:6} x{in_flight:<3} {:>9.0} calls/s  {:>8.2} us CPU of the host per call",
                f64::from(done) / took,
                used * 1e6 / f64::from(done)
            );
        }
    }
    let smaps = fs::read_to_string(format!("/proc/{}/smaps_rollup", child.id())).unwrap();
    println!(
        "{}",
        smaps.lines().find(|line| line.starts_with("Pss:")).unwrap()
    );
    send(&mut ours, &ToHost::Exit);
    child.wait().unwrap();
}

fn send(socket: &mut UnixStream, message: &ToHost<'_>) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    socket.write_all(&bytes).unwrap();
}

fn read(socket: &mut UnixStream, decoder: &mut Decoder) {
    let mut buffer = vec![0; 256 * 1024];
    let read = socket.read(&mut buffer).unwrap();
    assert!(read > 0, "the host is gone");
    decoder.push(buffer.get(..read).unwrap_or_default());
}

fn wait(
    socket: &mut UnixStream,
    decoder: &mut Decoder,
    mut enough: impl FnMut(FromHost<'_>) -> bool,
) {
    loop {
        while let Some(frame) = decoder.next_frame().unwrap() {
            if enough(FromHost::parse(frame).unwrap()) {
                return;
            }
        }
        read(socket, decoder);
    }
}

/// Seconds of user and system time of a process.
fn cpu(pid: u32) -> f64 {
    let mut total = 0.0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let stat = fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        total += stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9;
    }
    total
}
