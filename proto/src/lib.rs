//! The gRPC contracts of Ramen, generated from `ramen/v1/*.proto`. Nothing else of ours lives here.

/// `ramen.v1`: the MCP transport of seed 000 and the administration of one worker.
#[expect(
    missing_docs,
    clippy::pedantic,
    reason = "generated from the protos, which are the documentation"
)]
pub mod v1 {
    tonic::include_proto!("ramen.v1");
}

/// The encoded `FileDescriptorSet` of all protos, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ramen.bin"));

/// Metadata of a refused `Admin/Reload`: the reason, a word of the errors page.
pub const REASON_HEADER: &str = "ramen-reason";

/// Metadata of an `UNAVAILABLE` which says that nothing of the call ran: asking again, there or elsewhere, repeats nothing.
pub const NOT_BEGUN_HEADER: &str = "ramen-not-begun";

/// An `UNAVAILABLE` that says so.
#[must_use]
pub fn not_begun(message: impl Into<String>) -> tonic::Status {
    let mut status = tonic::Status::unavailable(message);
    let yes = tonic::metadata::MetadataValue::from_static("1");
    status.metadata_mut().insert(NOT_BEGUN_HEADER, yes);
    status
}

/// Whether a status says it.
#[must_use]
pub fn is_not_begun(status: &tonic::Status) -> bool {
    status.code() == tonic::Code::Unavailable && status.metadata().contains_key(NOT_BEGUN_HEADER)
}

/// The upper-case gRPC name of a code, as every other implementation prints it.
#[must_use]
pub fn code_name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
