//! How much memory processes of the group may hold together, unless somebody says so: what the
//! container or the machine has, less what the front needs.

use std::fs;
use std::path::Path;

/// For the front, and for what the kernel keeps on behalf of all: page tables, sockets, pipes.
const RESERVE: u64 = 64 << 20;
/// Of what there is, in percent. Processes grow between two looks, and a large one takes a while to
/// end.
const SHARE: u64 = 85;

/// The bound of this process; `root` is `/`. 0 when nothing can be found out.
pub(super) fn found(root: &Path) -> u64 {
    let known = limits(root).into_iter().chain(total(root));
    known.min().map_or(0, share)
}

fn share(all: u64) -> u64 {
    // In a very small container the reserve alone would take nearly all.
    (all / 100 * SHARE).saturating_sub(RESERVE).max(all / 2)
}

/// What the machine has.
fn total(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    super::kib(&text, "MemTotal")
}

/// The limits of the control group of this process and of those above it. In a container the files
/// often begin at its own group, while the name of the group still tells the way there from the
/// node: folders that do not exist are passed over.
fn limits(root: &Path) -> Vec<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (folder, files): (_, &[&str]) = if controllers.is_empty() {
            // Over `memory.high` nothing is ended, but everything in the group comes to a halt.
            ("sys/fs/cgroup", &["memory.max", "memory.high"])
        } else if controllers.split(',').any(|name| name == "memory") {
            ("sys/fs/cgroup/memory", &["memory.limit_in_bytes"])
        } else {
            continue;
        };
        for group in Path::new(path.trim_start_matches('/')).ancestors() {
            for file in files {
                let text = fs::read_to_string(root.join(folder).join(group).join(file));
                // `max` is no limit.
                let limit = text.ok().and_then(|text| text.trim().parse().ok());
                found.extend(limit.filter(|limit: &u64| *limit > 0));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The bound in MiB on a machine of 8 GiB with these files.
    fn bound(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        let meminfo = (
            "proc/meminfo",
            "MemTotal:        8388608 kB\nMemFree: 1 kB\n",
        );
        for (path, text) in files.iter().chain([&meminfo]) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        found(root.path()) / MIB
    }

    #[test]
    fn a_machine_without_control_groups_gives_a_share_of_its_memory() {
        assert_eq!(bound(&[]), 8192 * 85 / 100 - 64);
        let unlimited = [
            ("proc/self/cgroup", "0::/user.slice/session-2.scope\n"),
            (
                "sys/fs/cgroup/user.slice/session-2.scope/memory.max",
                "max\n",
            ),
        ];
        assert_eq!(bound(&unlimited), bound(&[]));
        assert_eq!(found(Path::new("/does/not/exist")), 0, "nothing is known");
    }

    #[test]
    fn a_container_gives_a_share_of_its_limit() {
        let gib = (1 << 30).to_string();
        let own = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", &*gib),
        ];
        assert_eq!(bound(&own), 870 - 64);
        let small = [
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "134217728"),
        ];
        assert_eq!(bound(&small), 64, "half of it at least");
    }

    #[test]
    fn the_name_of_the_group_may_be_that_of_another_view() {
        let seen_from_the_node = [
            (
                "proc/self/cgroup",
                "0::/kubepods.slice/pod7.slice/cri-1.scope\n",
            ),
            ("sys/fs/cgroup/memory.max", "1073741824\n"),
        ];
        assert_eq!(bound(&seen_from_the_node), 870 - 64);
    }

    #[test]
    fn the_smallest_limit_on_the_way_up_counts() {
        let nested = |own: &str, above: &str, high: &str| {
            bound(&[
                ("proc/self/cgroup", "0::/pod/container\n"),
                ("sys/fs/cgroup/pod/container/memory.max", own),
                ("sys/fs/cgroup/pod/memory.max", above),
                ("sys/fs/cgroup/pod/memory.high", high),
            ])
        };
        assert_eq!(nested("2147483648", "1073741824", "max"), 870 - 64);
        assert_eq!(nested("1073741824", "max", "max"), 870 - 64);
        assert_eq!(nested("max", "2147483648", "1073741824"), 870 - 64);
    }

    #[test]
    fn the_first_version_of_control_groups_counts_too() {
        let groups = "5:cpu,cpuacct:/a\n4:memory:/docker/abc\n0::/\n";
        let limited = [
            ("proc/self/cgroup", groups),
            (
                "sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes",
                "1073741824\n",
            ),
        ];
        assert_eq!(bound(&limited), 870 - 64);
        assert_eq!(bound(&limited[..2]), bound(&[]), "no limit but the machine");
    }
}
