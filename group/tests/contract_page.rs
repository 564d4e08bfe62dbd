//! The examples of `docs/reference/contract.md` are one group, and it loads without a remark.

use std::fs;

#[test]
fn the_examples_of_the_contract_page_load() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/contract.md");
    let page = fs::read_to_string(path).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut files = 0;
    for part in page.split("<!-- file: ").skip(1) {
        let (name, rest) = part.split_once(" -->\n").unwrap();
        let (_, body) = rest.split_once('\n').unwrap();
        let (text, _) = body.split_once("\n```").unwrap();
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
        files += 1;
    }
    assert!(files > 10, "{files}");
    let group = ramen_group::scan(dir.path());
    assert_eq!((&*group.errors, &*group.warnings), (&[][..], &[][..]));
    assert_eq!(
        (
            group.tools.len(),
            group.resources.len(),
            group.prompts.len()
        ),
        (2, 1, 1)
    );
    let text = group
        .prompt("explain")
        .unwrap()
        .render(&[("topic".to_owned(), "ramen".to_owned())])
        .unwrap();
    assert!(
        text.starts_with("Explain ramen in a short text.\n\n## Settings\n"),
        "{text}"
    );
}
