//! A SKILL.md and the values put into it: never a panic, and no value is looked at again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ramen_group::{PackageName, Prompt, PromptArgument, Template};

const NAMES: [&str; 3] = ["a", "reader", "expression"];
/// Each names a place, its own or another's.
const VALUES: [&str; 3] = ["{{reader}}", "{{ a }}{{expression}}", "{{expression}}"];
/// In no text that is looked at, so that it can be found again in what comes out.
const MARK: char = '\u{e000}';

fuzz_target!(|text: &str| {
    let parse = || Template::parse(text, &NAMES).with_settings("{\"a\": \"```\"}");
    let template = parse();
    // The same text, the same template.
    assert_eq!(template, parse());
    if text.contains(MARK) {
        return;
    }
    let argument = |name: &str| PromptArgument {
        name: name.to_owned(),
        description: None,
        required: false,
        default: None,
        values: Vec::new(),
    };
    let prompt = Prompt {
        name: PackageName::parse("prompt").expect("it follows the rule"),
        dir: "prompts/prompt".to_owned(),
        title: None,
        description: None,
        arguments: NAMES.map(argument).into(),
        settings: None,
        icons: None,
        template,
    };
    let render = |values: [String; 3]| {
        let names = NAMES.map(str::to_owned);
        let given: Vec<_> = names.into_iter().zip(values).collect();
        prompt.render(&given).expect("any text may be given")
    };
    // Texts that name nothing show where values go; there, and nowhere else, the others stand as they are.
    let marks = [0, 1, 2].map(|n| format!("{MARK}{n};"));
    let mut wanted = render(marks.clone());
    for (mark, value) in marks.iter().zip(VALUES) {
        wanted = wanted.replace(mark.as_str(), value);
    }
    assert_eq!(render(VALUES.map(str::to_owned)), wanted);
});
