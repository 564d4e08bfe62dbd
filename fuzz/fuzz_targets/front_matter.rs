//! A SKILL.md and the values put into it: never a panic, and no value is looked at again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ramen_group::Template;

fuzz_target!(|text: &str| {
    let names = ["a", "reader", "expression"];
    let template = Template::parse(text, &names).with_settings("{\"a\": \"```\"}");
    // The same text, the same template.
    assert_eq!(
        format!("{template:?}"),
        format!(
            "{:?}",
            Template::parse(text, &names).with_settings("{\"a\": \"```\"}")
        )
    );
});
