//! The life of a host: start, load, then one loop per thread that runs calls.
#![expect(
    unsafe_code,
    reason = "calls Python through its fast C interface and ends the process"
)]

use std::{
    convert::Infallible,
    os::fd::OwnedFd,
    sync::{OnceLock, atomic::Ordering},
    thread,
    time::Instant,
};

use jiter::{PythonParse, StringCacheMode};
use pyo3::{
    exceptions::{PyLookupError, PySystemExit, PyTypeError, PyValueError},
    ffi,
    prelude::*,
    types::{PyDict, PyType},
};
use ramen_frame::Load;

use crate::{
    boot::Python as PythonSide,
    channel::{Channel, FORKED},
    load::{self, Package},
    native, outcome,
    pool::{Job, Local, Pool},
    slots::Target,
};

const DEFAULT_THREADS: usize = 8;
const MAX_THREADS: usize = 256;
/// As the main thread has: deep recursion in Python must end as `RecursionError`, not as a crash.
const STACK: usize = 8 * 1024 * 1024;

static HOST: OnceLock<Host> = OnceLock::new();

/// Everything that lives as long as the process.
pub(crate) struct Host {
    pub(crate) pool: Pool,
    pub(crate) side: PythonSide,
    pub(crate) group: OnceLock<String>,
    packages: OnceLock<Vec<Package>>,
    /// The folder that the process started in.
    folder: Option<OwnedFd>,
}

