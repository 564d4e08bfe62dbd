//! What the network may bring: requests that two readers read in two ways, clients that are slow, silent or flood, over
//! real sockets. After each the good client beside goes on.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod crowd;
mod floods;
mod headers;
#[path = "../../../listener/tests/support/http2.rs"]
mod http2;
mod pipelines;
mod slow;
mod smuggling;
#[expect(dead_code, reason = "shared with the tests of the group endpoint")]
#[path = "../group/support.rs"]
mod support;
mod wire;
#[path = "../group/worker.rs"]
mod worker;
