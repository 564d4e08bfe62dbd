//! Asks pods that answer calls whether they serve what is wanted, and tells it to those that do not: a pod follows its
//! `ConfigMap` only to what it did not have before.

use futures::StreamExt as _;
use ramen_group::DesiredState;
use ramen_proto::v1::StatusResponse;

use super::push::Target;
use super::worker::{Fault, Worker, serves};
use super::{Answer, Said, SurveyRequest};
use crate::pods::PodView;

/// Pods that are asked at the same time.
const AT_ONCE: usize = 8;
/// Characters of what a worker says of itself.
const MAX_WORDS: usize = 300;

/// What each of the pods says.
pub(super) async fn survey(pods: Vec<Target>, request: &SurveyRequest) -> Vec<Said> {
    let asked = pods.into_iter().map(async |pod| {
        let answer = ask(&pod, request).await;
        Said {
            pod: pod.name,
            answer,
        }
    });
    let said = futures::stream::iter(asked).buffer_unordered(AT_ONCE);
    said.collect().await
}

/// Whether one serves what is wanted.
async fn ask(pod: &Target, request: &SurveyRequest) -> Answer {
    match serve(pod, request).await {
        Ok(behind) => behind.map_or(Answer::Serves, Answer::Behind),
        Err(Fault::Unreachable(error)) => {
            tracing::debug!(
                pod = pod.name,
                error,
                "a pod cannot be asked what it serves"
            );
            Answer::Silent
        }
        Err(Fault::Refused { message, .. }) => {
            Answer::Behind(format!("it does not say what it serves: {}", cut(&message)))
        }
    }
}

/// Tells one that serves something else what to serve; what it serves nevertheless.
async fn serve(pod: &Target, request: &SurveyRequest) -> Result<Option<String>, Fault> {
    let worker = Worker::connect(pod).await?;
    let status = worker.status(&request.admin_key).await?;
    if serves(&status, &request.desired) {
        return Ok(None);
    }
    let behind = other(&status, &request.desired);
    let mut pods = request.pods.iter();
    let is_pod = |one: &PodView, image: &str| one.name == pod.name && one.image == image;
    let image = request.image.as_deref();
    if image.is_some_and(|image| !pods.any(|one| is_pod(one, image))) {
        return Ok(Some(behind));
    }
    let loaded = worker.reload(&request.desired, &request.admin_key, request.timeout);
    let Err(fault) = loaded.await else {
        return Ok(None);
    };
    Ok(Some(match fault {
        Fault::Refused { message, .. } if status.last_error.is_empty() => {
            format!("{behind}: {}", cut(&message))
        }
        Fault::Refused { .. } | Fault::Unreachable(_) => behind,
    }))
}

/// What it serves instead.
fn other(status: &StatusResponse, wanted: &DesiredState) -> String {
    let serves = match status.revision.as_str() {
        "" => "it serves nothing".to_owned(),
        same if same == wanted.revision => format!("it serves an earlier deploy of {same}"),
        other => format!("it serves {}", cut(other)),
    };
    match status.last_error.as_str() {
        "" => serves,
        error => format!("{serves}: {}", cut(error)),
    }
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_WORDS).collect()
}
