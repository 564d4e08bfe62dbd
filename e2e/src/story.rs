//! What a failed test leaves to read: events, pods and their logs.

use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, LogParams};

use crate::namespace::Namespace;

/// Lines of each log that are shown.
const LINES: i64 = 60;

pub(crate) async fn of(namespace: &Namespace) -> String {
    let mut story = format!("---- namespace {} ----\n", namespace.name);
    match namespace.api::<Event>().list(&ListParams::default()).await {
        Ok(events) => {
            for event in events {
                let _ = writeln!(
                    story,
                    "event {} {}/{} {}: {}",
                    event.type_.unwrap_or_default(),
                    event.involved_object.kind.unwrap_or_default(),
                    event.involved_object.name.unwrap_or_default(),
                    event.reason.unwrap_or_default(),
                    event.message.unwrap_or_default(),
                );
            }
        }
        Err(error) => drop(writeln!(story, "no events: {error}")),
    }
    let pods = namespace.api::<Pod>();
    match pods.list(&ListParams::default()).await {
        Ok(list) => {
            for pod in list {
                logs(namespace, &pod, &mut story).await;
            }
        }
        Err(error) => drop(writeln!(story, "no pods: {error}")),
    }
    story.push_str("---- end ----");
    story
}

async fn logs(namespace: &Namespace, pod: &Pod, story: &mut String) {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let _ = writeln!(story, "pod {name}: {}", phase.unwrap_or("no phase"));
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    for container in containers.into_iter().flatten() {
        for previous in [true, false] {
            if previous && container.restart_count == 0 {
                continue;
            }
            let params = LogParams {
                container: Some(container.name.clone()),
                previous,
                tail_lines: Some(LINES),
                ..LogParams::default()
            };
            let which = if previous { "previous log" } else { "log" };
            match namespace.api::<Pod>().logs(name, &params).await {
                Ok(text) => {
                    for line in text.lines() {
                        let _ = writeln!(story, "  {which} of {name}/{}: {line}", container.name);
                    }
                }
                Err(error) => drop(writeln!(story, "  no {which} of {name}: {error}")),
            }
        }
    }
}
