//! The cluster, as this user may see it. Reads, but for the keys of a group. The one module of this program that knows `kube`.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use futures::{Stream, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ListParams, Resource, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::DeserializeGuard;
use kube::{Api, Client, Config};
use ramen_crds::{KIND, McpGroup, labels};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::ClusterArgs;
use super::view::{Detail, Summary};
use crate::exit::Failure;

mod keys;
mod trouble;

/// A hang guard of one request; a watch has none.
const PATIENCE: Duration = Duration::from_secs(20);
const CONNECT: Duration = Duration::from_secs(10);
/// Pause before a watch that broke is begun again, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Objects that one of them must not hide the others of.
type Guarded = DeserializeGuard<McpGroup>;

/// A connection and what it is asked for.
pub(crate) struct Cluster {
    client: Client,
    address: String,
    namespace: String,
    all: bool,
}

/// What a watch saw.
#[derive(Debug)]
pub(super) enum Change {
    /// The state of a group; of one that is watched alone, also when only its pods changed.
    Is(Box<Summary>),
    /// Namespace and name of a group that was removed.
    Gone(String, String),
}

impl Cluster {
    /// Reads the kubeconfig as kubectl does. Nothing is asked yet.
    pub(crate) async fn connect(args: &ClusterArgs, all: bool) -> Result<Self, Failure> {
        let mut config = config(args).await?;
        config.connect_timeout = Some(CONNECT);
        let address = config.cluster_url.to_string();
        let namespace = match &args.namespace {
            Some(namespace) => namespace.clone(),
            None => config.default_namespace.clone(),
        };
        let client = Client::try_from(config)
            .map_err(|error| Failure::usage(format!("the kubeconfig cannot be used: {error}")))?;
        Ok(Self {
            client,
            address: address.trim_end_matches('/').to_owned(),
            namespace,
            all,
        })
    }

    pub(super) fn all_namespaces(&self) -> bool {
        self.all
    }

    /// Where was looked, for a message.
    pub(super) fn place(&self) -> String {
        if self.all {
            "any namespace".to_owned()
        } else {
            format!("the namespace {} (-A looks in all of them)", self.namespace)
        }
    }

    /// Every group, by namespace and name.
    pub(super) async fn summaries(&self) -> Result<Vec<Summary>, Failure> {
        let list = self.ask(self.groups().list(&ListParams::default())).await?;
        let mut groups: Vec<Summary> = list.items.iter().map(summary).collect();
        groups.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Ok(groups)
    }

    /// One group with its pods and events. What this user may not read of the latter is told instead.
    pub(super) async fn detail(&self, name: &str) -> Result<Detail, Failure> {
        let groups: Api<McpGroup> = Api::namespaced(self.client.clone(), &self.namespace);
        let group = self.ask(groups.get(name)).await?;
        let (pods, events) = (self.pods(), self.events());
        let of_group = ListParams::default().labels(&of_group(name));
        let about = ListParams::default().fields(&format!(
            "involvedObject.kind={KIND},involvedObject.name={name}"
        ));
        let (pods, events) = tokio::join!(
            self.ask(pods.list(&of_group)),
            self.ask(events.list(&about))
        );
        let mut unread = Vec::new();
        let pods = pods.map_or_else(|failure| note(&mut unread, "pods", &failure), |l| l.items);
        let events =
            events.map_or_else(|failure| note(&mut unread, "events", &failure), |l| l.items);
        Ok(Detail::of(&group, &pods, &events, unread))
    }

    /// Changes as they come, the groups that are there first. Breaks are mended; only what cannot succeed ends the stream.
    pub(super) fn changes(
        &self,
        only: Option<&str>,
    ) -> impl Stream<Item = Result<Change, Failure>> + use<> {
        let (changes, stream) = mpsc::channel(64);
        let (name, address) = (only.map(str::to_owned), self.address.clone());
        let fields = name.as_ref().map(|name| format!("metadata.name={name}"));
        let (groups, pods) = (self.groups(), self.pods());
        tokio::spawn(async move {
            let on_group = |seen: Seen<Guarded>| {
                Some(match seen {
                    Seen::Is(group) => Change::Is(Box::new(summary(&group))),
                    Seen::Gone(namespace, name) => Change::Gone(namespace, name),
                })
            };
            let filter = Filter {
                fields,
                labels: None,
            };
            let follow_groups = follow(&groups, filter, &address, &changes, on_group);
            let Some(name) = name else {
                follow_groups.await;
                return;
            };
            // A pod that changed says that it is worth looking at the group again.
            let filter = Filter {
                fields: None,
                labels: Some(of_group(&name)),
            };
            let on_pod = |_: Seen<Pod>| Some(Change::Is(Box::default()));
            tokio::join!(
                follow_groups,
                follow(&pods, filter, &address, &changes, on_pod)
            );
        });
        ReceiverStream::new(stream)
    }

