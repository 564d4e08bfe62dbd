//! What is left of a program that was killed: a guard, a small process beside it, ends the servers that it started.
//!
//! The guard reads from the program which groups of processes there are, and which have ended. When its stdin ends, the
//! program is gone, however it went; the groups that are left then are ended. A death signal of the kernel would not do: it
//! reaches the server and not what that started, and it is tied to the thread that forked.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, Write as _};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// How long groups have between `SIGTERM` and `SIGKILL`.
const GRACE: Duration = Duration::from_secs(1);
/// Between two looks at whether they are gone.
const LOOK: Duration = Duration::from_millis(20);

type Make = dyn Fn() -> std::process::Command + Send + Sync;

/// Ends servers that are programs when this one is killed. Cheap to clone; the process starts with the first server.
#[derive(Clone)]
pub struct Guard(Arc<Inner>);

struct Inner {
    make: Box<Make>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    groups: BTreeSet<i32>,
    pipe: Option<File>,
    failed: bool,
}

impl Guard {
    /// A guard in a process that is made so, from an absolute path, and calls [`run`] with its stdin.
    pub fn new(make: impl Fn() -> std::process::Command + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            make: Box::new(make),
            state: Mutex::default(),
        }))
    }

    /// Starts its process, if it is not there yet: before the first server, so that nothing comes between that and its being
    /// watched.
    pub(crate) fn begin(&self) {
        let mut state = self.state();
        if state.pipe.is_none() {
            self.start(&mut state);
        }
    }

    /// This group is to be ended when we are gone.
    pub(crate) fn watch(&self, group: Pid) {
        self.tell(group, true);
    }

    /// This group is ended; to be said before its leader is reaped, since its number may be another's then.
    pub(crate) fn forget(&self, group: Pid) {
        self.tell(group, false);
    }

    fn tell(&self, group: Pid, there: bool) {
        let group = group.as_raw_nonzero().get();
        let mut state = self.state();
        let line = if there {
            state.groups.insert(group);
            format!("+{group}\n")
        } else {
            state.groups.remove(&group);
            format!("-{group}\n")
        };
        if let Some(pipe) = &mut state.pipe
            && pipe.write_all(line.as_bytes()).is_ok()
        {
            return;
        }
        // Somebody ended it.
        state.pipe = None;
        if !state.groups.is_empty() {
            self.start(&mut state);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.0.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, state: &mut State) {
        if state.failed {
            return;
        }
        match self.0.start(&state.groups) {
            Ok(pipe) => state.pipe = Some(pipe),
            Err(error) => {
                state.failed = true;
                tracing::warn!(%error, "servers may be left behind if this program is killed: their guard cannot be started");
            }
        }
    }
}

impl Inner {
    fn start(&self, groups: &BTreeSet<i32>) -> io::Result<File> {
        let mut command = tokio::process::Command::from((self.make)());
        command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Whoever ends our group does not mean it.
            .process_group(0);
        // Not waited for: the runtime reaps it once it has ended.
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let stdin = stdin.ok_or_else(|| io::Error::other("a pipe is missing"))?;
        let mut pipe = File::from(stdin.into_owned_fd()?);
        for group in groups {
            pipe.write_all(format!("+{group}\n").as_bytes())?;
        }
        Ok(pipe)
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

/// The work of the guard's process: reads to the end of its input, then ends what is left.
pub fn run(input: impl BufRead) {
    let mut groups: Vec<Pid> = Vec::new();
    for line in input.lines() {
        let Ok(line) = line else { break };
        if let Some(group) = line.strip_prefix('+').and_then(read) {
            groups.push(group);
        } else if let Some(group) = line.strip_prefix('-').and_then(read) {
            groups.retain(|there| *there != group);
        }
    }
    let begun = Instant::now();
    end(&groups, Signal::TERM);
    loop {
        groups.retain(|group| test_kill_process_group(*group) != Err(Errno::SRCH));
        if groups.is_empty() {
            return;
        }
        if begun.elapsed() >= GRACE {
            return end(&groups, Signal::KILL);
        }
        std::thread::sleep(LOOK);
    }
}

fn read(number: &str) -> Option<Pid> {
    Pid::from_raw(number.parse::<i32>().ok().filter(|number| *number > 0)?)
}

fn end(groups: &[Pid], signal: Signal) {
    for group in groups {
        // ESRCH: everything in it ended by itself.
        let _ = kill_process_group(*group, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Child, Command};

    use super::*;

    /// A group that is deaf to `SIGTERM` by the time that this returns.
    fn deaf() -> (Child, u32) {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut said).unwrap();
        assert_eq!(said, "deaf\n");
        let id = child.id();
        (child, id)
    }

    #[test]
    fn groups_that_are_left_are_ended_however_deaf_and_those_that_ended_are_let_alone() {
        let ((mut left, left_id), (mut ended, ended_id)) = (deaf(), deaf());
        let told = format!("+{left_id}\n+{ended_id}\nnonsense\n+-5\n-{ended_id}\n");
        run(told.as_bytes());
        assert_eq!(left.wait().unwrap().signal(), Some(9));
        assert!(ended.try_wait().unwrap().is_none());
        let group = read(&ended_id.to_string()).unwrap();
        end(&[group], Signal::KILL);
        ended.wait().unwrap();
    }
}
