//! One stream of events of a kind, whether it comes from one watch or from one for each namespace.

use std::collections::BTreeSet;
use std::fmt::Debug;

use futures::{Stream, StreamExt as _, future, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{ObjectMeta, PartialObjectMeta};
use kube::runtime::watcher as watch;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::group::Guarded;

/// One stream of events over some namespaces, or all of them.
pub(crate) fn each<K>(
    client: &Client,
    namespaces: &[String],
    config: &watcher::Config,
) -> stream::BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource<Scope = NamespaceResourceScope>
        + Stub
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
    K::DynamicType: Default,
{
    if let [namespace] = namespaces {
        return watch(Api::namespaced(client.clone(), namespace), config.clone()).boxed();
    }
    if namespaces.is_empty() {
        return watch(Api::all(client.clone()), config.clone()).boxed();
    }
    let streams: Vec<_> = namespaces
        .iter()
        .map(|namespace| {
            let api = Api::namespaced(client.clone(), namespace);
            (namespace.clone(), watch(api, config.clone()).boxed())
        })
        .collect();
    joined(streams).boxed()
}

/// An object of which only the metadata is known: enough to remove it from a cache.
pub(crate) trait Stub {
    fn stub(meta: ObjectMeta) -> Self;
}

impl<K> Stub for PartialObjectMeta<K> {
    fn stub(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            types: None,
            _phantom: std::marker::PhantomData,
        }
    }
}

impl Stub for Deployment {
    fn stub(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            ..Self::default()
        }
    }
}

impl Stub for HorizontalPodAutoscaler {
    fn stub(metadata: ObjectMeta) -> Self {
        Self {
            metadata,
            ..Self::default()
        }
    }
}

impl Stub for Guarded {
    fn stub(metadata: ObjectMeta) -> Self {
        Self(Err(kube::core::error_boundary::InvalidObject {
            error: "removed".to_owned(),
            metadata,
        }))
    }
}

/// One namespace's part of a joined stream.
#[derive(Default)]
struct Part {
    done: bool,
    there: BTreeSet<String>,
    /// A list that is made again.
    again: Option<BTreeSet<String>>,
}

/// Joins streams of several namespaces into one that a cache understands: one `Init`, one `InitDone`
/// when all first lists are done. A list that is made again later comes as single changes.
fn joined<K>(
    streams: Vec<(
        String,
        stream::BoxStream<'static, watcher::Result<Event<K>>>,
    )>,
) -> impl Stream<Item = watcher::Result<Event<K>>> + Send
where
    K: Resource + Stub + Send + 'static,
{
    let mut parts: Vec<(String, Part)> = Vec::new();
    let mut tagged = Vec::new();
    for (n, (namespace, stream)) in streams.into_iter().enumerate() {
        parts.push((namespace, Part::default()));
        tagged.push(stream.map(move |event| (n, event)).boxed());
    }
    let events = stream::select_all(tagged)
        .flat_map(move |(n, event)| stream::iter(join_one(&mut parts, n, event)));
    stream::once(future::ready(Ok(Event::Init))).chain(events)
}

fn join_one<K: Resource + Stub>(
    parts: &mut [(String, Part)],
    n: usize,
    event: watcher::Result<Event<K>>,
) -> Vec<watcher::Result<Event<K>>> {
    let listed = parts.iter().all(|(_, part)| part.done);
    let Some((namespace, part)) = parts.get_mut(n) else {
        return Vec::new();
    };
    let name = |object: &K| object.meta().name.clone().unwrap_or_default();
    match event {
        Ok(Event::Init) => {
            part.again = part.done.then(BTreeSet::new);
            Vec::new()
        }
        Ok(Event::InitApply(object) | Event::Apply(object)) => {
            part.there.insert(name(&object));
            if let Some(again) = &mut part.again {
                again.insert(name(&object));
            }
            vec![Ok(if listed {
                Event::Apply(object)
            } else {
                Event::InitApply(object)
            })]
        }
        Ok(Event::InitDone) => {
            if let Some(again) = part.again.take() {
                let gone = part.there.difference(&again).map(|name| {
                    Ok(Event::Delete(K::stub(ObjectMeta {
                        name: Some(name.clone()),
                        namespace: Some(namespace.clone()),
                        ..ObjectMeta::default()
                    })))
                });
                let gone = gone.collect();
                part.there = again;
                return gone;
            }
            part.done = true;
            if parts.iter().all(|(_, part)| part.done) {
                vec![Ok(Event::InitDone)]
            } else {
                Vec::new()
            }
        }
        Ok(Event::Delete(object)) => {
            part.there.remove(&name(&object));
            vec![Ok(Event::Delete(object))]
        }
        Err(error) => vec![Err(error)],
    }
}

#[cfg(test)]
mod tests;
