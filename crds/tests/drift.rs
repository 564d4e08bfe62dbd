//! The generated YAML is what the types say.

use std::path::Path;

#[test]
fn the_yaml_of_the_kind_is_what_the_types_say() {
    let text = serde_saphyr::to_string(&ramen_crds::crd()).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for file in [
        "crds/yaml/mcpgroups.ramen.dev.yaml",
        "charts/ramen-crds/files/mcpgroups.ramen.dev.yaml",
    ] {
        let written = std::fs::read_to_string(root.join(file)).unwrap_or_default();
        let (head, body) = written.split_once('\n').unwrap_or_default();
        assert!(
            head.contains("cargo xtask crdgen") && body == text,
            "{file} differs from the types; run `cargo xtask crdgen` and commit"
        );
    }
}
