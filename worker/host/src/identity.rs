//! Which Python this program was built for, and the check that it really got that one.
#![expect(
    unsafe_code,
    reason = "asks the loaded libpython for its version before it is started"
)]

use std::ffi::CStr;

/// Name and version for people.
pub(crate) const TITLE: &str = concat!(
    "ramen-host ",
    env!("CARGO_PKG_VERSION"),
    " (Python ",
    env!("RAMEN_HOST_PYTHON_VERSION"),
    ")"
);
/// `3.11.7`, as at build time.
pub(crate) const VERSION: &str = env!("RAMEN_HOST_PYTHON_VERSION");
/// Its interpreter.
pub(crate) const EXECUTABLE: &str = env!("RAMEN_HOST_PYTHON_EXECUTABLE");
/// Its `sys.base_prefix`.
pub(crate) const PREFIX: &str = env!("RAMEN_HOST_PYTHON_PREFIX");
/// Its platform tag, such as `linux_x86_64`.
const PLATFORM: &str = env!("RAMEN_HOST_PYTHON_PLATFORM");

/// The JSON that `--describe` prints.
pub(crate) fn describe() -> String {
    let minor = VERSION.rsplit_once('.').map_or(VERSION, |(minor, _)| minor);
    serde_json::json!({
        "python": minor,
        "version": VERSION,
        "executable": EXECUTABLE,
        "prefix": PREFIX,
        "platform": PLATFORM,
    })
    .to_string()
}

/// The loader takes any libpython of the right name: compare its version with the build's.
pub(crate) fn check_library() -> Result<(), String> {
    // SAFETY: may be called before initialisation; gives a static NUL-terminated string.
    let text = unsafe { CStr::from_ptr(pyo3::ffi::Py_GetVersion()) };
    let text = text.to_string_lossy();
    let loaded = text.split(' ').next().unwrap_or_default();
    // Distributions write `3.11.2+` for a patched build.
    if loaded.trim_end_matches('+') == VERSION {
        return Ok(());
    }
    Err(format!(
        "built for Python {VERSION} of {PREFIX}, but the loader gave libpython {loaded}: \
         build the hosts again with `cargo xtask hosts`"
    ))
}
