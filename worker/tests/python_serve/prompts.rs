//! PRM: prompts as they arrive, whatever the file looks like. No Python runs for them.

use serde_json::{Value, json};

use crate::harness::Group;
use crate::served::{Setup, pythons};

fn prompt(group: Group, name: &str, skill: &[u8], input: &Value) -> Group {
    let descriptor = json!({
        "type": "prompt", "name": name, "description": "d", "skill": "SKILL.md", "input": input,
    });
    group
        .file(
            &format!("prompts/{name}/{name}.json"),
            descriptor.to_string(),
        )
        .file(&format!("prompts/{name}/SKILL.md"), skill)
}

fn text(answer: &Value) -> &str {
    let text = answer["result"]["messages"][0]["content"]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}"))
}

const RULES: &str = "# T\n\n---\n\nkey: value\n---\n```yaml\n---\na: 1\n---\n```\n---\nend\n";
const BRACES: &str =
    "{{ My custom content }}\n{% for x in xs %}{{ x.name }}{% endfor %}\n{{#if a}}{{/if}}\n";
const LOOSE: &str = "{{p {{}} {{p|upper}} {{ p | upper }} {p} }} {{q}} {{p}";
const BLOCK: &str =
    "---\nname: x\ndescription: |-\n  Use when: a\n  ---\n  more: b\nother: 1\n---\nBody\n";

#[tokio::test]
async fn prm01_to_prm07_and_prm11_the_text_is_the_file_without_its_first_block() {
    let none = json!({});
    let one = json!({"p": {"type": "string"}});
    let two = json!({"a": {"type": "string"}, "b": {"type": "string"}});
    let p = json!({"p": "V"});
    let rows: Vec<(&str, String, &Value, Value, String)> = vec![
        (
            "prm01",
            "\u{feff}---\nname: x\n---\nBody".into(),
            &none,
            json!({}),
            "Body".into(),
        ),
        (
            "prm02",
            format!("---\nname: x\n---\n{RULES}"),
            &none,
            json!({}),
            RULES.into(),
        ),
        (
            "prm03_eof",
            "---\nname: x\n---".into(),
            &none,
            json!({}),
            String::new(),
        ),
        (
            "prm03_none",
            "Just text\n---\n".into(),
            &none,
            json!({}),
            "Just text\n---\n".into(),
        ),
        (
            "prm03_open",
            "---\nname: x\nno end\n".into(),
            &none,
            json!({}),
            "---\nname: x\nno end\n".into(),
        ),
        ("prm04", BRACES.into(), &one, p.clone(), BRACES.into()),
        (
            "prm05",
            "{{a}} {{b}}".into(),
            &two,
            json!({"a": "{{b}}", "b": "X"}),
            "{{b}} X".into(),
        ),
        (
            "prm06",
            "{{ p }} and {{p}}".into(),
            &one,
            p.clone(),
            "V and V".into(),
        ),
        ("prm07", LOOSE.into(), &one, p.clone(), LOOSE.into()),
        (
            "prm07_mib",
            "{{".repeat(512 * 1024),
            &one,
            p.clone(),
            "{{".repeat(512 * 1024),
        ),
        (
            "prm08",
            "K: {{p}}".into(),
            &one,
            json!({"p": "{{$g.KEY}}"}),
            "K: {{$g.KEY}}".into(),
        ),
        ("prm11", BLOCK.into(), &none, json!({}), "Body\n".into()),
    ];
    let group = rows
        .iter()
        .fold(Group::new(), |group, (name, skill, input, ..)| {
            prompt(group, name, skill.as_bytes(), input)
        });
    let setup = Setup::new(&pythons()[0]).secret("KEY", "s3cr3t-value");
    let mut served = setup.serve(&group).await;
    let client = served.client().await;
    for (row, _, _, arguments, wanted) in &rows {
        let params = json!({"name": row, "arguments": arguments});
        let answer = client.rpc("prompts/get", params).await;
        assert!(
            text(&answer) == wanted,
            "{row}: {:.300}",
            answer.to_string()
        );
    }
    served.assert_alive();
}

#[tokio::test]
async fn prm03_an_empty_file_is_left_out_and_the_others_are_served() {
    let group = prompt(Group::new(), "empty", b"", &json!({}));
    let group = prompt(group, "full", b"Hello", &json!({}));
    let setup = Setup::new(&pythons()[0]).exclude("prompts/empty");
    let client = setup.serve(&group).await;
    let client = client.client().await;
    let listed = client.rpc("prompts/list", json!({})).await;
    let names: Vec<_> = listed["result"]["prompts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["name"])
        .collect();
    assert_eq!(names, ["full"]);
}

#[tokio::test]
async fn prm09_wrong_arguments_are_named() {
    let input = json!({"p": {"type": "string"}, "tone": {"enum": ["warm", "cold"]}});
    let group = prompt(Group::new(), "greet", b"{{p}} {{tone}}", &input);
    let served = Setup::new(&pythons()[0]).serve(&group).await;
    let client = served.client().await;
    let rows = [
        ("missing", json!({"tone": "warm"}), "p"),
        (
            "extra",
            json!({"p": "a", "tone": "warm", "age": "7"}),
            "age",
        ),
        ("number", json!({"p": 7, "tone": "warm"}), "p"),
        ("enum", json!({"p": "a", "tone": "hot"}), "tone"),
    ];
    for (row, arguments, argument) in rows {
        let params = json!({"name": "greet", "arguments": arguments});
        let answer = client.rpc("prompts/get", params).await;
        assert_eq!(answer["error"]["code"], -32602, "{row}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("`{argument}`")),
            "{row}: {answer}"
        );
    }
}

#[tokio::test]
async fn prm10_settings_start_their_own_line_and_are_listed_as_they_are() {
    let settings = r#"{"tone": "friendly", "max": 12345678901234567890123, "x": {"y": [1.50]}}"#;
    let descriptor = json!({
        "type": "prompt", "name": "set", "description": "d", "skill": "SKILL.md",
        "settings": "settings.json", "input": {},
    });
    let group = Group::new()
        .file("prompts/set/set.json", descriptor.to_string())
        .file("prompts/set/settings.json", settings)
        .file("prompts/set/SKILL.md", "No final newline");
    let served = Setup::new(&pythons()[0]).serve(&group).await;
    let client = served.client().await;
    let answer = client.rpc("prompts/get", json!({"name": "set"})).await;
    let got = text(&answer);
    assert!(got.starts_with("No final newline\n"), "{got}");
    assert!(got.contains("\n## Settings\n"), "{got}");
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"prompts/list"}"#;
    let list = client.raw(list).await.unwrap();
    let list = std::str::from_utf8(&list).unwrap();
    // Digits and all.
    assert!(
        list.contains("12345678901234567890123") && list.contains("1.50"),
        "{list}"
    );
    let list: Value = serde_json::from_str(list).unwrap();
    let listed = &list["result"]["prompts"][0]["_meta"]["settings"];
    assert_eq!(*listed, serde_json::from_str::<Value>(settings).unwrap());
}