    fn groups(&self) -> Api<Guarded> {
        if self.all {
            Api::all(self.client.clone())
        } else {
            Api::namespaced(self.client.clone(), &self.namespace)
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    fn events(&self) -> Api<Event> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn ask<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        ask(&self.address, request).await
    }
}

/// The kubeconfig named by the flag, `KUBECONFIG` or the home directory; the pod's own account where there is none.
async fn config(args: &ClusterArgs) -> Result<Config, Failure> {
    let options = KubeConfigOptions {
        context: args.context.clone(),
        ..KubeConfigOptions::default()
    };
    let read = match &args.kubeconfig {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let kubeconfig = match read {
        Ok(kubeconfig) => kubeconfig,
        Err(error) if args.kubeconfig.is_none() && trouble::is_missing(&error) => {
            if args.context.is_none()
                && let Ok(config) = Config::incluster()
            {
                return Ok(config);
            }
            return Err(trouble::no_kubeconfig());
        }
        Err(error) => return Err(trouble::kubeconfig(&error)),
    };
    let contexts: Vec<String> = kubeconfig.contexts.iter().map(|c| c.name.clone()).collect();
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| trouble::context(&error, &contexts))
}

fn of_group(name: &str) -> String {
    format!(
        "{}={name},{}={}",
        labels::LABEL_GROUP,
        labels::LABEL_COMPONENT,
        labels::COMPONENT_WORKER
    )
}

fn summary(group: &Guarded) -> Summary {
    match &group.0 {
        Ok(group) => Summary::of(group),
        Err(invalid) => Summary::unreadable(&invalid.metadata, &invalid.error),
    }
}

fn note<T>(unread: &mut Vec<String>, what: &str, failure: &Failure) -> Vec<T> {
    unread.push(format!("{what}: {failure}"));
    Vec::new()
}

/// Waits for an answer, but not for ever.
async fn ask<T>(
    address: &str,
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(PATIENCE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(trouble::request(&error, address)),
        Err(_) => Err(Failure::transport(format!(
            "the API server at {address} does not answer within {} s",
            PATIENCE.as_secs()
        ))),
    }
}

/// An object that is there, or the namespace and name of one that went.
enum Seen<K> {
    Is(K),
    Gone(String, String),
}

/// Which objects are followed.
struct Filter {
    fields: Option<String>,
    labels: Option<String>,
}

impl Filter {
    fn list(&self) -> ListParams {
        ListParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            ..ListParams::default()
        }
    }

    fn watch(&self) -> WatchParams {
        WatchParams {
            field_selector: self.fields.clone(),
            label_selector: self.labels.clone(),
            ..WatchParams::default()
        }
    }
}

/// Lists, watches from there, and lists again when the watch cannot go on. Ends when nobody listens, or when the first
/// list fails: what was allowed once may come back, what never was is told.
async fn follow<K>(
    api: &Api<K>,
    filter: Filter,
    address: &str,
    changes: &mpsc::Sender<Result<Change, Failure>>,
    tell: impl Fn(Seen<K>) -> Option<Change>,
) where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let mut known: BTreeSet<(String, String)> = BTreeSet::new();
    let mut listed_once = false;
    let mut pause = FIRST_PAUSE;
    loop {
        let broke = match ask(address, api.list(&filter.list())).await {
            Ok(list) => {
                (listed_once, pause) = (true, FIRST_PAUSE);
                let version = list.metadata.resource_version.clone().unwrap_or_default();
                let now: BTreeSet<_> = list.items.iter().map(key).collect();
                let gone = known.difference(&now).cloned().collect::<Vec<_>>();
                known = now;
                let seen = gone
                    .into_iter()
                    .map(|(namespace, name)| Seen::Gone(namespace, name))
                    .chain(list.items.into_iter().map(Seen::Is));
                for change in seen.filter_map(&tell) {
                    if changes.send(Ok(change)).await.is_err() {
                        return;
                    }
                }
                let watched = watch(api, &filter, version, &mut known, changes, &tell);
                match watched.await {
                    Some(broke) => broke,
                    None => return,
                }
            }
            Err(failure) if !listed_once => {
                let _ = changes.send(Err(failure)).await;
                return;
            }
            Err(failure) => failure.to_string(),
        };
        if !broke.is_empty() {
            crate::output::note(&format!("the watch broke and begins again: {broke}"));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Watches until it breaks: why (nothing to say when it only ran out). `None` when nobody listens.
async fn watch<K>(
    api: &Api<K>,
    filter: &Filter,
    mut version: String,
    known: &mut BTreeSet<(String, String)>,
    changes: &mpsc::Sender<Result<Change, Failure>>,
    tell: &impl Fn(Seen<K>) -> Option<Change>,
) -> Option<String>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    loop {
        let stream = match api.watch(&filter.watch(), &version).await {
            Ok(stream) => stream.boxed(),
            Err(error) => return Some(error.to_string()),
        };
        let mut stream = stream;
        let mut any = false;
        loop {
            let seen = match stream.try_next().await {
                Ok(Some(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                    version = object.meta().resource_version.clone().unwrap_or(version);
                    known.insert(key(&object));
                    Seen::Is(object)
                }
                Ok(Some(WatchEvent::Deleted(object))) => {
                    version = object.meta().resource_version.clone().unwrap_or(version);
                    let key = key(&object);
                    known.remove(&key);
                    Seen::Gone(key.0, key.1)
                }
                Ok(Some(WatchEvent::Bookmark(bookmark))) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                // 410: what happened since is no longer kept. A list says how it is now.
                Ok(Some(WatchEvent::Error(status))) if status.code == 410 => {
                    return Some(String::new());
                }
                Ok(Some(WatchEvent::Error(status))) => return Some(status.message),
                Err(error) => return Some(error.to_string()),
                // The server ends watches after some minutes; one that ends at once is asked less often.
                Ok(None) if any => break,
                Ok(None) => return Some(String::new()),
            };
            any = true;
            if let Some(change) = tell(seen)
                && changes.send(Ok(change)).await.is_err()
            {
                return None;
            }
        }
    }
}

fn key<K: Resource>(object: &K) -> (String, String) {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}
