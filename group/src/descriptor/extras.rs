//! `annotations` and `icons`: hints that travel to clients as written.

use serde_json::value::RawValue;

use super::Fields;
use crate::json::{Member, Node, number::Decimal};
use crate::{PackageKind, Reason};

fn raw(node: &Node<'_>) -> Option<Box<RawValue>> {
    RawValue::from_string(node.minified()).ok()
}

impl Fields<'_> {
    pub(super) fn annotations(&mut self, kind: PackageKind) -> Option<Box<RawValue>> {
        let node = self
            .root
            .get("annotations")
            .filter(|_| kind != PackageKind::Prompt)?;
        let Some(members) = node.members() else {
            self.error(node.start, "`annotations` must be an object");
            return None;
        };
        for member in members {
            self.annotation(kind, member);
        }
        raw(node)
    }

    fn annotation(&mut self, kind: PackageKind, member: &Member<'_>) {
        let node = &member.node;
        let (fits, rule) = match (kind, &*member.name) {
            (
                PackageKind::Tool,
                "readOnlyHint" | "destructiveHint" | "idempotentHint" | "openWorldHint",
            ) => (node.as_bool().is_some(), "true or false"),
            (PackageKind::Resource, "audience") => {
                let whom = |item: &Node<'_>| matches!(item.as_str(), Some("user" | "assistant"));
                let fits = node.items().is_some_and(|items| items.iter().all(whom));
                (fits, "a list of `user` and `assistant`")
            }
            (PackageKind::Resource, "priority") => {
                let within = |token: &str| {
                    let value = Decimal::parse(token);
                    value >= Decimal::parse("0") && value <= Decimal::parse("1")
                };
                (node.as_number().is_some_and(within), "a number from 0 to 1")
            }
            (PackageKind::Tool, "title") | (PackageKind::Resource, "lastModified") => {
                (node.as_str().is_some(), "a string")
            }
            (_, name) => {
                let message = format!(
                    "`{}` is not a known annotation of a {kind}",
                    name.chars().take(64).collect::<String>()
                );
                return self.warn(Reason::FieldUnknown, member.at, message);
            }
        };
        if !fits {
            self.error(node.start, format!("`{}` must be {rule}", member.name));
        }
    }

    pub(super) fn icons(&mut self) -> Option<Box<RawValue>> {
        let node = self.root.get("icons")?;
        let Some(items) = node.items() else {
            self.error(node.start, "`icons` must be a list");
            return None;
        };
        for item in items {
            let Some(members) = item.members() else {
                self.error(item.start, "an icon must be an object with `src`");
                continue;
            };
            if item.get("src").is_none() {
                self.error(item.start, "an icon needs `src`");
            }
            for member in members {
                self.icon(member);
            }
        }
        raw(node)
    }

    fn icon(&mut self, member: &Member<'_>) {
        let node = &member.node;
        let (fits, rule) = match &*member.name {
            "src" => {
                let safe = |text: &str| text.starts_with("https://") || text.starts_with("data:");
                (
                    node.as_str().is_some_and(safe),
                    "an https: or data: address",
                )
            }
            "mimeType" => (node.as_str().is_some(), "a string"),
            "sizes" => {
                let strings = |items: &[Node<'_>]| items.iter().all(|i| i.as_str().is_some());
                (
                    node.items().is_some_and(strings),
                    "a list of strings like 48x48",
                )
            }
            "theme" => (
                matches!(node.as_str(), Some("light" | "dark")),
                "light or dark",
            ),
            name => {
                let message = format!(
                    "`{}` is not known in an icon",
                    name.chars().take(64).collect::<String>()
                );
                return self.warn(Reason::FieldUnknown, member.at, message);
            }
        };
        if !fits {
            self.error(node.start, format!("`{}` must be {rule}", member.name));
        }
    }
}
