//! What is measured and what is to be reached, and how a part that fails is told.

use ramen_bench::report::{Goal, Goals};

pub(crate) const GOALS: Goals = &[
    ("push_p95_s", "s", Goal::Below(5.0)),
    ("poll_s", "s", Goal::Below(5.0)),
    ("deps_s", "s", Goal::Below(15.0)),
    ("apply_s", "s", Goal::Below(12.0)),
    ("reload_failed", "calls", Goal::AtMost(0.0)),
    ("idle_writes", "/min", Goal::AtMost(0.0)),
    ("idle_requests", "/min", Goal::Below(60.0)),
    ("rss_mib", "MiB", Goal::Below(128.0)),
    ("start_s", "s", Goal::Below(60.0)),
    ("growth", "ratio", Goal::AtMost(1.0)),
];

/// Runs a part when one of its ids is wanted; a part that fails is told at the end, and the others still run.
macro_rules! part {
    ($options:expr, $findings:expr, [$($id:literal),+], $run:expr) => {
        if $options.wants(&[$($id),+]) {
            let ids = [$($id),+].join(", ");
            eprintln!("bench: {ids}");
            if let Err(error) = $run.await {
                $findings.fail(&ids, &error);
            }
        }
    };
}
pub(crate) use part;
