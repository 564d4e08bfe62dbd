//! Starts CPython isolated: no environment variables, no user site, no current folder, no signal
//! handlers, no site-packages of the installation. It is never finalised; the process just ends.
#![expect(unsafe_code, reason = "the configuration of CPython is a C interface")]

use std::{
    ffi::{CStr, CString},
    mem::MaybeUninit,
};

use pyo3::{ffi, prelude::*};

use crate::identity;

/// Initialises on the calling thread, which must be the main thread, and leaves it detached.
pub(crate) fn start() -> Result<(), String> {
    let executable = CString::new(identity::EXECUTABLE)
        .map_err(|_| "the path of Python holds a NUL".to_owned())?;
    // SAFETY: the two structures are filled by their Init functions before any use; every string
    // is copied by the setters; this is the first use of the interpreter and the only thread.
    unsafe {
        let mut pre = MaybeUninit::<ffi::PyPreConfig>::zeroed().assume_init();
        ffi::PyPreConfig_InitIsolatedConfig(&raw mut pre);
        // Whatever LANG is: text files and the terminal are UTF-8.
        pre.utf8_mode = 1;
        check("pre-initialise", ffi::Py_PreInitialize(&raw const pre))?;
        let mut config = MaybeUninit::<ffi::PyConfig>::zeroed().assume_init();
        ffi::PyConfig_InitIsolatedConfig(&raw mut config);
        config.install_signal_handlers = 0;
        config.site_import = 0;
        config.user_site_directory = 0;
        config.write_bytecode = 0;
        config.pathconfig_warnings = 0;
        config.parse_argv = 0;
        let program = &raw mut config.program_name;
        check(
            "name",
            ffi::PyConfig_SetBytesString(&raw mut config, program, executable.as_ptr()),
        )?;
        let field = &raw mut config.executable;
        check(
            "locate",
            ffi::PyConfig_SetBytesString(&raw mut config, field, executable.as_ptr()),
        )?;
        let status = ffi::Py_InitializeFromConfig(&raw const config);
        ffi::PyConfig_Clear(&raw mut config);
        check("initialise", status)?;
        ffi::PyEval_SaveThread();
    }
    Python::attach(check_prefix)
}

fn check(what: &str, status: ffi::PyStatus) -> Result<(), String> {
    // SAFETY: a plain test of the structure.
    if unsafe { ffi::PyStatus_Exception(status) } == 0 {
        return Ok(());
    }
    let reason = if status.err_msg.is_null() {
        "no reason given".into()
    } else {
        // SAFETY: not null, and CPython gives static NUL-terminated strings here.
        unsafe { CStr::from_ptr(status.err_msg) }.to_string_lossy()
    };
    Err(format!(
        "cannot {what} Python {}: {reason}",
        identity::VERSION
    ))
}

fn check_prefix(py: Python<'_>) -> Result<(), String> {
    let prefix = py
        .import("sys")
        .and_then(|sys| sys.getattr("base_prefix"))
        .and_then(|prefix| prefix.extract::<String>())
        .map_err(|error| format!("cannot read sys.base_prefix: {error}"))?;
    if prefix == identity::PREFIX {
        return Ok(());
    }
    Err(format!(
        "built for the Python of {}, but it found itself in {prefix}: build the hosts again with \
         `cargo xtask hosts`",
        identity::PREFIX
    ))
}
