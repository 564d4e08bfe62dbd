//! Where the time of a push goes: the operator's own log tells when it did what, the callers when pods answered.

use std::fmt::Write as _;
use std::time::SystemTime;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{ListParams, LogParams};
use ramen_bench::stats::median;
use ramen_e2e::Release;
use serde_json::Value;

use super::Stage;
use crate::clock::{moment, quantile, seconds};

/// One push.
pub(crate) struct Push {
    pub(crate) commit: String,
    pub(crate) began: SystemTime,
    /// The hook was answered.
    pub(crate) hooked: SystemTime,
    /// When each pod answered, in order.
    pub(crate) answers: Vec<SystemTime>,
}

/// A line of the operator's log.
pub(crate) struct Line {
    at: SystemTime,
    message: String,
    text: String,
}

/// The whole log of the operator.
pub(crate) async fn operator_log(stage: &Stage) -> anyhow::Result<Vec<Line>> {
    let deployments = stage.namespace.api::<Deployment>();
    let deployment = deployments.get(Release::NAME).await?;
    let labels = deployment
        .spec
        .and_then(|spec| spec.selector.match_labels)
        .context("the operator's Deployment selects nothing")?;
    let labels: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let pods = stage.namespace.api::<Pod>();
    let of_it = ListParams::default().labels(&labels.join(","));
    let pod = pods.list(&of_it).await?.items.into_iter().next();
    let pod = pod.context("the operator has no pod")?;
    let text = pods.logs(&pod.name_any(), &LogParams::default()).await?;
    Ok(text.lines().filter_map(line).collect())
}

fn line(text: &str) -> Option<Line> {
    let fields: Value = serde_json::from_str(text).ok()?;
    Some(Line {
        at: moment(fields["timestamp"].as_str()?)?,
        message: fields["message"].as_str()?.to_owned(),
        text: text.to_owned(),
    })
}

/// A stage ends with the first line that says so.
struct Mark {
    name: &'static str,
    message: &'static str,
    /// Further words of the line.
    words: &'static [&'static str],
}

const MARKS: [Mark; 5] = [
    Mark {
        name: "ref resolved",
        message: "looked at the source",
        words: &[],
    },
    Mark {
        name: "code fetched",
        message: "the code is in the store",
        words: &[],
    },
    Mark {
        name: "job created",
        message: "started a deploy job",
        words: &[],
    },
    Mark {
        name: "its pod runs",
        message: "answered",
        words: &["GET", "Layer(Code"],
    },
    Mark {
        name: "report is here",
        message: "answered",
        words: &["PUT", "Report"],
    },
];

/// The stages of one push: how long each took, in the order of [`names`]. `None` where the log lacks one.
fn stages(push: &Push, log: &[Line]) -> Option<Vec<f64>> {
    let mut moments = vec![push.began, push.hooked];
    let mut lines = log.iter().filter(|line| line.at >= push.began);
    for mark in &MARKS {
        let found = lines.find(|line| {
            line.message == mark.message && mark.words.iter().all(|word| line.text.contains(word))
        })?;
        moments.push(found.at);
    }
    moments.push(*push.answers.first()?);
    moments.push(*push.answers.last()?);
    Some(
        moments
            .windows(2)
            .map(|pair| seconds(pair[0], pair[1]))
            .collect(),
    )
}

fn names() -> Vec<&'static str> {
    let mut names = vec!["hook taken"];
    names.extend(MARKS.iter().map(|mark| mark.name));
    names.extend(["canary answers", "the rest answers"]);
    names
}

/// The table of stages.
pub(crate) fn table(pushes: &[Push], log: &[Line]) -> String {
    let all: Vec<Vec<f64>> = pushes
        .iter()
        .filter_map(|push| {
            let stages = stages(push, log);
            if stages.is_none() {
                eprintln!(
                    "bench: the log does not tell of all stages of {}",
                    push.commit
                );
            }
            stages
        })
        .collect();
    let mut text = format!("{:<18} {:>8} {:>8}\n", "a push, in s", "median", "p95");
    let mut sum = 0.0;
    for (n, name) in names().into_iter().enumerate() {
        let values: Vec<f64> = all
            .iter()
            .filter_map(|stages| stages.get(n).copied())
            .collect();
        let middle = median(&values);
        sum += middle;
        let _ = writeln!(
            text,
            "{name:<18} {middle:>8.3} {:>8.3}",
            quantile(&values, 0.95)
        );
    }
    let _ = writeln!(text, "{:<18} {sum:>8.3}", "sum of medians");
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_stage_ends_with_its_line_after_the_one_before() {
        let log = r#"
{"timestamp":"2026-01-01T00:00:00.100Z","message":"looked at the source"}
{"timestamp":"2026-01-01T00:00:01.100Z","message":"looked at the source","commit":"b"}
{"timestamp":"2026-01-01T00:00:01.200Z","message":"the code is in the store"}
{"timestamp":"2026-01-01T00:00:01.300Z","message":"started a deploy job"}
{"timestamp":"2026-01-01T00:00:01.400Z","message":"answered","method":"GET","place":"Layer(Deps, sha)"}
{"timestamp":"2026-01-01T00:00:02.300Z","message":"answered","method":"GET","place":"Layer(Code, sha)"}
{"timestamp":"2026-01-01T00:00:02.800Z","message":"answered","method":"PUT","place":"Deploy(x, Report)"}
no JSON"#;
        let log: Vec<Line> = log.lines().filter_map(line).collect();
        let began = moment("2026-01-01T00:00:01Z").unwrap();
        let at = |millis| began + Duration::from_millis(millis);
        let mut push = Push {
            commit: "b".to_owned(),
            began,
            hooked: at(50),
            answers: vec![at(1900), at(2000)],
        };
        let stages_of = stages(&push, &log).unwrap();
        let wanted = [0.05, 0.05, 0.1, 0.1, 1.0, 0.5, 0.1, 0.1];
        for (took, wanted) in stages_of.iter().zip(wanted) {
            assert!((took - wanted).abs() < 1e-6, "{stages_of:?}");
        }
        assert_eq!(stages_of.len(), names().len());
        push.began = at(5000);
        assert_eq!(stages(&push, &log), None);
    }
}
