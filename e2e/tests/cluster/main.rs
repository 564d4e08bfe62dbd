//! Tests against a real cluster (`make e2e`); one module per tier. The first ones hold the cluster itself to what the
//! others build on.

mod hooks;
mod t2;
mod t3;
mod t4;
