//! The operations of a gateway whose groups come from a file: it shows them, and changes nothing.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::error::OpError;
use super::platform::{Change, Platform, Who};
use crate::groups::{Group, GroupName, Groups};

/// Groups that somebody else keeps.
#[derive(Debug, Clone)]
pub struct Fixed(Groups);

impl Fixed {
    /// These groups.
    pub fn new(groups: Groups) -> Self {
        Self(groups)
    }

    fn get(&self, name: &GroupName) -> Result<Value, OpError> {
        let group = self.0.get(&name.namespace, &name.name);
        let group = group.ok_or_else(|| OpError::no_group(name))?;
        Ok(brief(&group))
    }
}

fn brief(group: &Group) -> Value {
    let workers = group.pool.workers();
    let aside = workers
        .iter()
        .filter(|worker| worker.stands_aside())
        .count();
    json!({
        "group": group.name.to_string(),
        "ready": workers.len() > aside,
        "workers": workers.len(),
        "workersAside": aside,
    })
}

impl Platform for Fixed {
    fn groups(&self) -> BoxFuture<'_, Result<Vec<Value>, OpError>> {
        let mut groups = self.0.all();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        let groups = groups.iter().map(|group| brief(group)).collect();
        Box::pin(std::future::ready(Ok(groups)))
    }

    fn group<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Value, OpError>> {
        Box::pin(std::future::ready(self.get(name)))
    }

    fn errors<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Vec<Value>, OpError>> {
        Box::pin(std::future::ready(self.get(name).map(|_| Vec::new())))
    }

    fn events<'a>(&'a self, name: &'a GroupName) -> BoxFuture<'a, Result<Vec<Value>, OpError>> {
        Box::pin(std::future::ready(self.get(name).map(|_| Vec::new())))
    }

    fn change<'a>(
        &'a self,
        name: &'a GroupName,
        _: Change,
        _: Who,
    ) -> BoxFuture<'a, Result<Value, OpError>> {
        let refusal = self.get(name).and_then(|_| {
            Err(OpError::Conflict(
                "the groups of this gateway come from its file: change that, and the workers"
                    .into(),
            ))
        });
        Box::pin(std::future::ready(refusal))
    }
}

#[cfg(test)]
mod tests {
    use ramen_group::CidrSet;
    use ramen_redact::{KeySet, Secret};

    use super::*;
    use crate::groups::GroupSpec;

    #[tokio::test]
    async fn groups_of_a_file_are_shown_and_not_changed() {
        let groups = Groups::default();
        let name = |name: &str| GroupName {
            namespace: "a".into(),
            name: name.into(),
        };
        groups.set(&GroupSpec {
            name: name("b"),
            keys: KeySet::empty(),
            access: None,
            ranges: CidrSet::default(),
            worker_key: Secret::from("k"),
            workers: Vec::new(),
            upstreams: Vec::new(),
        });
        let fixed = Fixed::new(groups);
        assert_eq!(fixed.groups().await.unwrap()[0]["group"], "a/b");
        assert_eq!(fixed.group(&name("b")).await.unwrap()["ready"], false);
        let who = || Who {
            caller: "key:1".into(),
            session: None,
        };
        let changed = |group| {
            let fixed = fixed.clone();
            async move {
                fixed
                    .change(&group, Change::Suspend, who())
                    .await
                    .unwrap_err()
                    .code()
            }
        };
        assert_eq!(changed(name("b")).await, "conflict");
        assert_eq!(changed(name("c")).await, "not_found");
    }
}
