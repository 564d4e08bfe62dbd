//! A `<name>.json`: never a panic; a refusal says where; what is taken makes an input schema that is JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ramen_group::{PackageKind, parse_descriptor};

fuzz_target!(|data: &[u8]| {
    let Some((&kind, text)) = data.split_first() else {
        return;
    };
    let expected = match kind % 4 {
        0 => Some((PackageKind::Tool, "demo_calculator_tool")),
        1 => Some((PackageKind::Resource, "demo_readme")),
        2 => Some((PackageKind::Prompt, "demo_explain_prompt")),
        _ => None,
    };
    match parse_descriptor(text, expected) {
        Ok((descriptor, _)) => {
            // Arguments are checked without a panic too, whatever they are.
            let _ = descriptor.input.check(&String::from_utf8_lossy(text));
            let _ = descriptor.input.check("{}");
        }
        Err(findings) => assert!(!findings.is_empty(), "a refusal gives its reason"),
    }
});
