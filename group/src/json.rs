//! A strict JSON reader that keeps places and number tokens: for descriptors (line and column of
//! every fault) and for arguments (exact numbers, no copies).
