//! A port that serves HTTP, as worker, gateway and operator need one: accepts, bounds and ends connections, offers TLS; and the port
//! of their metrics.
//!
//! hyper speaks the protocol; what it leaves open is here: how many connections there may be, how long one may be
//! silent, idle or unread, and how all of them end. It knows no gRPC, no MCP and no key.

mod accept;
mod activity;
mod descriptors;
mod metrics;
mod slow;
mod stream;
pub mod tls;

pub use accept::{Port, serve};
pub use activity::{Bounds, Connection, Held, Open, Requests, behind_the_others};
pub use descriptors::places;
pub use metrics::serve_metrics;
pub use slow::{SlowReader, until_written};
pub use stream::Stream;
pub use tls::{Tls, TlsError};
