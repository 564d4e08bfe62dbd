//! Which processes came from a host, and what they hold.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::kib;

/// After so many looks all processes are looked at again: an id may have come round.
const FRESH: u32 = 100;

/// A process, by its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    parent: u32,
    pub(super) group: u32,
    session: u32,
    /// When it began, in ticks since the machine did: with this an id is one process for ever.
    begun: Option<u64>,
}

/// The processes of the machine, as far as this one sees them.
pub(super) struct Processes {
    proc: PathBuf,
    /// Those that are nobody's here: they are not read again at each look.
    strangers: HashSet<u32>,
    looks: u32,
}

impl Processes {
    /// `root` is `/`.
    pub(super) fn new(root: &Path) -> Self {
        Self {
            proc: root.join("proc"),
            strangers: HashSet::new(),
            looks: 0,
        }
    }

    /// For each of these hosts its processes: itself, what is in its group or its session, and what
    /// is a child of any of them.
    pub(super) fn families(&mut self, hosts: &[u32]) -> Vec<Vec<Process>> {
        self.looks += 1;
        if self.looks.is_multiple_of(FRESH) {
            self.strangers.clear();
        }
        let entries = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        let known: BTreeMap<u32, Process> = entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| hosts.contains(pid) || !self.strangers.contains(pid))
            .filter_map(|pid| Some((pid, self.read(pid)?)))
            .collect();
        let mut families = vec![Vec::new(); hosts.len()];
        for process in known.values() {
            let family = owner(process, hosts, &known).and_then(|index| families.get_mut(index));
            if let Some(family) = family {
                family.push(*process);
            } else {
                self.strangers.insert(process.pid);
            }
        }
        families
    }

    fn read(&self, pid: u32) -> Option<Process> {
        let text = fs::read(self.proc.join(pid.to_string()).join("stat")).ok()?;
        let text = String::from_utf8_lossy(&text);
        // The name before it may hold anything, also blanks and brackets.
        let (_, fields) = text.rsplit_once(')')?;
        let mut fields = fields.split_whitespace().skip(1);
        let mut id = || fields.next()?.parse().ok();
        Some(Process {
            pid,
            parent: id()?,
            group: id()?,
            session: id()?,
            // The 22nd of all.
            begun: fields.nth(15).and_then(|text| text.parse().ok()),
        })
    }

    /// Whether its id is still that of this process. Its parent may be another by now, and its group.
    pub(super) fn is_still(&self, process: &Process) -> bool {
        self.read(process.pid)
            .is_some_and(|now| now.begun == process.begun)
    }

    /// Bytes that these processes hold, at most: a page that two of them share counts twice. Files
    /// do not count: the kernel drops them where memory is needed for more.
    pub(super) fn held(&self, family: &[Process]) -> u64 {
        family.iter().map(|one| self.at_most(one.pid)).sum()
    }

    /// The same with shared pages shared out. That takes the kernel a look at every page.
    pub(super) fn held_exactly(&self, family: &[Process]) -> u64 {
        let held = |one: &Process| {
            self.exactly(one.pid)
                .unwrap_or_else(|| self.at_most(one.pid))
        };
        family.iter().map(held).sum()
    }

    fn at_most(&self, pid: u32) -> u64 {
        let Some(text) = self.text(pid, "status") else {
            return 0;
        };
        let [anonymous, shared, swapped] =
            ["RssAnon", "RssShmem", "VmSwap"].map(|name| kib(&text, name));
        // Sandboxes that are no Linux know the sum alone.
        let held = anonymous.or_else(|| kib(&text, "VmRSS"));
        [held, shared, swapped].into_iter().flatten().sum()
    }

    fn exactly(&self, pid: u32) -> Option<u64> {
        let text = self.text(pid, "smaps_rollup")?;
        let mut sum = 0;
        for name in ["Pss_Anon", "Pss_Shmem", "SwapPss"] {
            sum += kib(&text, name)?;
        }
        Some(sum)
    }

    fn text(&self, pid: u32, file: &str) -> Option<String> {
        fs::read_to_string(self.proc.join(pid.to_string()).join(file)).ok()
    }
}

