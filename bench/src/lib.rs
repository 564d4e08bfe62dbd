//! What the benchmarks of this repository have in common: statistics, a look at processes, and the report.

pub mod processes;
pub mod report;
pub mod stats;
