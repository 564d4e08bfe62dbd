//! The conditions. `Ready`, `SourceFetched`, `Deployed` and `WorkersAvailable` are always there;
//! `Reconciling` and `Stalled` only when they are true, as kstatus has it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::View;
use crate::error::Error;
use crate::group::Outcome;
use crate::group::rollout::cut;
use crate::reasons;
pub(super) use ramen_crds::labels::condition::{
    DEPLOYED, READY, RECONCILING, SOURCE_FETCHED, STALLED, WORKERS_AVAILABLE,
};

/// Bytes of a message.
const MAX_MESSAGE: usize = 1024;

/// A condition without its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    pub(super) kind: &'static str,
    pub(super) status: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Told {
    pub(super) fn new(
        kind: &'static str,
        status: Option<bool>,
        reason: &str,
        message: &str,
    ) -> Self {
        Self {
            kind,
            status: match status {
                Some(true) => "True",
                Some(false) => "False",
                None => "Unknown",
            },
            reason: reason.to_owned(),
            message: cut(message, MAX_MESSAGE),
        }
    }

    /// As it was told before.
    pub(super) fn before(told: &[Condition], kind: &'static str) -> Option<Self> {
        let told = told.iter().find(|condition| condition.type_ == kind)?;
        let status = match told.status.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        };
        Some(Self::new(kind, status, &told.reason, &told.message))
    }
}

/// All conditions of a run. What is not known in this process yet stays as it was told before.
pub(super) fn all(
    view: Option<&View<'_>>,
    result: Result<&Outcome, &Error>,
    before: &[Condition],
) -> Vec<Told> {
    let serves = view.is_some_and(View::serves);
    let mut told = Vec::new();
    match result {
        Ok(Outcome::Ready { reason, message }) => {
            told.push(Told::new(READY, Some(true), reason, message));
        }
        Ok(Outcome::Progressing { reason, message }) => {
            told.push(if serves {
                Told::new(
                    READY,
                    Some(true),
                    reasons::SERVING,
                    "the wanted pods serve; something new is under way",
                )
            } else {
                Told::new(READY, Some(false), reason, message)
            });
            told.push(Told::new(RECONCILING, Some(true), reason, message));
        }
        Ok(Outcome::Stalled { reason, message }) => {
            told.push(Told::new(READY, Some(false), reason, message));
            told.push(Told::new(STALLED, Some(true), reason, message));
        }
        Err(error) => {
            let (reason, message) = (error.category(), error.to_string());
            let failed = Told::new(READY, Some(false), reason, &message);
            let kind = match error {
                Error::Foreign { .. } | Error::Memory { .. } => STALLED,
                Error::Api { .. } | Error::Internal(_) => RECONCILING,
            };
            told.push(if kind == STALLED {
                failed
            } else if serves {
                // A run that broke off says nothing of what serves.
                let was = Told::before(before, READY).filter(|was| was.status == "True");
                was.unwrap_or_else(|| {
                    Told::new(
                        READY,
                        Some(true),
                        reasons::SERVING,
                        "the wanted pods serve; the last run broke off",
                    )
                })
            } else if view.is_none() {
                Told::before(before, READY).unwrap_or(failed)
            } else {
                failed
            });
            told.push(Told::new(kind, Some(true), reason, &message));
        }
    }
    let (source, deployed, workers) = view.map_or_else(
        || {
            let known = |kind| {
                Told::before(before, kind).unwrap_or_else(|| {
                    Told::new(kind, None, reasons::NOT_KNOWN, "nothing is known yet")
                })
            };
            (
                known(SOURCE_FETCHED),
                known(DEPLOYED),
                known(WORKERS_AVAILABLE),
            )
        },
        |view| (view.source(before), view.deployed(), view.workers()),
    );
    told.extend([source, deployed, workers]);
    told
}
