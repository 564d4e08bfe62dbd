//! docs/reference/operations.md, from the descriptors of the gateway.

use crate::workspace::{cargo, output};

pub(crate) fn page() -> anyhow::Result<String> {
    // An example, so that xtask itself builds without the crates that it describes.
    output(&mut cargo([
        "run",
        "--quiet",
        "-p",
        "xtask",
        "--example",
        "operations",
    ]))
}
