//! Which Pythons a test runs with.

use std::path::Path;

/// Those that `dir` has hosts for, as `3.11`, the oldest first: the oldest alone, or with `RAMEN_TEST_PYTHONS=all` each.
pub(crate) fn wanted(dir: &Path) -> Vec<String> {
    let mut minors: Vec<u32> = std::fs::read_dir(dir)
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().ok()?;
            name.strip_prefix("ramen-host-3.")?.parse().ok()
        })
        .collect();
    minors.sort_unstable();
    let all = std::env::var_os("RAMEN_TEST_PYTHONS").is_some_and(|which| which == "all");
    if !all {
        minors.truncate(1);
    }
    let missing = dir.display();
    assert!(
        !minors.is_empty(),
        "no ramen-host-3.x in {missing}: run `cargo xtask hosts`"
    );
    minors.iter().map(|minor| format!("3.{minor}")).collect()
}
