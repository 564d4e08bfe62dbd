use super::*;

const MIB: u64 = 1 << 20;
/// No process has an id as large as this: what is ended here is nobody.
const FIRST: u32 = 5_000_000;

#[derive(Default)]
struct Played {
    busy: AtomicBool,
    ended: Mutex<Option<EndCause>>,
}

impl Tenant for Played {
    fn lives(&self) -> bool {
        true
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    fn end(&self, cause: EndCause) {
        *lock(&self.ended) = Some(cause);
    }
}

/// A worker whose hosts are folders.
struct Stage {
    root: tempfile::TempDir,
    memory: Arc<Memory>,
    processes: Processes,
    hosts: Vec<Arc<Played>>,
}

impl Stage {
    fn new(budget: u64, hosts: u32) -> Self {
        let root = tempfile::tempdir().unwrap();
        let memory = Memory::with_budget(budget);
        let processes = Processes::new(root.path());
        let hosts: Vec<_> = (0..hosts).map(|_| Arc::<Played>::default()).collect();
        for (number, host) in (0..).zip(&hosts) {
            let tenant: Weak<Played> = Arc::downgrade(host);
            let tenant: Weak<dyn Tenant> = tenant;
            lock(&memory.tenants).push((FIRST + number, tenant));
        }
        Self {
            root,
            memory,
            processes,
            hosts,
        }
    }

    /// Process `number`, which came from `parent` and holds so many MiB.
    fn holds(&self, number: u32, parent: u32, mib: u64, exactly: Option<u64>) {
        let (pid, parent) = (FIRST + number, FIRST + parent);
        let folder = self.root.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        let write = |file: &str, text: String| fs::write(folder.join(file), text).unwrap();
        write("stat", format!("{pid} (x) S {parent} {pid} {pid} 0"));
        let kib = mib * 1024;
        write("status", format!("RssAnon: {kib} kB\nRssShmem: 0 kB\n"));
        if let Some(mib) = exactly {
            let kib = mib * 1024;
            let text = format!("Pss_Anon: {kib} kB\nPss_Shmem: 0 kB\nSwapPss: 0 kB\n");
            write("smaps_rollup", text);
        }
    }

    /// Looks once; what is held then, and whose hosts were ended so far.
    fn look(&mut self) -> (u64, Vec<usize>) {
        let held = self.memory.look(&mut self.processes) / MIB;
        let ended =
            |(number, host): (usize, &Arc<Played>)| lock(&host.ended).is_some().then_some(number);
        (
            held,
            self.hosts.iter().enumerate().filter_map(ended).collect(),
        )
    }
}

#[test]
fn nobody_is_ended_within_the_budget() {
    let mut stage = Stage::new(300 * MIB, 2);
    stage.holds(0, 9, 150, None);
    stage.holds(1, 9, 150, None);
    assert_eq!(stage.look(), (300, vec![]));
}

#[test]
fn the_one_that_holds_the_most_is_ended_and_the_others_do_not_pay_while_it_goes() {
    let mut stage = Stage::new(300 * MIB, 3);
    stage.holds(0, 9, 60, None);
    stage.holds(1, 9, 200, None);
    stage.holds(2, 9, 60, None);
    assert_eq!(stage.look(), (120, vec![1]));
    let (held, budget) = (200 * MIB, 300 * MIB);
    let cause = EndCause::Budget { held, budget };
    assert_eq!(*lock(&stage.hosts[1].ended), Some(cause));
    assert_eq!(
        cause.to_string(),
        "ended for its memory: it held 200 MiB, and all processes of the group together may hold 300 MiB"
    );
    // Its memory is still there.
    assert_eq!(stage.look(), (120, vec![1]));
}

#[test]
fn as_many_are_ended_as_it_takes() {
    let mut stage = Stage::new(100 * MIB, 3);
    stage.holds(0, 9, 200, None);
    stage.holds(1, 9, 90, None);
    stage.holds(2, 9, 150, None);
    assert_eq!(stage.look(), (90, vec![0, 2]));
}

#[test]
fn a_host_holds_what_its_children_hold_and_what_they_share_counts_once() {
    let mut stage = Stage::new(300 * MIB, 2);
    stage.holds(0, 9, 100, Some(60));
    stage.holds(1, 9, 120, None);
    // Two children of the first; one of them has left it for a session of its own, as all do here.
    stage.holds(3, 0, 100, Some(60));
    assert_eq!(stage.look(), (240, vec![]), "it only looked like 320 MiB");
    stage.holds(4, 3, 100, Some(100));
    assert_eq!(stage.look(), (120, vec![0]));
}

#[test]
fn the_fuller_it_is_the_sooner_it_is_looked_at_again() {
    let none = Duration::ZERO;
    assert_eq!(pause(10 << 30, 1, none), LONGEST);
    assert_eq!(pause(200 * MIB, 1, none), Duration::from_millis(50));
    assert_eq!(
        pause(200 * MIB, 2, none),
        Duration::from_millis(25),
        "two fill it in half the time"
    );
    assert_eq!(pause(200 * MIB, 0, none), Duration::from_millis(50));
    assert_eq!(pause(MIB, 1, none), SHORTEST);
    let long = Duration::from_millis(60);
    assert_eq!(
        pause(MIB, 1, long),
        long * LOOKS,
        "looking is not all that is done"
    );
}

#[test]
fn who_begins_while_the_watch_rests_wakes_it() {
    let stage = Stage::new(300 * MIB, 1);
    let memory = &stage.memory;
    memory.thread.get_or_init(|| Some(thread::current()));
    assert!(memory.may_rest(), "nothing runs");
    assert!(memory.rests.load(Ordering::Relaxed));
    memory.begins();
    assert!(!memory.rests.load(Ordering::Relaxed));
    // The wake is kept: this does not wait.
    thread::park();
    stage.hosts[0].busy.store(true, Ordering::Relaxed);
    assert!(!memory.may_rest(), "what runs is watched");
    memory.rest();
    assert!(!memory.rests.load(Ordering::Relaxed));
}

#[test]
fn what_a_process_may_ask_for_is_bounded_and_it_may_raise_that() {
    let mut child = std::process::Command::new("sleep")
        .arg("600")
        .spawn()
        .unwrap();
    let pid = Pid::from_child(&child);
    refuse_beyond(pid, 20 * MIB);
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max data size"));
    let values: Vec<&str> = line.unwrap().split_whitespace().collect();
    let own = getrlimit(Resource::Data).maximum;
    let own = own.map_or("unlimited".to_owned(), |own| own.to_string());
    assert_eq!(values[..2], [(20 * MIB).to_string(), own]);
}

#[test]
fn a_stray_is_ended_by_what_it_is() {
    use std::os::unix::process::{CommandExt, ExitStatusExt};

    let mut child = std::process::Command::new("sleep")
        .arg("600")
        .process_group(0)
        .spawn()
        .unwrap();
    let mut processes = Processes::new(Path::new("/"));
    let family = processes.families(&[child.id()]).concat();
    assert_eq!(family.len(), 1);
    kill_stray(&family[0], &processes);
    let signal = child.wait().unwrap().signal();
    assert_eq!(signal, Some(Signal::KILL.as_raw()));
}
