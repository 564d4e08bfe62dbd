use proptest::prelude::*;

use super::*;

fn prompt(body: &str, names: &[&str]) -> Prompt {
    Prompt {
        name: PackageName::parse("p").unwrap(),
        dir: "prompts/p".to_owned(),
        title: None,
        description: None,
        arguments: names
            .iter()
            .map(|name| PromptArgument {
                name: (*name).to_owned(),
                description: None,
                required: true,
                default: None,
                values: Vec::new(),
            })
            .collect(),
        settings: None,
        icons: None,
        template: Template::parse(body, names),
    }
}

fn given(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

fn plain(body: &str) -> String {
    prompt(body, &[]).render(&[]).unwrap()
}

#[test]
fn prm02_only_the_first_block_is_removed() {
    let body = "# T\n\n---\na: b\n---\n\n```yaml\n---\nx: 1\n---\n```\n---\n";
    assert_eq!(plain(&format!("---\nname: x\n---\n{body}")), body);
}

#[test]
fn prm03_fences_at_the_edges() {
    assert_eq!(
        plain("---\nname: x\n---"),
        "",
        "closing fence at the end of the file"
    );
    assert_eq!(plain("no front matter\n---\n"), "no front matter\n---\n");
    assert_eq!(
        plain("---\nname: x\nBody"),
        "---\nname: x\nBody",
        "never closed: the whole file"
    );
    assert_eq!(plain(""), "");
    assert_eq!(plain("---\r\nname: x\r\n---  \r\nBody\r\n"), "Body\r\n");
}

#[test]
fn prm04_undeclared_braces_stay() {
    let body = "{{ My custom content }} {% for x in y %}{{ x.z | upper }}{% endfor %} {{other}}";
    let prompt = prompt(body, &["p"]);
    assert_eq!(prompt.render(&given(&[("p", "v")])).unwrap(), body);
}

#[test]
fn prm05_values_are_not_processed_again() {
    let prompt = prompt("{{a}} {{b}}", &["a", "b"]);
    assert_eq!(
        prompt
            .render(&given(&[("a", "{{b}}"), ("b", "X")]))
            .unwrap(),
        "{{b}} X"
    );
}

#[test]
fn prm06_blanks_inside_the_braces_do_not_matter() {
    let prompt = prompt("{{p}}|{{ p }}|{{\tp}}|{{{p}}}", &["p"]);
    assert_eq!(prompt.render(&given(&[("p", "v")])).unwrap(), "v|v|v|{v}");
}

#[test]
fn prm07_broken_placeholders_stay_and_cost_nothing() {
    for body in [
        "{{p",
        "{{}}",
        "{{p|upper}}",
        "{{p}",
        "{{",
        "{{ p",
        "{{\np\n}}",
    ] {
        assert_eq!(
            prompt(body, &["p"]).render(&given(&[("p", "v")])).unwrap(),
            body
        );
    }
    let braces = "{{".repeat(512 * 1024);
    assert_eq!(
        prompt(&braces, &["p"])
            .render(&given(&[("p", "v")]))
            .unwrap(),
        braces
    );
}

#[test]
fn prm08_a_secret_reference_stays_text() {
    let prompt = prompt("{{p}}", &["p"]);
    assert_eq!(
        prompt.render(&given(&[("p", "{{$g.KEY}}")])).unwrap(),
        "{{$g.KEY}}"
    );
}

#[test]
fn prm10_settings_start_their_own_line() {
    for (body, expected) in [
        ("Body", "Body\n\n## Settings\n\n```json\n{\"a\": 1}\n```\n"),
        (
            "Body\n",
            "Body\n\n## Settings\n\n```json\n{\"a\": 1}\n```\n",
        ),
        ("", "## Settings\n\n```json\n{\"a\": 1}\n```\n"),
    ] {
        let mut prompt = prompt(body, &[]);
        prompt.template = prompt.template.with_settings("{\"a\": 1}\n");
        assert_eq!(prompt.render(&[]).unwrap(), expected);
    }
    let fenced = Template::parse("", &[]).with_settings("{\"a\":\"```\"}");
    assert!(fenced.fill(&[]).contains("````json\n"));
}

#[test]
fn prm11_a_block_scalar_does_not_end_the_front_matter() {
    let text = "---\nname: x\ndescription: |-\n  a: b\n  ---\n  c\n---\nBody";
    assert_eq!(plain(text), "Body");
}

#[test]
fn enum_arguments_are_held_to_their_values() {
    let mut prompt = prompt("{{p}}", &["p"]);
    prompt.arguments[0].values = vec!["a".to_owned(), "b".to_owned()];
    assert!(prompt.render(&given(&[("p", "a")])).is_ok());
    let fault = prompt.render(&given(&[("p", "c")])).unwrap_err();
    assert_eq!(fault.to_string(), "argument `p` must be one of: a, b");
    assert_eq!(fault.argument.as_deref(), Some("p"));
}

proptest! {
    #[test]
    fn rendering_never_panics(text in ".{0,200}", value in ".{0,40}") {
        let prompt = prompt(&text, &["p", "q"]);
        let pairs = [("p".to_owned(), value.clone()), ("q".to_owned(), value)];
        prop_assert!(prompt.render(&pairs).is_ok());
    }

    #[test]
    fn rendering_equals_the_model(parts in proptest::collection::vec(0..6usize, 0..20)) {
        let pieces = ["{{p}}", "{{ p }}", "text", "\n", "{", "}}"];
        let text: String = parts.iter().map(|part| pieces[*part]).collect();
        // A value that cannot be confused with the text around it.
        let model = text.replace("{{p}}", "\u{1}").replace("{{ p }}", "\u{1}");
        let got = prompt(&text, &["p"]).render(&[("p".to_owned(), "\u{1}".to_owned())]);
        prop_assert_eq!(got.unwrap(), model);
    }
}
