//! The thread that forks.
//!
//! `PR_SET_PDEATHSIG` is tied to the *thread* that forked, not to the process: a host forked by a
//! worker thread of the runtime would be killed when that thread ends. So one thread does it all,
//! and lives as long as the process.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};

use tokio::sync::oneshot;

/// How much hosts stand back behind the front: it hands over calls and answers, and tells who asks
/// whether the worker is well, while tools burn all the CPU there is.
const NICE: i32 = 5;
/// The host's end of the channel.
const CHANNEL_FD: i32 = 3;

/// What to start. The environment is exactly `env`.
pub(super) struct Order {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) cwd: PathBuf,
    pub(super) channel: OwnedFd,
}

struct Job {
    order: Order,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// Forks on the spawner thread.
pub(super) async fn spawn(order: Order) -> io::Result<Child> {
    static THREAD: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let sender = THREAD.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        let thread = std::thread::Builder::new()
            .name("spawner".into())
            .stack_size(128 * 1024)
            .spawn(move || {
                for job in jobs {
                    // A receiver that went away drops the child: it is killed through its channel.
                    let _ = job.reply.send(start(job.order));
                }
            });
        drop(thread);
        sender
    });
    let (reply, answer) = oneshot::channel();
    sender
        .send(Job { order, reply })
        .map_err(|_| io::Error::other("the spawner thread could not be started"))?;
    answer
        .await
        .map_err(|_| io::Error::other("the spawner thread ended"))?
}

fn start(order: Order) -> io::Result<Child> {
    let Order {
        program,
        args,
        env,
        cwd,
        channel,
    } = order;
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .envs(env)
        .current_dir(cwd)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let fd = channel.as_raw_fd();
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only async-signal-safe system calls run, nothing allocates and
    // no lock is taken. `fd` stays open: `channel` lives until after `spawn` below. `CHANNEL_FD` is
    // not std's own error pipe, because the runtime's epoll instance was opened long before it.
    #[expect(unsafe_code, reason = "pre_exec is the only way to prepare a child")]
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            rustix::thread::set_no_new_privs(true)?;
            // Where it may not, they stay level.
            libc::nice(NICE);
            let done = if fd == CHANNEL_FD {
                libc::fcntl(fd, libc::F_SETFD, 0)
            } else {
                libc::dup2(fd, CHANNEL_FD)
            };
            if done < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(())
            }
        });
    }
    let child = command.spawn();
    drop(channel);
    child
}
