//! The edits: what a person may do next, drawn by a seed.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use ramen_e2e::{
    GitHost,
    player::{Outcome, Paper, report},
};
use ramen_source::testing::Entry;
use serde_json::{Value, json};

use super::super::rig::{self, Rig, says};

/// What is done next.
#[derive(Debug)]
pub(super) enum Step {
    /// A field of the spec.
    Spec(&'static str),
    /// A good revision on a branch.
    Push(&'static str, String),
    /// One that cannot be deployed.
    Break(&'static str, String),
    /// Another value in a Secret that the group may refer to.
    Secret(&'static str, String),
    /// Such a Secret is taken away.
    Unsecret(&'static str),
    /// A child is deleted by hand: which of them.
    Delete(usize),
    /// The operator is killed and started.
    Kill,
    /// The group is deleted and made again.
    Recreate,
    /// Whatever was done is acted on first.
    Settle,
}

/// The git hosts that a group may follow. Whatever is pushed is pushed to both.
pub(super) type Hosts<'h> = [&'h GitHost; 2];

/// A source of numbers (`SplitMix64`).
pub(super) struct Edits {
    number: u64,
    urls: [String; 2],
}

/// A field's name, and what changes it.
type Field = (&'static str, fn(&mut Edits, &mut Value));

impl Edits {
    pub(super) fn new(seed: u64, hosts: Hosts<'_>) -> Self {
        Self {
            number: seed,
            urls: hosts.map(GitHost::url),
        }
    }

    fn number(&mut self) -> u64 {
        self.number = self.number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.number;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.number() % n
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        let n = usize::try_from(self.below(of.len() as u64)).unwrap_or_default();
        of[n].clone()
    }

    fn branch(&mut self) -> &'static str {
        self.one(&["main", "dev"])
    }

    /// Draws a step; an edit of the spec is made at once.
    pub(super) fn next(&mut self, spec: &mut Value) -> Step {
        let text = format!("{:x}", self.number());
        match self.below(100) {
            0..60 => Step::Spec(self.edit(spec)),
            60..72 => Step::Push(self.branch(), text),
            72..76 => Step::Break(self.branch(), text),
            76..80 => Step::Secret(self.one(&SECRETS), text),
            80..82 => Step::Unsecret(self.one(&SECRETS)),
            82..88 => Step::Delete(usize::try_from(self.below(1000)).unwrap_or_default()),
            88..91 => Step::Kill,
            91 => Step::Recreate,
            _ => Step::Settle,
        }
    }

    fn edit(&mut self, spec: &mut Value) -> &'static str {
        let fields: [Field; 15] = [
            ("url", |edits, spec| {
                let urls = edits.urls.clone();
                spec["source"]["url"] = json!(edits.one(&urls));
            }),
            ("access", |edits, spec| {
                let access = edits.one(&[
                    Value::Null,
                    json!({ "rules": [{ "keys": ["key"], "tools": ["*"] }] }),
                    json!({ "rules": [{ "subjects": ["ann"], "tools": ["say"], "prompts": ["*"] }] }),
                ]);
                set(spec, "access", access);
            }),
            ("upstreams", |edits, spec| {
                let plain = json!({ "name": "time", "url": "https://time.example/mcp" });
                let token = json!({ "name": "values-a", "key": "VALUES_A", "prefix": "Bearer " });
                let header = json!({ "name": "Authorization", "secretRef": token });
                let named = json!({ "name": "mail", "url": "https://mail.example/mcp", "headers": [header] });
                let upstreams = edits.one(&[Value::Null, json!([plain]), json!([plain, named])]);
                set(spec, "upstreams", upstreams);
            }),
            ("ref", Self::reference),
            ("path", |edits, spec| {
                let path = edits.one(&[Value::Null, json!("sub")]);
                set(&mut spec["source"], "path", path);
            }),
            ("interval", |edits, spec| {
                let pause = edits.one(&[Value::Null, json!("1m"), json!("2h")]);
                set(&mut spec["source"], "interval", pause);
            }),
            ("suspend", |edits, spec| {
                spec["source"]["suspend"] = json!(edits.below(3) == 0);
            }),
            ("keys", |edits, spec| {
                let named = json!({ "secretRef": { "name": "callers" } });
                let keys = edits.one(&[Value::Null, named]);
                set(spec, "keys", keys);
            }),
            ("secrets", |edits, spec| {
                let (a, b) = (json!({ "name": "values-a" }), json!({ "name": "values-b" }));
                spec["secrets"] = edits.one(&[
                    json!([]),
                    json!([a]),
                    json!([b]),
                    json!([a, b]),
                    json!([b, a]),
                ]);
            }),
            ("network", Self::network),
            ("zones", Self::zones),
            ("worker", Self::worker),
            ("pods", Self::pods),
            ("rollout", |edits, spec| {
                spec["rollout"] = json!({
                    "canary": edits.below(2) == 0, "autoRollback": edits.below(2) == 0,
                    "timeout": edits.one(&["5m", "90s"]),
                });
            }),
            ("history", |edits, spec| {
                let history = edits.one(&[Value::Null, json!(0), json!(1), json!(3)]);
                set(spec, "history", history);
            }),
        ];
        let (name, edit) = self.one(&fields);
        edit(self, spec);
        name
    }

    fn reference(&mut self, spec: &mut Value) {
        let reference = self.one(&[
            Value::Null,
            json!({ "branch": "main" }),
            json!({ "branch": "dev" }),
            json!({ "tag": "v1" }),
            json!({ "semver": ">=1.0.0, <2" }),
            // Which one, `pin` says.
            json!({ "commit": "0".repeat(40) }),
        ]);
        set(&mut spec["source"], "ref", reference);
    }

    fn network(&mut self, spec: &mut Value) {
        let mut network = json!({ "allowedCIDRs": self.one(&[
            json!(["10.0.0.0/8"]),
            json!(["10.0.0.0/8", "203.0.113.7", "2001:db8::/32"]),
            json!(["0.0.0.0/0", "::/0"]),
        ])});
        if self.below(3) == 0 {
            network["trustedProxyHops"] = json!(self.below(3));
        }
        let egress = self.one(&[
            Value::Null,
            json!({ "open": true }),
            json!({ "allowedCIDRs": ["198.51.100.0/24"], "ports": [443, 8443] }),
            json!({ "allowedCIDRs": ["198.51.100.0/24"] }),
        ]);
        set(&mut network, "egress", egress);
        spec["network"] = network;
    }

    fn zones(&mut self, spec: &mut Value) {
        let mut zones = Vec::new();
        for name in ["a", "b", "default"] {
            if self.below(2) == 0 {
                continue;
            }
            let mut zone = json!({ "name": name });
            match self.below(4) {
                0 => {
                    zone["autoscaling"] =
                        json!({ "minReplicas": 1, "maxReplicas": 1 + self.below(3) });
                }
                1 => {}
                _ => zone["replicas"] = json!(self.below(3)),
            }
            if self.below(4) == 0 {
                zone["nodeSelector"] = json!({ "disk": self.one(&["fast", "slow"]) });
                zone["tolerations"] = json!([{ "key": "gpu", "operator": "Exists" }]);
            }
            if self.below(4) == 0 {
                zone["resources"] = json!({ "limits": { "memory": self.one(&["512Mi", "1Gi"]) } });
            }
            zones.push(zone);
        }
        // None at all is one zone, `default`.
        set(spec, "zones", json!(zones));
    }

    fn worker(&mut self, spec: &mut Value) {
        let worker = &mut spec["worker"];
        let (image, a, b) = (
            self.one(&[
                Value::Null,
                json!("localhost/worker:a"),
                json!("localhost/worker:b"),
            ]),
            json!({ "name": "MODE", "value": "soft" }),
            json!({ "name": "LEVEL", "value": "3" }),
        );
        match self.below(9) {
            0 => set(worker, "image", image),
            1 => set(
                worker,
                "env",
                self.one(&[json!([]), json!([a]), json!([b, a])]),
            ),
            2 => set(
                worker,
                "hosts",
                self.one(&[Value::Null, json!(1), json!(2)]),
            ),
            3 => set(worker, "maxInflight", self.one(&[Value::Null, json!(16)])),
            4 => set(
                worker,
                "callTimeout",
                self.one(&[Value::Null, json!("5s"), json!("10m")]),
            ),
            5 => set(
                worker,
                "python",
                self.one(&[Value::Null, json!("3.11"), json!("3.12")]),
            ),
            6 => set(
                worker,
                "threads",
                self.one(&[Value::Null, json!(1), json!(4)]),
            ),
            7 => set(
                worker,
                "deployTimeout",
                self.one(&[Value::Null, json!("5m"), json!("1h")]),
            ),
            _ => set(worker, "allowSdist", json!(self.below(2) == 0)),
        }
    }

    fn pods(&mut self, spec: &mut Value) {
        let worker = &mut spec["worker"];
        let labels = self.one(&[Value::Null, json!({ "team": "noodles" })]);
        let notes = self.one(&[
            Value::Null,
            json!({ "note": "hot" }),
            json!({ "note": "cold" }),
        ]);
        set(worker, "podLabels", labels);
        set(worker, "podAnnotations", notes);
    }
}

fn set(of: &mut Value, field: &str, value: Value) {
    match of.as_object_mut() {
        Some(fields) if value.is_null() => drop(fields.remove(field)),
        Some(fields) => drop(fields.insert(field.to_owned(), value)),
        None if value.is_null() => {}
        None => *of = json!({ field: value }),
    }
}

/// What keeps a group from serving what is pushed is taken out.
pub(super) fn possible(spec: &mut Value) {
    spec["source"]["suspend"] = json!(false);
}

/// Trees whose deploys fail.
#[derive(Clone, Default)]
pub(super) struct Broken(Arc<Mutex<HashSet<String>>>);

impl Broken {
    pub(super) fn add(&self, tree: String) {
        self.0.lock().expect("nobody panics with it").insert(tree);
    }

    pub(super) fn paper(&self) -> Paper {
        let broken = self.clone();
        Paper::new(move |deploy| {
            let fails = broken.0.lock().expect("nobody panics with it");
            let mut told = report(deploy, &["say"]);
            if fails.contains(&deploy.tree) {
                told["packages"][0]["ok"] = json!(false);
                told["errors"] = json!([{
                    "package": "tools/say", "reason": "ImportFailed", "message": "it is broken",
                }]);
                told["outcome"] = json!("failed");
            }
            Outcome::Report(told)
        })
    }
}

/// What a spec may refer to.
const SECRETS: [&str; 3] = ["values-a", "values-b", "callers"];

/// All of it is there.
pub(super) async fn secrets(rig: &Rig) -> anyhow::Result<()> {
    for name in SECRETS {
        secret(rig, name, "first").await?;
    }
    Ok(())
}

pub(super) async fn unsecret(rig: &Rig, name: &str) -> anyhow::Result<()> {
    let secrets = rig.namespace.api::<Secret>();
    match secrets.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn secret(rig: &Rig, name: &str, value: &str) -> anyhow::Result<()> {
    // Each has a key of its own: two of one name would be a clash.
    let entry = name.to_uppercase().replace('-', "_");
    let object = rig::secret(&[(&entry, value)]);
    rig.namespace.apply::<Secret>(name, object).await?;
    Ok(())
}

pub(super) fn branches(hosts: Hosts<'_>) -> anyhow::Result<()> {
    all_good(hosts, usize::MAX)
}

/// Commits to a branch; gives the tree of its `mcp/`, which is also that of `sub/mcp/`.
pub(super) fn push(hosts: Hosts<'_>, branch: &str, text: &str) -> anyhow::Result<String> {
    let files = says(text);
    let entry = |folder: &str, (path, text): &(String, String)| {
        (format!("{folder}mcp/{path}"), Entry::text(text))
    };
    let entries: Vec<_> = ["", "sub/"]
        .iter()
        .flat_map(|folder| files.iter().map(|file| entry(folder, file)))
        .collect();
    let mut pushed = String::new();
    for host in hosts {
        let commit = host.repo.commit(branch, &entries)?;
        let commit = host.repo.raw().revparse_single(&commit)?;
        let tree = commit.peel_to_tree()?;
        let tree = tree.get_name("mcp").context("no mcp/")?;
        pushed = tree.id().to_string();
    }
    Ok(pushed)
}

/// Every ref points to something that can be deployed.
pub(super) fn all_good(hosts: Hosts<'_>, round: usize) -> anyhow::Result<()> {
    for branch in ["main", "dev"] {
        push(hosts, branch, &format!("{branch} of round {round}"))?;
    }
    for host in hosts {
        let head = commit(host, "refs/heads/main")?;
        for tag in ["v1", "1.0.0"] {
            host.repo.tag(tag, &head)?;
        }
    }
    Ok(())
}

fn commit(host: &GitHost, reference: &str) -> anyhow::Result<String> {
    let found = host.repo.raw().revparse_single(reference)?;
    Ok(found.id().to_string())
}

/// The host that a spec follows.
fn host<'h>(hosts: Hosts<'h>, spec: &Value) -> anyhow::Result<&'h GitHost> {
    let url = spec["source"]["url"].as_str();
    let found = hosts
        .into_iter()
        .find(|host| url == Some(host.url().as_str()));
    found.context("a spec of no host")
}

/// A spec that asks for a commit asks for the newest of `main` at its host.
pub(super) fn pin(hosts: Hosts<'_>, spec: &mut Value) -> anyhow::Result<()> {
    if spec["source"]["ref"]["commit"].is_string() {
        let newest = commit(host(hosts, spec)?, "refs/heads/main")?;
        spec["source"]["ref"]["commit"] = json!(newest);
    }
    Ok(())
}

/// The commit that a spec asks for.
pub(super) fn wanted(hosts: Hosts<'_>, spec: &Value) -> anyhow::Result<String> {
    let reference = &spec["source"]["ref"];
    let of = |kind: &str| reference[kind].as_str();
    let full = match (of("branch"), of("tag"), of("semver"), of("commit")) {
        (Some(branch), ..) => format!("refs/heads/{branch}"),
        (_, Some(tag), ..) => format!("refs/tags/{tag}"),
        (_, _, Some(_), _) => "refs/tags/1.0.0".to_owned(),
        (.., Some(commit)) => commit.to_owned(),
        _ => "refs/heads/main".to_owned(),
    };
    commit(host(hosts, spec)?, &full)
}
