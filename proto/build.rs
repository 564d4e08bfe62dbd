//! Compiles the protos with protox, so that no `protoc` is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = ["ramen/v1/mcp.proto", "ramen/v1/admin.proto"];
    for proto in protos {
        println!("cargo:rerun-if-changed={proto}");
    }
    let set = protox::compile(protos, ["."])?;
    let descriptor = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("ramen.bin");
    std::fs::write(&descriptor, prost::Message::encode_to_vec(&set))?;
    tonic_prost_build::configure()
        .bytes(".ramen.v1.JsonRpc.body")
        .generate_default_stubs(true)
        .compile_fds(set)?;
    Ok(())
}
