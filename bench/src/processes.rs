//! Looks at running processes through /proc.

use std::path::PathBuf;

use anyhow::Context as _;

/// A field of `/proc/PID/FILE` that is given in kB, in MiB.
fn mebibytes(pid: u32, file: &str, field: &str) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/{file}");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text
        .lines()
        .find(|line| line.starts_with(field))
        .with_context(|| format!("{path} has no {field}"))?;
    let kib: f64 = line.split_whitespace().nth(1).unwrap_or_default().parse()?;
    Ok(kib / 1024.0)
}

/// Resident memory in MiB.
pub fn rss_mib(pid: u32) -> anyhow::Result<f64> {
    mebibytes(pid, "status", "VmRSS:")
}

/// The most resident memory that it ever had, in MiB.
pub fn peak_rss_mib(pid: u32) -> anyhow::Result<f64> {
    mebibytes(pid, "status", "VmHWM:")
}

/// Proportional memory in MiB: shared pages are split among those who share them.
pub fn pss_mib(pid: u32) -> anyhow::Result<f64> {
    mebibytes(pid, "smaps_rollup", "Pss:")
}

/// Processes whose parent is `pid`.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut found: Vec<u32> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|child| parent(*child) == Some(pid))
        .collect();
    found.sort_unstable();
    found
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything; what follows the last one is regular.
    stat.rsplit(')')
        .next()?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

/// Children that run a ramen-host.
pub fn hosts(front: u32) -> Vec<u32> {
    children(front)
        .into_iter()
        .filter(|pid| {
            std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| {
                exe.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("ramen-host"))
            })
        })
        .collect()
}

/// Open file descriptors.
pub fn fds(pid: u32) -> anyhow::Result<usize> {
    let path = format!("/proc/{pid}/fd");
    Ok(std::fs::read_dir(&path)
        .with_context(|| format!("cannot list {path}"))?
        .count())
}

/// User and system time of the process and all below it, in seconds.
pub fn cpu_seconds(pid: u32) -> f64 {
    let own = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| {
            let fields: Vec<i64> = stat
                .rsplit(')')
                .next()?
                .split_whitespace()
                .filter_map(|f| f.parse().ok())
                .collect();
            // After the name and the state, what parses starts with field 4 of man 5 proc; 14 and 15 are utime and stime.
            Some(fields.get(10)? + fields.get(11)?)
        })
        .unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "clock ticks")]
    let own = own as f64 / 100.0;
    own + children(pid).into_iter().map(cpu_seconds).sum::<f64>()
}

/// Names of the entries of a folder.
pub fn entries(folder: &std::path::Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .map(|list| list.filter_map(Result::ok).map(|e| e.path()).collect())
        .unwrap_or_default();
    found.sort();
    found
}

/// What describes the machine in the report.
pub fn machine() -> serde_json::Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let after = |text: &str, field: &str| {
        text.lines()
            .find(|line| line.starts_with(field))
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    };
    serde_json::json!({
        "cpu": after(&read("/proc/cpuinfo"), "model name"),
        "cores": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "memory": after(&read("/proc/meminfo"), "MemTotal"),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
    })
}
