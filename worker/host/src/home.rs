//! What Python's libraries expect of a user, also for a user id without an entry in `/etc/passwd`
//! (`getpass.getuser`, `Path.home`). Runs before there is a second thread.
#![expect(
    unsafe_code,
    reason = "changes the environment while the process has one thread"
)]

use std::{
    env, fs,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

/// Thread counts of numeric libraries: there is about one host per core, so one thread each.
const THREAD_COUNTS: [&str; 4] = [
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
];

/// Sets `HOME`, `LOGNAME` and the thread counts where they are missing.
pub(crate) fn prepare() {
    if !env::var_os("HOME").is_some_and(|home| is_writable(Path::new(&home)))
        && let Some(home) = make_home()
    {
        set("HOME", home.as_os_str());
    }
    if ["LOGNAME", "USER", "LNAME", "USERNAME"]
        .iter()
        .all(|name| env::var_os(name).is_none())
    {
        set("LOGNAME", "ramen".as_ref());
        set("USER", "ramen".as_ref());
    }
    for name in THREAD_COUNTS {
        if env::var_os(name).is_none() {
            set(name, "1".as_ref());
        }
    }
}

fn set(name: &str, value: &std::ffi::OsStr) {
    // SAFETY: called from `main` before any thread is started.
    unsafe { env::set_var(name, value) };
}

fn is_writable(path: &Path) -> bool {
    path.is_absolute()
        && path.is_dir()
        && rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

fn make_home() -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let home = env::temp_dir().join(format!("ramen-home-{uid}"));
    // The folder may be there from an earlier host; one that somebody else made is not taken.
    let _ = fs::DirBuilder::new().mode(0o700).create(&home);
    let meta = fs::symlink_metadata(&home).ok()?;
    (meta.is_dir() && meta.uid() == uid && is_writable(&home)).then_some(home)
}
