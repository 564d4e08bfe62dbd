//! Puts into the program which Python it was built for, and the way to its libpython.

use std::{env, error::Error, process::Command};

const PROBE: &str = "
import sys, sysconfig
print('.'.join(map(str, sys.version_info[:3])))
print(sys.base_prefix)
print(sysconfig.get_platform().replace('-', '_').replace('.', '_'))
print(sysconfig.get_config_var('LIBDIR') or '')
print(getattr(sys, '_base_executable', None) or sys.executable)
";

fn main() -> Result<(), Box<dyn Error>> {
    pyo3_build_config::use_pyo3_cfgs();
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PYO3_PYTHON");
    let python = env::var("PYO3_PYTHON")
        .ok()
        .or_else(|| pyo3_build_config::get().executable().map(str::to_owned))
        .ok_or("no Python found: set PYO3_PYTHON, or use `cargo xtask hosts`")?;
    let output = Command::new(&python)
        .args(["-I", "-S", "-c", PROBE])
        .output()?;
    if !output.status.success() {
        return Err(format!("{python} cannot describe itself: {}", output.status).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let mut lines = text.lines();
    for name in ["VERSION", "PREFIX", "PLATFORM"] {
        let value = lines
            .next()
            .ok_or("the description of Python is too short")?;
        println!("cargo:rustc-env=RAMEN_HOST_PYTHON_{name}={value}");
    }
    // Without this the loader takes whichever libpython of the same name the system has.
    if let Some(dir) = lines.next().filter(|dir| !dir.is_empty()) {
        println!("cargo:rustc-link-arg-bins=-Wl,-rpath,{dir}");
    }
    let executable = lines
        .next()
        .ok_or("the description of Python is too short")?;
    println!("cargo:rustc-env=RAMEN_HOST_PYTHON_EXECUTABLE={executable}");
    Ok(())
}
