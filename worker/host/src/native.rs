//! The module `_ramen_native`: what the Python side calls in Rust. It is also the backend of
//! `ramen_runtime` inside a host.

use std::fmt::Write as _;

use pyo3::{
    exceptions::PyRuntimeError,
    prelude::*,
    types::{PyModule, PyString},
};
use ramen_frame::{begin, finish, kind};

use crate::{call::Host, channel, encode, outcome};

/// Makes the module and puts it where `import` finds it.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    let module = PyModule::new(py, "_ramen_native")?;
    module.add_function(wrap_pyfunction!(group, &module)?)?;
    module.add_function(wrap_pyfunction!(secret, &module)?)?;
    module.add_function(wrap_pyfunction!(progress, &module)?)?;
    module.add_function(wrap_pyfunction!(log, &module)?)?;
    module.add_function(wrap_pyfunction!(cancelled, &module)?)?;
    module.add_function(wrap_pyfunction!(is_cancelled, &module)?)?;
    module.add_function(wrap_pyfunction!(finished, &module)?)?;
    module.add_function(wrap_pyfunction!(failed, &module)?)?;
    module.add_function(wrap_pyfunction!(forked, &module)?)?;
    module.add_function(wrap_pyfunction!(directory_changed, &module)?)?;
    module.add_function(wrap_pyfunction!(to_json, &module)?)?;
    py.import("sys")?
        .getattr("modules")?
        .set_item("_ramen_native", module)
}

/// Name of the group that is served.
#[pyfunction]
fn group() -> Option<String> {
    Host::get()?.group.get().cloned()
}

/// A secret by the name of its variable, from the environment that the process started with or
/// that `os.environ` was given since.
#[pyfunction]
fn secret(py: Python<'_>, variable: &str) -> PyResult<Option<String>> {
    py.import("os")?
        .getattr("environ")?
        .call_method1("get", (variable,))?
        .extract()
}

/// The call that the current thread or task belongs to.
fn current_call(py: Python<'_>, host: &Host) -> Option<u64> {
    if let Some(call) = host.pool.slots.current() {
        return Some(call);
    }
    let current = host.side.running_aio(py)?.getattr("current").ok()?;
    let call = current
        .call_method1("get", (py.None(),))
        .ok()?
        .extract::<Option<u64>>()
        .ok()??;
    host.pool.slots.coroutine(call).map(|_| call)
}

#[pyfunction]
fn progress(
    py: Python<'_>,
    current: &Bound<'_, PyAny>,
    total: &Bound<'_, PyAny>,
    message: Option<&Bound<'_, PyString>>,
) -> PyResult<()> {
    let Some((host, call)) = addressee(py) else {
        return Ok(());
    };
    let mut frame = Vec::new();
    let mark = begin(&mut frame, kind::PROGRESS);
    frame.extend_from_slice(&call.to_le_bytes());
    frame.extend_from_slice(b"{\"progress\":");
    encode::encode(&host.side, current, &mut frame)?;
    if !total.is_none() {
        frame.extend_from_slice(b",\"total\":");
        encode::encode(&host.side, total, &mut frame)?;
    }
    if let Some(message) = message {
        frame.extend_from_slice(b",\"message\":");
        encode::string(&mut frame, message.to_str()?);
    }
    frame.push(b'}');
    send(py, host, frame, mark)
}

#[pyfunction]
fn log(py: Python<'_>, level: &str, data: &Bound<'_, PyAny>, logger: Option<&str>) -> PyResult<()> {
    let Some((host, call)) = addressee(py) else {
        return Ok(());
    };
    let mut frame = Vec::new();
    let mark = begin(&mut frame, kind::LOG);
    frame.extend_from_slice(&call.to_le_bytes());
    frame.extend_from_slice(b"{\"level\":");
    encode::string(&mut frame, level);
    if let Some(logger) = logger {
        frame.extend_from_slice(b",\"logger\":");
        encode::string(&mut frame, logger);
    }
    frame.extend_from_slice(b",\"data\":");
    encode::encode(&host.side, data, &mut frame)?;
    frame.push(b'}');
    send(py, host, frame, mark)
}

/// Outside of a call there is nobody to tell.
fn addressee(py: Python<'_>) -> Option<(&'static Host, u64)> {
    if channel::FORKED.load(std::sync::atomic::Ordering::Relaxed) {
        return None;
    }
    let host = Host::get()?;
    Some((host, current_call(py, host)?))
}

fn send(py: Python<'_>, host: &'static Host, mut frame: Vec<u8>, mark: usize) -> PyResult<()> {
    finish(&mut frame, mark).map_err(|error| {
        let mut text = String::from("the message is too large: ");
        let _ = write!(text, "{error}");
        PyRuntimeError::new_err(text)
    })?;
    py.detach(|| host.pool.channel.send_waiting(&frame));
    Ok(())
}

#[pyfunction]
fn cancelled(py: Python<'_>) -> bool {
    let Some(host) = Host::get() else {
        return false;
    };
    host.pool.slots.current_is_cancelled().unwrap_or_else(|| {
        current_call(py, host)
            .and_then(|call| host.pool.slots.coroutine(call))
            .unwrap_or(false)
    })
}

#[pyfunction]
fn is_cancelled(call: u64) -> bool {
    Host::get()
        .and_then(|host| host.pool.slots.coroutine(call))
        .unwrap_or(false)
}

/// A coroutine gave its result.
#[pyfunction]
fn finished(py: Python<'_>, call: u64, result: Bound<'_, PyAny>) {
    if let Some(host) = Host::get() {
        host.end_coroutine(py, call, Ok(result));
    }
}

/// A coroutine raised.
#[pyfunction]
fn failed(py: Python<'_>, call: u64, error: Bound<'_, PyAny>) {
    if let Some(host) = Host::get() {
        host.end_coroutine(py, call, Err(PyErr::from_value(error)));
    }
}

#[pyfunction]
fn forked() {
    channel::close_in_child();
}

#[pyfunction]
fn directory_changed() {
    if let Some(host) = Host::get() {
        host.pool.slots.set_moved();
    }
}

/// The JSON of a value, by the rules for results.
#[pyfunction]
fn to_json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let host = Host::get().ok_or_else(|| PyRuntimeError::new_err("there is no host"))?;
    let mut out = Vec::new();
    encode::encode(&host.side, value, &mut out)?;
    String::from_utf8(out).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

/// For the parts of the module tree that only want to name the result type.
pub(crate) type Outcome<'py> = PyResult<Bound<'py, PyAny>>;

/// Writes the frame of an ended coroutine.
pub(crate) fn coroutine_frame(
    py: Python<'_>,
    host: &Host,
    package: usize,
    call: u64,
    result: Outcome<'_>,
) -> Vec<u8> {
    let mut frame = Vec::new();
    outcome::write(
        &host.side,
        host.package_at(package),
        call,
        result,
        py,
        &mut frame,
    );
    frame
}
