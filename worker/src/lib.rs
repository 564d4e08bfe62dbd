//! The worker as a library.
