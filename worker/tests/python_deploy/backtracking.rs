//! Ranges that a resolver tries one after the other.

use std::fmt::Write as _;

use ramen_group::Reason;
use serde_json::json;

use crate::harness::Setup;
use crate::kit::{Kit, at_work, bin_dir};
use crate::wheel::simple;

/// With as many holes, and one pigeon more. The resolver takes eight times as long for each further one: 1 s for seven,
/// minutes for nine, days for so many.
const HOLES: usize = 12;

/// Requirements that exclude each other, which is found by trying alone: each version of a pigeon is the hole that it sits
/// in, each version of a hole the pigeon that it holds.
fn backtrack(kit: &Kit) {
    let mut requirements = String::new();
    for pigeon in 0..=HOLES {
        writeln!(requirements, "pigeon{pigeon}>=1").unwrap();
        for hole in 1..=HOLES {
            let (name, version) = (format!("pigeon{pigeon}"), hole.to_string());
            let holds = format!("hole{hole}=={pigeon}");
            simple(&kit.wheels(), &name, &version, &[&holds]);
            let (name, version) = (format!("hole{hole}"), pigeon.to_string());
            simple(&kit.wheels(), &name, &version, &[]);
        }
    }
    kit.requirements(&requirements);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn req05_ranges_that_backtrack_are_stopped_at_the_deadline_and_the_old_version_serves() {
    let kit = Kit::new();
    simple(&kit.wheels(), "alpha", "1.0", &[]);
    kit.requirements("alpha>=1\n");
    let code = "import alpha\n\ndef version():\n    return alpha.VERSION\n";
    kit.tool("version", code, &json!({}));
    let good = kit.deploy().ok().report;
    let setup = Setup::new(&bin_dir()).with(|args| args.store = Some(kit.path("store")));
    let running = setup.start().await;
    let desired = good.desired_state().unwrap();
    if let Err(error) = running.worker().manager().reload(desired).await {
        panic!("it does not load: {error}: {error:?}");
    }
    let client = running.client().await;
    assert_eq!(client.text("version", json!({})).await, "1.0");

    backtrack(&kit);
    kit.tool("version", "def version():\n    return 'new'\n", &json!({}));
    let bad = tokio::task::block_in_place(|| kit.deploy_with(&["--timeout", "4"]));
    let finding = bad.failed(Reason::InstallTimeout);
    assert!(finding.message.contains("deadline"), "{}", finding.message);
    assert_eq!(finding.path.as_deref(), Some("mcp/requirements.txt"));
    assert_eq!(bad.report.desired_state(), None);
    assert_eq!(at_work(&kit.path("out")), 0, "the installer is left");
    assert_eq!(
        kit.layers("deps"),
        [format!("{}.json", good.deps.unwrap().key)]
    );
    assert_eq!(client.text("version", json!({})).await, "1.0");
    running.stop().await;
}
