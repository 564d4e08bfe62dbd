//! Host processes: everything between the front and user code.
//!
//! [`HostProcess`] is one `ramen-host` child: spawned with a clean environment, loaded with one
//! revision's packages, called, watched and ended. It knows nothing of gRPC, keys or generations, so
//! the deploy step uses it as it is.

mod process;

pub use process::{
    CallHandle, CallOptions, Death, HostError, HostEvent, HostProcess, HostSpec, Load, LoadLimits,
    LoadPackage, LoadReport, LoadedPackage, OutputLine, PackageKind, Reply, ReplyStatus, Stats,
};