/// Takes over the main thread.
pub(crate) fn serve(channel: Channel) -> Result<Infallible, String> {
    let side = Python::attach(PythonSide::start).map_err(|error| text(&error))?;
    let (first, channel) = first_load(channel);
    let threads = match first.threads {
        0 => DEFAULT_THREADS,
        wanted => wanted.min(MAX_THREADS),
    };
    let folder = rustix::fs::open(
        ".",
        rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    let host = HOST.get_or_init(|| Host {
        pool: Pool::new(channel, threads + 1),
        side,
        group: OnceLock::new(),
        packages: OnceLock::new(),
        folder: folder.ok(),
    });
    Python::attach(|py| host.load(py, &first)).map_err(|error| text(&error))?;
    drop(first);
    for index in 1..=threads {
        let spawned = thread::Builder::new()
            .name(format!("call-{index}"))
            .stack_size(STACK)
            .spawn(move || host.work(index, false));
        spawned.map_err(|error| format!("cannot start a thread: {error}"))?;
    }
    let spawned = thread::Builder::new()
        .name("watchdog".to_owned())
        .stack_size(64 * 1024)
        .spawn(|| host.pool.watch());
    spawned.map_err(|error| format!("cannot start a thread: {error}"))?;
    host.work(0, true)
}

fn text(error: &PyErr) -> String {
    Python::attach(|py| format!("cannot start the Python side: {}", error.value(py)))
}

/// Before the load there is one thread and nothing to run.
fn first_load(channel: Channel) -> (Box<Load>, Channel) {
    let pool = Pool::new(channel, 1);
    let mut local = Local::new(0, true);
    loop {
        match pool.next(&mut local) {
            Job::Load(load) => return (load, pool.channel),
            Job::Exit | Job::Closed => end(0),
            Job::Call { .. } | Job::Interrupt(_) | Job::CancelTask(_) => {}
        }
    }
}

/// No destructors, no finalisation: threads of user code may be anywhere.
fn end(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

impl Host {
    /// The host, once it is made.
    pub(crate) fn get() -> Option<&'static Self> {
        HOST.get()
    }

    /// The package at a place.
    pub(crate) fn package_at(&self, place: usize) -> Option<&Package> {
        self.packages.get()?.get(place)
    }

    fn load(&self, py: Python<'_>, load: &Load) -> PyResult<()> {
        let _ = self.group.set(load.group.clone());
        let send = |frame: &[u8]| self.pool.channel.send_waiting(frame);
        let packages = load::load(py, &self.side, load, &send)?;
        let ids = packages
            .iter()
            .map(|package| package.id)
            .collect::<Vec<_>>();
        let count = ids.len();
        let _ = self.packages.set(packages);
        self.pool.set_packages(count, move |id| {
            // Ids are mostly the places themselves.
            if ids.get(id as usize) == Some(&id) {
                return Some(id as usize);
            }
            ids.iter().position(|other| *other == id)
        });
        Ok(())
    }

    /// Body of every thread that runs calls: attached but while it waits.
    fn work(&self, index: usize, leading: bool) -> ! {
        self.pool.take_seat(index);
        Python::attach(|py| {
            // SAFETY: always safe to ask.
            self.pool
                .slots
                .set_ident(index, unsafe { ffi::PyThread_get_thread_ident() });
            let mut local = Local::new(index, leading);
            loop {
                let job = match self.pool.ready(&mut local) {
                    Some(job) => job,
                    None => py.detach(|| self.pool.next(&mut local)),
                };
                match job {
                    Job::Call { call, package } => self.run(py, &mut local, call, package),
                    Job::Interrupt(call) => self.interrupt(py, call),
                    Job::CancelTask(call) => self.tell_loop(py, "cancel", call),
                    Job::Load(_) => {}
                    Job::Exit => exit(py),
                    Job::Closed => end(0),
                }
            }
        })
    }

    fn run(&self, py: Python<'_>, local: &mut Local, call: u64, package: u32) {
        let began = Instant::now();
        let place = self.pool.place(package);
        let found = place.and_then(|place| self.package_at(place));
        let result = if self.pool.slots.begin(local.index) {
            invoke(py, found, &local.arguments)
        } else {
            Err(PyErr::from_type(self.side.interrupted(py).clone(), ()))
        };
        if FORKED.load(Ordering::Relaxed) {
            // The child of a fork came back from the callable: it has nobody to answer.
            end(exit_code(py, result.as_ref().err()));
        }
        let result = match (result, place) {
            (Ok(value), Some(place)) if is_awaitable(&value, found) => {
                self.pool.slots.begin_coroutine(call, place);
                match self.hand_to_loop(py, call, &value) {
                    Ok(()) => None,
                    Err(error) => {
                        // An interrupt in the middle of it: the loop may have the task already.
                        self.pool.slots.end_coroutine(call);
                        self.stop_task(py, call);
                        Some(Err(error))
                    }
                }
            }
            (result, _) => Some(result),
        };
        let answered = result.is_some();
        if let Some(result) = result {
            outcome::write(&self.side, found, call, result, py, &mut local.reply);
        }
        let aftermath = self.pool.slots.end(local.index);
        if aftermath.interrupted {
            // One that comes after the end would hit the next call.
            let ident = self.pool.slots.ident(local.index);
            // SAFETY: attached; null takes an exception back that was not raised yet.
            unsafe { ffi::PyThreadState_SetAsyncExc(ident, std::ptr::null_mut()) };
        }
        // Meant for the coroutine, which the loop has by now.
        if !answered && aftermath.interrupted {
            self.interrupt(py, call);
        } else if !answered && aftermath.cancelled {
            self.pool.slots.cancel(call);
            self.tell_loop(py, "cancel", call);
        }
        if aftermath.moved
            && let Some(folder) = &self.folder
        {
            let _ = rustix::process::fchdir(folder);
        }
        self.pool.ended(local, package, began.elapsed());
        if answered && !self.pool.reply(local, package) {
            let reply = std::mem::take(&mut local.reply);
            py.detach(|| self.pool.channel.send_waiting(&reply));
        }
    }

    fn hand_to_loop(&self, py: Python<'_>, call: u64, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.side.aio(py)?.call_method1("submit", (call, value))?;
        Ok(())
    }

    /// A coroutine ended: answers its call. On the thread of the event loop.
    pub(crate) fn end_coroutine(&self, py: Python<'_>, call: u64, result: native::Outcome<'_>) {
        if FORKED.load(Ordering::Relaxed) {
            end(exit_code(py, result.as_ref().err()));
        }
        let Some(place) = self.pool.slots.end_coroutine(call) else {
            return;
        };
        let frame = native::coroutine_frame(py, self, place, call, result);
        py.detach(|| self.pool.channel.send_waiting(&frame));
    }

    fn interrupt(&self, py: Python<'_>, call: u64) {
        let exception = self.side.interrupted(py);
        match self.pool.slots.interrupt(call) {
            Target::Thread(ident) => return raise_in(ident, exception),
            Target::NotStarted => return,
            Target::Unknown => {}
        }
        self.pool.slots.cancel(call);
        self.stop_task(py, call);
    }

    /// A task that waits is cancelled; one that blocks the loop is interrupted.
    fn stop_task(&self, py: Python<'_>, call: u64) {
        let blocking = self
            .side
            .running_aio(py)
            .and_then(|aio| aio.call_method1("blocking", (call,)).ok())
            .and_then(|ident| ident.extract::<Option<u64>>().ok().flatten());
        if let Some(ident) = blocking {
            raise_in(ident, self.side.interrupted(py));
        }
        self.tell_loop(py, "cancel", call);
    }

    fn tell_loop(&self, py: Python<'_>, what: &str, call: u64) {
        if let Some(aio) = self.side.running_aio(py) {
            // A loop that user code closed has no task to cancel.
            let _ = aio.call_method1(what, (call,));
        }
    }
}

fn raise_in(ident: u64, exception: &Bound<'_, PyType>) {
    #[expect(
        clippy::cast_possible_wrap,
        reason = "CPython declares the parameter as signed"
    )]
    let ident = ident as std::ffi::c_long;
    // SAFETY: attached; `exception` is a class and lives for ever.
    unsafe { ffi::PyThreadState_SetAsyncExc(ident, exception.as_ptr()) };
}

