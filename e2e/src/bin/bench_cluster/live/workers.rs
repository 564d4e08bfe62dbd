//! What a worker pod takes by the number of its host processes, serving one small tool. A table without a goal.

use std::fmt::Write as _;

use anyhow::ensure;
use ramen_bench::processes::pss_mib;
use ramen_bench::report::Findings;
use serde_json::json;

use super::Stage;
use super::subject::Subject;

const HOSTS: [u32; 4] = [1, 2, 4, 8];

pub(crate) async fn run(stage: &Stage, findings: &mut Findings) -> anyhow::Result<()> {
    let mut table = format!(
        "{:<18} {:>9} {:>9} {:>9}\n",
        "a worker, in MiB", "front", "a host", "the pod"
    );
    for hosts in HOSTS.into_iter().take(stage.rounds(HOSTS.len())) {
        let name = format!("hosts-{hosts}");
        let subject = Subject::start(stage, &name, 1, |spec| {
            spec["worker"] = json!({ "hosts": hosts });
        })
        .await?;
        let pods = subject.group.pods().await?;
        let uids: Vec<String> = pods
            .into_iter()
            .filter_map(|pod| pod.metadata.uid)
            .collect();
        ensure!(uids.len() == 1, "{name} has {} pods", uids.len());
        let (mut front, mut host) = (Vec::new(), Vec::new());
        for (pid, program) in processes(&uids[0]) {
            if program.starts_with("ramen-host") {
                host.push(pss_mib(pid)?);
            } else {
                front.push(pss_mib(pid)?);
            }
        }
        ensure!(
            front.len() == 1 && host.len() == hosts as usize,
            "the pod of {name} runs {} fronts and {} hosts",
            front.len(),
            host.len()
        );
        let sum: f64 = host.iter().sum();
        let _ = writeln!(
            table,
            "{:<18} {:>9.1} {:>9.1} {:>9.1}",
            format!("{hosts} host{}", if hosts == 1 { "" } else { "s" }),
            front[0],
            sum / f64::from(hosts),
            front[0] + sum
        );
        subject.group.remove().await?;
    }
    findings.tables.push(table);
    Ok(())
}

/// Our programs in a pod: every control group of it has the pod's uid in its name.
fn processes(uid: &str) -> Vec<(u32, String)> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let ours = entries.filter_map(Result::ok).filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let groups = std::fs::read_to_string(entry.path().join("cgroup")).ok()?;
        let program = std::fs::read_link(entry.path().join("exe")).ok()?;
        let program = program.file_name()?.to_string_lossy().into_owned();
        (groups.contains(uid) && program.starts_with("ramen-")).then_some((pid, program))
    });
    ours.collect()
}
