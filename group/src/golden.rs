//! `mcp/tests.yaml`: golden calls that gate a deploy.

use serde::Deserialize;
use serde_json::{Map, Number, Value};

use crate::{Finding, Reason, yaml};

/// Cases of one file.
const MAX_CASES: usize = 500;

/// The file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GoldenTests {
    /// The calls, in order.
    pub cases: Vec<GoldenCase>,
}

/// One call and what it must give.
#[derive(Debug, Clone, PartialEq)]
pub struct GoldenCase {
    /// Shown when it fails.
    pub name: String,
    /// The tool to call.
    pub tool: String,
    /// Its arguments; may hold secret references.
    pub args: Map<String, Value>,
    /// What the result of `tools/call` must be.
    pub expect: Expect,
}

/// What a result must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Expect {
    /// The joined text of the result's content holds this.
    TextContains(String),
    /// These fields of the result have these values; objects are matched field by field.
    Subset(Value),
    /// The whole result equals this.
    Exact(Value),
}

#[derive(Deserialize)]
struct RawFile {
    #[serde(default)]
    cases: Option<Vec<RawCase>>,
}

#[derive(Deserialize)]
struct RawCase {
    #[serde(default)]
    name: Option<String>,
    tool: String,
    #[serde(default)]
    args: Option<Map<String, Value>>,
    expect: RawExpect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawExpect {
    #[serde(default)]
    text_contains: Option<String>,
    #[serde(default)]
    subset: Option<Value>,
    #[serde(default)]
    exact: Option<Value>,
}

impl GoldenTests {
    /// Reads the file.
    pub fn parse(bytes: &[u8]) -> Result<Self, Finding> {
        let bad = |message: String| Finding::group(Reason::TestsInvalid, message);
        let file: Option<RawFile> = yaml::read(bytes, Reason::TestsInvalid)?;
        let raw = file.and_then(|file| file.cases).unwrap_or_default();
        if raw.len() > MAX_CASES {
            return Err(bad(format!("there are more than {MAX_CASES} cases")));
        }
        let cases = raw.into_iter().enumerate().map(|(n, case)| {
            let name = case.name.unwrap_or_else(|| format!("case {}", n + 1));
            let expect = match (
                case.expect.text_contains,
                case.expect.subset,
                case.expect.exact,
            ) {
                (Some(text), None, None) => Expect::TextContains(text),
                (None, Some(value), None) => Expect::Subset(value),
                (None, None, Some(value)) => Expect::Exact(value),
                _ => {
                    let name: String = name.chars().take(64).collect();
                    return Err(bad(format!(
                        "`expect` of case `{name}` must have one of text_contains, subset, exact"
                    )));
                }
            };
            Ok(GoldenCase {
                name,
                tool: case.tool,
                args: case.args.unwrap_or_default(),
                expect,
            })
        });
        Ok(Self {
            cases: cases.collect::<Result<_, _>>()?,
        })
    }
}

impl Expect {
    /// Whether the `tools/call` result `{content, structuredContent?, isError?}` is as expected;
    /// otherwise one sentence that says where it differs (bounded, not yet redacted).
    pub fn check(&self, result: &Value) -> Result<(), String> {
        match self {
            Self::TextContains(wanted) => {
                let text = text_of(result);
                if text.contains(wanted.as_str()) {
                    Ok(())
                } else {
                    Err(format!(
                        "the text {} does not contain {}",
                        show(&text),
                        show(wanted)
                    ))
                }
            }
            Self::Subset(wanted) => matches(wanted, result, false, "result"),
            Self::Exact(wanted) => matches(wanted, result, true, "result"),
        }
    }
}

/// The text blocks of a result, joined by line breaks.
fn text_of(result: &Value) -> String {
    let blocks = result.get("content").and_then(Value::as_array);
    let texts = blocks
        .into_iter()
        .flatten()
        .filter_map(|block| block.get("text")?.as_str());
    texts.collect::<Vec<_>>().join("\n")
}

fn show(text: &str) -> String {
    let mut shown: String = text.chars().take(200).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}

fn same_number(a: &Number, b: &Number) -> bool {
    a == b || matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if (a - b).abs() == 0.0)
}

