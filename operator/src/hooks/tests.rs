//! The receiver over real HTTP, with the groups scripted.

mod flood;
mod order;
mod port;
mod senders;
