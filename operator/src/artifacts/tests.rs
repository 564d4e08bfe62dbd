//! The endpoint over real HTTP, with a real store, in a folder and in a bucket.

mod bucket;
mod deploys;
mod layers;
mod port;