fn invoke<'py>(
    py: Python<'py>,
    package: Option<&Package>,
    arguments: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let callable = package
        .and_then(|package| package.callable.as_ref())
        .ok_or_else(|| PyLookupError::new_err("this package is not loaded"))?;
    let parse = PythonParse {
        cache_mode: StringCacheMode::Keys,
        ..PythonParse::default()
    };
    let parsed = parse
        .python_parse(py, arguments)
        .map_err(|error| PyValueError::new_err(format!("arguments: {error}")))?;
    let keywords = parsed
        .cast_into::<PyDict>()
        .map_err(|_| PyTypeError::new_err("arguments must be an object"))?;
    // SAFETY: attached; no positional arguments, and the keywords are a dict with str keys. Gives a
    // new reference or null with an exception set.
    unsafe {
        let result =
            ffi::PyObject_VectorcallDict(callable.as_ptr(), std::ptr::null(), 0, keywords.as_ptr());
        Bound::from_owned_ptr_or_err(py, result)
    }
}

/// What an `async def` gives; also a plain function that gives a coroutine or a future.
fn is_awaitable(value: &Bound<'_, PyAny>, package: Option<&Package>) -> bool {
    if package.is_some_and(|package| package.is_async) {
        return value.hasattr("__await__").unwrap_or(false);
    }
    // SAFETY: a test of the type.
    unsafe { ffi::PyCoro_CheckExact(value.as_ptr()) != 0 }
}

/// `EXIT`: what was printed is flushed, but a stuck interpreter is not waited for.
fn exit(py: Python<'_>) -> ! {
    // SAFETY: SIGALRM ends the process when the flush does not.
    unsafe { libc::alarm(1) };
    if let Ok(sys) = py.import("sys") {
        for stream in ["stdout", "stderr"] {
            let _ = sys
                .getattr(stream)
                .and_then(|stream| stream.call_method0("flush"));
        }
    }
    end(0)
}

fn exit_code(py: Python<'_>, error: Option<&PyErr>) -> i32 {
    match error {
        None => 0,
        Some(error) if error.is_instance_of::<PySystemExit>(py) => {
            error.value(py).getattr("code").map_or(1, |code| {
                if code.is_none() {
                    0
                } else {
                    code.extract().unwrap_or(1)
                }
            })
        }
        Some(_) => 1,
    }
}
