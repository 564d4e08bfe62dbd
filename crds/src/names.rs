//! Names that are fixed once.

use std::collections::BTreeMap;

use ramen_group::secrets;

use crate::SpecFault;

/// The API group.
pub const API_GROUP: &str = "ramen.dev";
/// The version.
pub const API_VERSION: &str = "v1alpha1";
/// The kind.
pub const KIND: &str = "McpGroup";

/// Longest name of a group: `<group>-<zone>` and `<group>-mcp-keys` must be names of Services and
/// Secrets, and pods add a hash.
pub const MAX_GROUP_NAME: usize = 40;
/// Longest name of a zone.
pub const MAX_ZONE_NAME: usize = 16;

/// The environment variables for the keys of a group's Secrets: `(secret, key)` → variable.
///
/// A key that is no secret's name, or two keys that would become one variable, are faults; the other
/// keys are mapped all the same.
pub fn secret_variables<'k>(
    group: &str,
    keys: impl IntoIterator<Item = (&'k str, &'k str)>,
) -> (BTreeMap<String, (String, String)>, Vec<SpecFault>) {
    let mut variables: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut clashes: Vec<String> = Vec::new();
    let mut faults = Vec::new();
    for (secret, key) in keys {
        let field = format!(
            "secrets[{secret}].{}",
            key.chars().take(64).collect::<String>()
        );
        if !secrets::is_secret_name(key) {
            let message =
                "the key is not made of letters, digits, `_`, `-` and `.`; it is left out";
            faults.push(SpecFault::new(field, message));
            continue;
        }
        let variable = secrets::env_name(group, key);
        if let Some((other_secret, other_key)) = variables.get(&variable) {
            let message = format!(
                "the key becomes {variable}, as does `{other_key}` of `{other_secret}`; both are left out"
            );
            faults.push(SpecFault::new(field, message));
            clashes.push(variable);
        } else {
            variables.insert(variable, (secret.to_owned(), key.to_owned()));
        }
    }
    for clash in clashes {
        variables.remove(&clash);
    }
    (variables, faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sec12_keys_are_mapped_or_named() {
        let keys = ["1x", "a-b", "a.b", "a b", "", "token"].map(|key| ("s", key));
        let (variables, faults) = secret_variables("my-group", keys);
        let names: Vec<_> = variables.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["RAMEN_SECRET_MY_GROUP__1X", "RAMEN_SECRET_MY_GROUP__TOKEN"]
        );
        let fields: Vec<_> = faults.iter().map(|fault| &*fault.field).collect();
        assert_eq!(fields, ["secrets[s].a.b", "secrets[s].a b", "secrets[s]."]);
        assert!(faults[0].message.contains("RAMEN_SECRET_MY_GROUP__A_B"));
    }
}
