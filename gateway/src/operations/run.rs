//! One operation from its input to what goes out: invoked, judged, checked again, guarded.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::check::{Context, Disclosed, Purpose, caught, check};
use super::config::{Operations, Served};
use super::error::OpError;
use crate::answer::Refusal;
use crate::metrics::DONE;

/// Longest time of one operation.
const LIMIT: Duration = Duration::from_mins(1);

/// A result, and the JSON of it.
#[derive(Debug)]
pub(super) struct Output {
    value: Value,
    pub(super) json: String,
}

impl Operations {
    /// Whether the caller may run it.
    pub(super) async fn admit(&self, context: &Context, served: &Served) -> Result<(), OpError> {
        check(&self.gate, context, &served.descriptor, Purpose::Call).await
    }

    /// Runs it. A panic, and a result that is not what the descriptor says, are internal errors.
    pub(super) async fn invoke(
        &self,
        context: &Context,
        served: &Served,
        input: Value,
    ) -> Result<Output, OpError> {
        let Some(invoke) = &served.descriptor.invoke else {
            return Err(OpError::Internal("nothing is invoked".into()));
        };
        let (invoke, context) = (invoke.clone(), context.clone());
        // The call is inside: what panics before the first await is caught too.
        let run = caught("the operation", async move { invoke(context, input).await });
        let value = match tokio::time::timeout(LIMIT, run).await {
            Ok(value) => value?,
            Err(_) => return Err(OpError::Unavailable("the operation took too long".into())),
        };
        let json = value.to_string();
        match &served.result {
            None if value.is_null() => {}
            None => return Err(OpError::Internal("the result is not null".into())),
            Some(_) if !value.is_object() => {
                return Err(OpError::Internal("the result is not an object".into()));
            }
            Some(schema) => schema.check(&json).map_err(|fault| {
                OpError::Internal(format!("the result breaks its schema: {fault}").into())
            })?,
        }
        if json.len() > self.max_result {
            return Err(OpError::TooLarge(json.len()));
        }
        Ok(Output { value, json })
    }

    /// Checks again what an operation that ran answers. Only a successful result is guarded.
    pub(super) async fn release(
        &self,
        context: &Context,
        served: &Served,
        outcome: Result<Output, OpError>,
    ) -> Result<Output, OpError> {
        if self.gate.rechecker().is_none() {
            return outcome;
        }
        self.admit(context, served).await?;
        let output = outcome?;
        let disclosed = Disclosed::Result(&output.value);
        self.guarded(context, Some(served), disclosed).await?;
        Ok(output)
    }

    /// Checks again a list of operations that goes out, whatever it is written in.
    pub(super) async fn release_list(
        &self,
        context: &Context,
        listed: &[Arc<Served>],
    ) -> Result<(), OpError> {
        if self.gate.rechecker().is_none() {
            return Ok(());
        }
        for served in listed {
            check(&self.gate, context, &served.descriptor, Purpose::List).await?;
        }
        let operations: Vec<_> = listed.iter().map(|served| &served.descriptor).collect();
        let disclosed = Disclosed::Operations(&operations);
        self.guarded(context, None, disclosed).await
    }

    async fn guarded(
        &self,
        context: &Context,
        served: Option<&Served>,
        disclosed: Disclosed<'_>,
    ) -> Result<(), OpError> {
        let Some(guard) = &self.guard else {
            return Ok(());
        };
        let operation = served.map(|served| &served.descriptor);
        // Inside: what panics before it is awaited is caught too.
        let judged = async { guard.check(context, operation, disclosed).await };
        caught("the guard", judged).await
    }

    /// Counts how it ended.
    pub(super) fn count<T>(&self, served: &Served, outcome: &Result<T, OpError>) {
        if let Some(metrics) = &self.metrics {
            let code = outcome.as_ref().err().map_or(DONE, OpError::code);
            metrics.operated(&served.descriptor.id, code);
        }
    }

    /// Whether the credential is still valid as the answer goes out.
    pub(super) async fn recheck(&self, context: &Context) -> Result<(), Refusal> {
        match (self.gate.rechecker(), &context.actor) {
            (Some(rechecker), Some(actor)) => Ok(rechecker.recheck(actor).await?),
            _ => Ok(()),
        }
    }
}
