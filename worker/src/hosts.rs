//! Host processes: everything between the front and user code.
//!
//! [`HostProcess`] is one `ramen-host` child: spawned with a clean environment, loaded with one
//! revision's packages, called, watched and ended. It knows nothing of gRPC, keys or generations, so
//! the deploy step uses it as it is. [`pool::Pool`] holds the hosts of one generation: it picks a
//! host for each call, bounds what each carries, and replaces what dies. [`Memory`] is what all of
//! them share, and ends the one that takes too much of it.

mod channel;
mod fate;
mod memory;
mod output;
pub mod pool;

mod process;
mod socket;
mod spawner;

pub(crate) use channel::lock;
pub use channel::{CallHandle, CallOptions, HostEvent, Reply};
pub use fate::{CallError, Death, EndCause, HostError};
pub use memory::Memory;
pub(crate) use memory::Tenant;
pub use process::{HostProcess, HostSpec, LoadLimits, OutputLine, host_program};
pub use ramen_frame::{
    Load, LoadPackage, Loaded as LoadReport, LoadedPackage, PackageKind, Stats,
    Status as ReplyStatus,
};
