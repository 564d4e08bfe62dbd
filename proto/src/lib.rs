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
