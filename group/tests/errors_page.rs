//! `docs/reference/errors.md` is what the list of reasons says.

use ramen_group::{Reason, errors_page};

#[test]
fn the_errors_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/errors.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        page == errors_page(),
        "docs/reference/errors.md is out of date: run `cargo run -p ramen-group --example errors_page`"
    );
}

#[test]
fn reasons_travel_by_name_and_unknown_ones_are_read() {
    for reason in Reason::ALL {
        let json = serde_json::to_string(reason).unwrap();
        assert_eq!(json, format!("\"{}\"", reason.as_str()));
        assert_eq!(serde_json::from_str::<Reason>(&json).unwrap(), *reason);
        assert!(
            reason.summary().ends_with('.') && reason.fix().ends_with('.'),
            "{reason}"
        );
    }
    assert_eq!(
        serde_json::from_str::<Reason>("\"FromTheFuture\"").unwrap(),
        Reason::Unknown
    );
}
