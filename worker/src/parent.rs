//! Ends with the program that started this one, however that ended.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};

use crate::{config, names};

/// Watches the parent when `RAMEN_PARENT_PID` names it, and sends this process SIGTERM when it is
/// gone. A death signal of the kernel would not do: it is tied to the parent's thread that forked.
pub fn watch() {
    let Some(pid) = config::inherited(names::PARENT_PID) else {
        return;
    };
    let parent = pid.parse().ok().and_then(Pid::from_raw);
    let watched = parent.map(|parent| pidfd_open(parent, PidfdFlags::empty()));
    match (parent, watched) {
        (Some(parent), Some(Ok(pidfd))) if getppid() == Some(parent) => {
            let watching = std::thread::Builder::new()
                .name("parent".into())
                .stack_size(64 * 1024)
                .spawn(move || {
                    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
                    while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
                    end();
                });
            drop(watching);
        }
        // It ended before we could look, or it never was our parent.
        _ => end(),
    }
}

fn end() {
    // There is nobody to tell when even this fails.
    let _ = kill_process(getpid(), Signal::TERM);
}
