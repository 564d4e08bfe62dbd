use super::*;

pub(crate) fn named(tree: &str) -> (Inputs, Revision) {
    let inputs = Inputs {
        tree: tree.to_owned(),
        runtime: "image".to_owned(),
        spec: String::new(),
    };
    let revision = Revision {
        commit: format!("{tree}{tree}"),
        label: format!("main@sha1:{tree}{tree}"),
    };
    (inputs, revision)
}
