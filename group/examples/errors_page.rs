//! Writes `docs/reference/errors.md`: `cargo run -p ramen-group --example errors_page`.

fn main() -> std::io::Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/errors.md");
    std::fs::write(path, ramen_group::errors_page())
}
