//! The group's own lists as its workers gave them last, for when none of them answers.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ramen_client::Json;
use ramen_client::hub::{Members, may_come_from};
use ramen_mcp::Era;

use crate::names::MAX_MESSAGE;

/// Lists by the member of the result that holds them, and by era: a legacy list may hold less.
#[derive(Debug, Default)]
pub(super) struct Own(Mutex<HashMap<(&'static str, bool), Pages>>);

/// Pages from the first one on, each the one that the one before leads to. So nobody adds any by asking for cursors that
/// no page had.
#[derive(Debug, Default)]
struct Pages(Vec<Page>);

#[derive(Debug)]
struct Page {
    entries: Json,
    /// The cursor of the next one, as JSON text.
    next: Option<String>,
}

impl Own {
    /// Keeps a page that a worker gave.
    pub(super) fn keep(
        &self,
        member: &'static str,
        era: Era,
        cursor: Option<&str>,
        result: &Members,
    ) {
        let Some(entries) = result.get(member) else {
            return;
        };
        let page = Page {
            entries: entries.clone(),
            next: result.get("nextCursor").map(|next| next.get().to_owned()),
        };
        let mut lists = self.lists();
        lists
            .entry((member, era.is_modern()))
            .or_default()
            .keep(cursor, page);
    }

    /// The entries from a cursor on, as far as they are known.
    pub(super) fn entries(
        &self,
        member: &'static str,
        era: Era,
        cursor: Option<&str>,
    ) -> Vec<Members> {
        let lists = self.lists();
        let pages = lists.get(&(member, era.is_modern()));
        pages.map_or_else(Vec::new, |pages| pages.entries(cursor))
    }

    /// Whether one of the resources is this one, or a template that it may come from.
    pub(super) fn knows(&self, uri: &str) -> bool {
        let lists = self.lists();
        lists.iter().any(|((member, _), pages)| {
            let is_it = |item: &Members, key: &str, same: fn(&str, &str) -> bool| {
                let text = item.get(key).and_then(|text| text.to::<String>().ok());
                text.is_some_and(|text| same(&text, uri))
            };
            let mut entries = pages.entries(None).into_iter();
            match *member {
                "resources" => entries.any(|item| is_it(&item, "uri", |known, uri| known == uri)),
                "resourceTemplates" => {
                    entries.any(|item| is_it(&item, "uriTemplate", may_come_from))
                }
                _ => false,
            }
        })
    }

    fn lists(&self) -> MutexGuard<'_, HashMap<(&'static str, bool), Pages>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    /// Where the page of this cursor is, or would be.
    fn at(&self, cursor: Option<&str>) -> Option<usize> {
        let Some(cursor) = cursor.filter(|cursor| *cursor != "null") else {
            return Some(0);
        };
        let leads = |page: &Page| page.next.as_deref() == Some(cursor);
        self.0.iter().position(leads).map(|before| before + 1)
    }

    fn keep(&mut self, cursor: Option<&str>, page: Page) {
        let Some(at) = self.at(cursor) else { return };
        match self.0.get_mut(at) {
            Some(known) if known.next == page.next => *known = page,
            // What came after another page here does not come after this one.
            _ => {
                self.0.truncate(at);
                self.0.push(page);
            }
        }
        let mut bytes = 0;
        let fit = self.0.iter().take_while(|page| {
            bytes += page.entries.get().len();
            bytes <= MAX_MESSAGE
        });
        let fit = fit.count();
        self.0.truncate(fit);
    }

    fn entries(&self, cursor: Option<&str>) -> Vec<Members> {
        let Some(at) = self.at(cursor) else {
            return Vec::new();
        };
        let pages = self.0.iter().skip(at);
        pages
            .filter_map(|page| page.entries.to::<Vec<Members>>().ok())
            .flatten()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use ramen_mcp::version::NEWEST_LEGACY;
    use serde_json::{Value, json};

    use super::*;

    const LEGACY: Era = Era::Legacy(NEWEST_LEGACY);

    fn page(names: &[&str], next: Option<&str>) -> Members {
        let tools: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        let mut result = json!({"tools": tools});
        if let Some(next) = next {
            result["nextCursor"] = json!(next);
        }
        Json::from(&result).to().unwrap()
    }

    fn names(own: &Own, cursor: Option<&str>) -> Vec<Value> {
        let entries = own.entries("tools", LEGACY, cursor);
        entries
            .iter()
            .map(|tool| tool["name"].to().unwrap())
            .collect()
    }

    #[test]
    fn pages_follow_each_other_and_a_new_first_page_voids_what_came_after_another() {
        let own = Own::default();
        let keep = |cursor: Option<&str>, page: &Members| own.keep("tools", LEGACY, cursor, page);
        keep(None, &page(&["a"], Some("1")));
        keep(Some("\"1\""), &page(&["b"], Some("2")));
        keep(Some("\"2\""), &page(&["c"], None));
        assert_eq!(names(&own, None), ["a", "b", "c"]);
        assert_eq!(names(&own, Some("null")), ["a", "b", "c"]);
        assert_eq!(names(&own, Some("\"1\"")), ["b", "c"]);
        assert!(names(&own, Some("\"of nobody\"")).is_empty());
        assert!(own.entries("tools", Era::Modern, None).is_empty());
        // The same page again leaves the others.
        keep(None, &page(&["A"], Some("1")));
        assert_eq!(names(&own, None), ["A", "b", "c"]);
        keep(None, &page(&["x"], Some("9")));
        assert_eq!(names(&own, None), ["x"]);
        keep(None, &page(&["whole"], None));
        assert_eq!(names(&own, None), ["whole"]);
    }

    #[test]
    fn pages_that_no_page_leads_to_and_what_is_too_much_are_not_kept() {
        let own = Own::default();
        let keep = |cursor: Option<&str>, page: &Members| own.keep("tools", LEGACY, cursor, page);
        for made_up in 0..1000 {
            keep(Some(&format!("\"{made_up}\"")), &page(&["x"], None));
        }
        assert!(names(&own, None).is_empty());
        let large = "x".repeat(MAX_MESSAGE / 2);
        keep(None, &page(&[&large], Some("1")));
        keep(Some("\"1\""), &page(&[&large], Some("2")));
        keep(Some("\"2\""), &page(&["c"], None));
        assert_eq!(names(&own, None).len(), 1);
    }

    #[test]
    fn resources_are_known_by_their_uri_or_a_template() {
        let own = Own::default();
        let list = |member: &'static str, result: Value| {
            own.keep(
                member,
                Era::Modern,
                None,
                &Json::from(&result).to().unwrap(),
            );
        };
        list("resources", json!({"resources": [{"uri": "own://r"}]}));
        list(
            "resourceTemplates",
            json!({"resourceTemplates": [{"uriTemplate": "item://{id}"}, {"uriTemplate": "{+all}"}]}),
        );
        assert!(own.knows("own://r") && own.knows("item://7"));
        assert!(!own.knows("own://r2") && !own.knows("web://r"));
    }
}