/// The place in `hosts` of the one that a process came from.
fn owner(process: &Process, hosts: &[u32], known: &BTreeMap<u32, Process>) -> Option<usize> {
    let mut process = process;
    // No line of parents is longer; what was read while processes ended might be a ring.
    for _ in 0..known.len() {
        let ids = [process.pid, process.group, process.session];
        if let Some(index) = hosts.iter().position(|host| ids.contains(host)) {
            return Some(index);
        }
        process = known.get(&process.parent)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like `/` with these processes: `(pid, parent, group, session)`.
    fn machine(processes: &[[u32; 4]]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        for [pid, parent, group, session] in processes {
            let stat = format!("{pid} (a (b) c) S {parent} {group} {session} 0 -1 4194560 9 0");
            write(root.path(), *pid, "stat", &stat);
        }
        root
    }

    fn write(root: &Path, pid: u32, file: &str, text: &str) {
        let folder = root.join("proc").join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(file), text).unwrap();
    }

    fn pids(families: &[Vec<Process>]) -> Vec<Vec<u32>> {
        let pids = |family: &Vec<Process>| family.iter().map(|one| one.pid).collect();
        families.iter().map(pids).collect()
    }

    #[test]
    fn a_host_has_its_group_its_session_and_its_children() {
        let root = machine(&[
            [1, 0, 1, 1],
            [5, 1, 5, 5],
            // A host, a child, and a grandchild in a session of its own.
            [10, 5, 10, 10],
            [11, 10, 10, 10],
            [12, 11, 12, 12],
            // Its parent is gone, it is in the group of the host.
            [13, 1, 10, 10],
            // In a group of its own, of which the parent is gone.
            [14, 1, 14, 10],
            [20, 5, 20, 20],
            // Nobody's.
            [30, 1, 30, 30],
        ]);
        let mut processes = Processes::new(root.path());
        let families = processes.families(&[10, 20, 99]);
        assert_eq!(
            pids(&families),
            [vec![10, 11, 12, 13, 14], vec![20], vec![]]
        );
        assert!(processes.strangers.contains(&30) && !processes.strangers.contains(&11));
        // One that began as a stranger is a host from now on.
        assert_eq!(pids(&processes.families(&[30])), [[30]]);
    }

    #[test]
    fn an_id_that_comes_round_is_seen_again() {
        let root = machine(&[[10, 5, 10, 10], [30, 1, 30, 30]]);
        let mut processes = Processes::new(root.path());
        processes.families(&[10]);
        write(root.path(), 30, "stat", "30 (x) R 10 30 30 0");
        let seen = (0..FRESH).find(|_| processes.families(&[10]).concat().len() == 2);
        assert!(seen.is_some());
    }

    #[test]
    fn a_process_that_got_the_id_of_another_is_not_that_one() {
        let root = machine(&[]);
        let stat = |parent: u32, begun: u32| {
            let numbers = "0 -1 4194560 9 0 0 0 1 1 0 0 20 0 1 0";
            let text = format!("10 (x) S {parent} 10 10 {numbers} {begun} 9 0");
            write(root.path(), 10, "stat", &text);
        };
        let processes = Processes::new(root.path());
        stat(5, 77);
        let process = processes.read(10).unwrap();
        assert_eq!(process.begun, Some(77));
        stat(1, 77);
        assert!(processes.is_still(&process), "its parent ended");
        stat(5, 78);
        assert!(!processes.is_still(&process));
        fs::remove_file(root.path().join("proc/10/stat")).unwrap();
        assert!(!processes.is_still(&process));
    }

    #[test]
    fn this_process_is_itself() {
        let processes = Processes::new(Path::new("/"));
        let own = processes.read(std::process::id()).unwrap();
        assert!(own.begun > Some(0) && processes.is_still(&own));
    }

    #[test]
    fn what_is_held_is_what_the_kernel_cannot_drop() {
        let root = machine(&[[10, 5, 10, 10], [11, 10, 10, 10], [12, 10, 10, 10]]);
        let status = "Name:\tx\nVmRSS:\t    9000 kB\nRssAnon:\t    3000 kB\nRssFile:\t    5000 kB\n\
                      RssShmem:\t    1000 kB\nVmSwap:\t       24 kB\n";
        write(root.path(), 10, "status", status);
        write(root.path(), 11, "status", status);
        let rollup = "55e0-7fff ---p 00000000 00:00 0    [rollup]\nRss:     9000 kB\n\
                      Pss_Anon:    1500 kB\nPss_File:    5000 kB\nPss_Shmem:     500 kB\nSwapPss:   24 kB\n";
        write(root.path(), 11, "smaps_rollup", rollup);
        // Ended in between, or a sandbox.
        write(root.path(), 12, "status", "VmRSS:\t 7 kB\n");
        let mut processes = Processes::new(root.path());
        let families = processes.families(&[10]);
        assert_eq!(processes.held(&families[0]), (2 * 4024 + 7) * 1024);
        assert_eq!(
            processes.held_exactly(&families[0]),
            (4024 + 2024 + 7) * 1024
        );
    }
}
