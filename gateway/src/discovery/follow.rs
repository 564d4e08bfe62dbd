//! One watch, as changes of what is kept.

use std::fmt::Debug;

use futures::future;
use futures::stream::{BoxStream, StreamExt as _};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::objects::{Asked, Credentials, Slice};
use crate::groups::GroupName;

/// Objects in one answer to a list. They are read whole before most of them is dropped.
const PAGE: u32 = 50;

/// What one watch saw.
#[derive(Debug)]
pub(super) enum Change {
    Asked(Seen<Asked>),
    Credentials(Seen<Credentials>),
    Slices(Seen<Slice>),
}

/// An object, by namespace and name.
pub(super) type ObjectName = (String, String);

/// What happened in one part of a kind.
#[derive(Debug)]
pub(super) struct Seen<T> {
    /// Which watch saw it.
    pub(super) part: usize,
    pub(super) what: What<T>,
}

#[derive(Debug)]
pub(super) enum What<T> {
    /// All objects are listed from here on.
    Begins,
    /// An object is there; `None` when it says nothing that counts.
    Is(ObjectName, Option<(GroupName, T)>),
    /// What was not listed is not there.
    Listed,
    /// It is gone.
    Gone(ObjectName),
}

/// Watches for ever. `read` takes out of an object what counts, or says why it does not.
pub(super) fn follow<K, T>(
    api: Api<K>,
    labels: &str,
    part: usize,
    read: fn(&K) -> Result<(GroupName, T), String>,
    change: fn(Seen<T>) -> Change,
) -> BoxStream<'static, Change>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    T: Send + 'static,
{
    let mut config = watcher::Config::default().page_size(PAGE);
    if !labels.is_empty() {
        config = config.labels(labels);
    }
    let url = api.resource_url().to_owned();
    let events = watch(api, config).default_backoff();
    events
        .filter_map(move |event| {
            let what = match event {
                Ok(Event::Init) => Some(What::Begins),
                Ok(Event::InitApply(object) | Event::Apply(object)) => Some(what(&object, read)),
                Ok(Event::InitDone) => Some(What::Listed),
                Ok(Event::Delete(object)) => Some(What::Gone(name_of(&object))),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        url,
                        "a watch broke off; what was known is served, and it goes on"
                    );
                    None
                }
            };
            future::ready(what.map(|what| change(Seen { part, what })))
        })
        .boxed()
}

fn what<K: Resource, T>(object: &K, read: fn(&K) -> Result<(GroupName, T), String>) -> What<T> {
    let name = name_of(object);
    match read(object) {
        Ok(read) => What::Is(name, Some(read)),
        Err(why) => {
            let (namespace, object) = &name;
            tracing::warn!(namespace, object, why, "an object is passed over");
            What::Is(name, None)
        }
    }
}

fn name_of<K: Resource>(object: &K) -> ObjectName {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}
