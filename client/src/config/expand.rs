//! `${NAME}` in the values of an entry.

/// How variables are looked up.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces `${NAME}`, `${NAME:-default}` (Claude) and `${env:NAME}` (Cursor, VS Code). `${workspaceFolder}` is the
/// workspace, where there is one. The values themselves are not looked at again. The error says what cannot be filled in;
/// it holds no value.
pub(super) fn expand(text: &str, lookup: Lookup<'_>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        let Some(end) = after.find('}') else {
            return Err("`${` without `}`".to_owned());
        };
        let inner = &after[..end];
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        if !is_name(name) {
            return Err(format!(
                "`${{{}}}` cannot be filled in here: variables of the environment can",
                clip(inner)
            ));
        }
        match (lookup(name), default) {
            (Some(value), default) if !value.is_empty() || default.is_none() => {
                out.push_str(&value);
            }
            (_, Some(default)) => out.push_str(default),
            (_, None) => return Err(format!("the variable {name} is not set")),
        }
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<String, String> {
        expand(text, &|name| match name {
            "TOKEN" => Some("t0ken".to_owned()),
            "TRICK" => Some("${TOKEN}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn variables_are_filled_in_in_each_form_that_programs_use() {
        for (text, want) in [
            ("plain $TOKEN $ {x}", "plain $TOKEN $ {x}"),
            ("Bearer ${TOKEN}", "Bearer t0ken"),
            ("${env:TOKEN}/${TOKEN}", "t0ken/t0ken"),
            ("${MISSING:-https://h/x}", "https://h/x"),
            ("${EMPTY:-d}|${EMPTY}", "d|"),
            ("${TOKEN:-d}", "t0ken"),
            ("${MISSING:-}", ""),
        ] {
            assert_eq!(with(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn a_value_is_not_expanded_again() {
        assert_eq!(with("${TRICK}").as_deref(), Ok("${TOKEN}"));
    }

    #[test]
    fn what_cannot_be_filled_in_is_an_error_that_names_it() {
        for (text, part) in [
            ("${MISSING}", "MISSING"),
            ("${input:token}", "input:token"),
            ("${TOKEN", "without"),
            ("${}", "${}"),
        ] {
            let error = with(text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
