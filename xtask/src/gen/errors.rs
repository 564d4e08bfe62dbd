//! docs/reference/errors.md, from the vocabulary of reasons in `ramen-group`.

use crate::workspace::{cargo, output};

pub(crate) fn page() -> anyhow::Result<String> {
    // An example, so that xtask itself builds without the crates that it describes.
    output(&mut cargo([
        "run",
        "--quiet",
        "-p",
        "xtask",
        "--example",
        "errors",
    ]))
}