fn matches(wanted: &Value, got: &Value, exact: bool, place: &str) -> Result<(), String> {
    match (wanted, got) {
        (Value::Object(wanted), Value::Object(got)) => {
            for (name, value) in wanted {
                let inner = format!("{place}.{name}");
                match got.get(name) {
                    Some(got) => matches(value, got, exact, &inner)?,
                    None => return Err(format!("{inner} is missing")),
                }
            }
            match got.keys().find(|name| exact && !wanted.contains_key(*name)) {
                Some(extra) => Err(format!("{place}.{extra} is not expected")),
                None => Ok(()),
            }
        }
        (Value::Array(wanted), Value::Array(got)) => {
            if wanted.len() != got.len() {
                return Err(format!(
                    "{place} has {} items instead of {}",
                    got.len(),
                    wanted.len()
                ));
            }
            let pairs = wanted.iter().zip(got).enumerate();
            pairs.into_iter().try_for_each(|(n, (wanted, got))| {
                matches(wanted, got, exact, &format!("{place}[{n}]"))
            })
        }
        (Value::Number(a), Value::Number(b)) if same_number(a, b) => Ok(()),
        (wanted, got) if wanted == got => Ok(()),
        (wanted, got) => Err(format!(
            "{place} is {} instead of {}",
            show(&got.to_string()),
            show(&wanted.to_string())
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = r#"
cases:
  - name: add
    tool: calc
    args: {var1: 40, var2: 2, func: add}
    expect: {text_contains: "42"}
  - tool: calc
    expect: {subset: {isError: true}}
  - name: whole
    tool: words
    args: {text: "{{$demo.NAME}}"}
    expect: {exact: {content: [{type: text, text: "x"}]}}
"#;

    #[test]
    fn cases_load_as_they_are_written() {
        let tests = GoldenTests::parse(FILE.as_bytes()).unwrap();
        assert_eq!(tests.cases.len(), 3);
        assert_eq!(tests.cases[0].args["var1"], json!(40));
        assert_eq!(tests.cases[1].name, "case 2");
        assert_eq!(
            tests.cases[1].expect,
            Expect::Subset(json!({"isError": true}))
        );
        assert_eq!(GoldenTests::parse(b"").unwrap(), GoldenTests::default());
        assert_eq!(
            GoldenTests::parse(b"cases:\n").unwrap(),
            GoldenTests::default()
        );
    }

    #[test]
    fn files_of_another_form_are_refused() {
        for text in [
            "cases: 3\n",
            "cases:\n  - name: x\n    expect: {exact: 1}\n",
            "cases:\n  - tool: x\n    expect: {}\n",
            "cases:\n  - tool: x\n    expect: {exact: 1, subset: 2}\n",
            "cases:\n  - tool: x\n    expect: {contains: y}\n",
            "cases: [",
        ] {
            let finding = GoldenTests::parse(text.as_bytes()).unwrap_err();
            assert_eq!(finding.reason, Reason::TestsInvalid, "{text}");
        }
    }

    #[test]
    fn expectations_say_where_a_result_differs() {
        let result = json!({
            "content": [{"type": "text", "text": "212.0"}],
            "structuredContent": {"words": 6, "lines": [1, 2]},
            "isError": false
        });
        let check = |expect: Expect| expect.check(&result);
        assert_eq!(check(Expect::TextContains("212".to_owned())), Ok(()));
        assert_eq!(
            check(Expect::Subset(json!({"structuredContent": {"words": 6.0}}))),
            Ok(())
        );
        assert_eq!(check(Expect::Exact(result.clone())), Ok(()));
        for (expect, message) in [
            (
                Expect::TextContains("7".to_owned()),
                r#"the text "212.0" does not contain "7""#,
            ),
            (
                Expect::Subset(json!({"structuredContent": {"words": 5}})),
                r#"result.structuredContent.words is "6" instead of "5""#,
            ),
            (Expect::Subset(json!({"x": 1})), "result.x is missing"),
            (
                Expect::Subset(json!({"structuredContent": {"lines": [1]}})),
                "result.structuredContent.lines has 2 items instead of 1",
            ),
            (
                Expect::Exact(json!({"content": [{"type": "text", "text": "212.0"}]})),
                "result.structuredContent is not expected",
            ),
        ] {
            assert_eq!(check(expect).unwrap_err(), message);
        }
    }
}
