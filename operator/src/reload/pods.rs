//! The pods of a group that can be asked: those with an address that are not on their way out.

use std::net::SocketAddr;

use super::push::Target;
use crate::pods::PodView;

/// All of them, ready ones first.
pub(super) fn targets(pods: &[PodView], port: u16) -> Vec<Target> {
    let mut targets: Vec<Target> = pods
        .iter()
        .filter_map(|pod| {
            Some(Target {
                name: pod.name.clone(),
                address: SocketAddr::new(pod.address?, port),
                ready: pod.ready,
            })
        })
        .collect();
    targets.sort_by_key(|target| (!target.ready, target.name.clone()));
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::tests::worker;

    #[test]
    fn pods_that_run_are_asked_and_ready_ones_first() {
        let pod = |name: &str, address: Option<&str>, ready| PodView {
            address: address.map(|address| address.parse().unwrap()),
            ready,
            ..worker(name)
        };
        let pods = [
            pod("a", Some("10.0.0.1"), false),
            pod("c", Some("fd00::3"), true),
            pod("b", Some("10.0.0.2"), true),
            pod("pending", None, false),
        ];
        let found = targets(&pods, 50051);
        let names: Vec<_> = found.iter().map(|target| target.name.as_str()).collect();
        assert_eq!(names, ["b", "c", "a"]);
        assert_eq!(found[1].address.to_string(), "[fd00::3]:50051");
    }
}
