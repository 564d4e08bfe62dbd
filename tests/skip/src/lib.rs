//! How a test says that it, or a part of it, is left out on this machine.
//!
//! The harness and nextest keep to themselves what a test printed that went well, so its line also goes to the file that
//! `scripts/lanes.sh` names, which shows all of them at the end of `make test`.

use std::{env, fs::File, io::Write as _, thread};

/// The environment variable that names the file.
pub const FILE: &str = "RAMEN_SKIPPED";

/// Says that the running test is left out, or what of it, and why.
///
/// # Panics
/// When the file cannot be written: nobody would learn of it.
pub fn say(why: &str) {
    let thread = thread::current();
    // Where there is one thread for all tests it has no name of a test.
    let test = thread.name().filter(|name| *name != "main");
    let line = format!("SKIPPED {}: {why}\n", test.unwrap_or("a test"));
    // Not `eprintln`: the harness would keep that even of a test that runs alone.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = env::var_os(FILE) {
        // One write at the end of the file: tests run side by side.
        File::options()
            .create(true)
            .append(true)
            .open(file)
            .and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("the file that RAMEN_SKIPPED names can be written");
    }
}
