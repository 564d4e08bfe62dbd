//! The edits: what a person may do next, drawn by a seed.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use ramen_e2e::player::{Outcome, Paper, report};
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
    /// A child is deleted by hand: which of them.
    Delete(usize),
    /// The operator is killed and started.
    Kill,
    /// The group is deleted and made again.
    Recreate,
    /// Whatever was done is acted on first.
    Settle,
}

/// A source of numbers (`SplitMix64`).
pub(super) struct Edits(u64);

/// A field's name, and what changes it.
type Field = (&'static str, fn(&mut Edits, &mut Value));

impl Edits {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
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
            76..82 => Step::Secret(self.one(&["values-a", "values-b", "callers"]), text),
            82..88 => Step::Delete(usize::try_from(self.below(1000)).unwrap_or_default()),
            88..91 => Step::Kill,
            91 => Step::Recreate,
            _ => Step::Settle,
        }
    }

    fn edit(&mut self, spec: &mut Value) -> &'static str {
        let fields: [Field; 12] = [
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
        match self.below(6) {
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

/// Everything that a spec may refer to.
pub(super) async fn secrets(rig: &Rig) -> anyhow::Result<()> {
    for name in ["values-a", "values-b", "callers"] {
        secret(rig, name, "first").await?;
    }
    Ok(())
}

pub(super) async fn secret(rig: &Rig, name: &str, value: &str) -> anyhow::Result<()> {
    // Each has a key of its own: two of one name would be a clash.
    let entry = name.to_uppercase().replace('-', "_");
    let object = rig::secret(&[(&entry, value)]);
    rig.namespace.apply::<Secret>(name, object).await?;
    Ok(())
}

pub(super) fn branches(rig: &Rig) -> anyhow::Result<()> {
    all_good(rig, usize::MAX)
}

/// Commits to a branch; gives the tree of its `mcp/`, which is also that of `sub/mcp/`.
pub(super) fn push(rig: &Rig, branch: &str, text: &str) -> anyhow::Result<String> {
    let files = says(text);
    let entry = |folder: &str, (path, text): &(String, String)| {
        (format!("{folder}mcp/{path}"), Entry::text(text))
    };
    let entries: Vec<_> = ["", "sub/"]
        .iter()
        .flat_map(|folder| files.iter().map(|file| entry(folder, file)))
        .collect();
    let commit = rig.git.repo.commit(branch, &entries)?;
    let commit = rig.git.repo.raw().revparse_single(&commit)?;
    let tree = commit.peel_to_tree()?;
    let tree = tree.get_name("mcp").context("no mcp/")?;
    Ok(tree.id().to_string())
}

/// Every ref points to something that can be deployed.
pub(super) fn all_good(rig: &Rig, round: usize) -> anyhow::Result<()> {
    for branch in ["main", "dev"] {
        push(rig, branch, &format!("{branch} of round {round}"))?;
    }
    let head = commit(rig, "refs/heads/main")?;
    rig.git.repo.tag("v1", &head)?;
    Ok(())
}

fn commit(rig: &Rig, reference: &str) -> anyhow::Result<String> {
    let found = rig.git.repo.raw().revparse_single(reference)?;
    Ok(found.id().to_string())
}

/// The commit that a spec asks for.
pub(super) fn wanted(rig: &Rig, spec: &Value) -> anyhow::Result<String> {
    let reference = &spec["source"]["ref"];
    let full = match (reference["branch"].as_str(), reference["tag"].as_str()) {
        (Some(branch), _) => format!("refs/heads/{branch}"),
        (_, Some(tag)) => format!("refs/tags/{tag}"),
        _ => "refs/heads/main".to_owned(),
    };
    commit(rig, &full)
}
