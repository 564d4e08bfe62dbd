//! The operations as a JSON API: `POST /api/v1/groups/deploy` with the input as its body; what only
//! looks answers GET too, with the input in the query. `GET /api/v1/openapi.json` describes it.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode};
use http_body::Body as HttpBody;
use serde_json::{Map, Value};

use super::check::Context;
use super::config::{Operations, Served};
use super::error::OpError;
use super::openapi;
use super::run::Output;
use crate::answer::{self, Answer, Refusal};
use crate::door::{self, Door, GET_OR_POST};

/// The path of the description.
const DESCRIPTION: &str = "openapi.json";

impl Operations {
    /// Answers one request; `path` is what follows `/api/v1/`.
    pub async fn api<B>(&self, door: &Door, peer: IpAddr, path: &str, request: Request<B>) -> Answer
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let (parts, body) = request.into_parts();
        let Some(verify) = self.gate.verify.as_deref() else {
            return Refusal::Unverified.answer();
        };
        let entered = door
            .enter(&parts, peer, verify, &self.ranges, GET_OR_POST)
            .await;
        let entered = match entered {
            Ok(entered) => entered,
            Err(Refusal::Method) => return not_allowed("GET, POST"),
            Err(refusal) => return refusal.answer(),
        };
        let body = match door::read(body).await {
            Ok(body) => body,
            Err(refusal) => return refusal.answer(),
        };
        let mut context = (self.context)(&parts, peer);
        context.actor = Some(entered.caller);
        context.authorize = Some(Arc::clone(&self.authorize));
        let answer = if path == DESCRIPTION {
            self.description(&context, &parts.method).await
        } else {
            self.operation(&context, path, &parts, &body).await
        };
        match self.recheck(&context).await {
            Ok(()) => answer,
            Err(refusal) => refusal.answer(),
        }
    }

    /// What the caller may use, as `OpenAPI`.
    async fn description(&self, context: &Context, method: &Method) -> Answer {
        if *method != Method::GET {
            return not_allowed("GET");
        }
        match self.described(context).await {
            Ok(document) => answer::json(StatusCode::OK, document.to_string().into()),
            Err(error) => failed(&error, DESCRIPTION),
        }
    }

    async fn described(&self, context: &Context) -> Result<Value, OpError> {
        let allowed = self.allowed(context).await?;
        self.release_list(context, &allowed).await?;
        Ok(openapi::document(&self.info, &allowed))
    }

    async fn operation(
        &self,
        context: &Context,
        path: &str,
        parts: &Parts,
        body: &Bytes,
    ) -> Answer {
        let id = path.replace('/', ".");
        let found = self.served.iter().find(|served| served.descriptor.id == id);
        let Some(served) = found.filter(|_| !path.contains('.')) else {
            return failed(&OpError::NotFound("there is no such operation".into()), "");
        };
        if parts.method == Method::GET && !served.descriptor.flags.read_only {
            return not_allowed("POST");
        }
        let ended = self.ended(context, served, parts, body).await;
        self.count(served, &ended);
        match ended {
            Ok(_) if served.result.is_none() => answer::empty(StatusCode::NO_CONTENT),
            Ok(output) => answer::json(StatusCode::OK, output.json.into()),
            Err(error) => failed(&error, &id),
        }
    }

    async fn ended(
        &self,
        context: &Context,
        served: &Served,
        parts: &Parts,
        body: &Bytes,
    ) -> Result<Output, OpError> {
        self.admit(context, served).await?;
        let input = input(served, parts, body)?;
        let outcome = self.invoke(context, served, input).await;
        let output = self.release(context, served, outcome).await?;
        if output.json.len() > self.gate.max_response {
            return Err(OpError::TooLarge(output.json.len()));
        }
        Ok(output)
    }
}

fn failed(error: &OpError, operation: &str) -> Answer {
    answer::json(error.status(), error.envelope(operation))
}

fn not_allowed(allow: &'static str) -> Answer {
    let mut answer = Refusal::Method.answer();
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allow));
    answer
}

/// The input of a request, judged.
fn input(served: &Served, parts: &Parts, body: &Bytes) -> Result<Value, OpError> {
    let invalid = |why: String| OpError::Invalid(why.into());
    let json = if parts.method == Method::GET {
        from_query(served, parts.uri.query().unwrap_or_default())?.to_string()
    } else if body.is_empty() {
        "{}".to_owned()
    } else {
        let kind = parts
            .headers
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(crate::media::is_json) {
            return Err(OpError::Invalid(
                "Content-Type must be application/json".into(),
            ));
        }
        String::from_utf8(body.to_vec())
            .map_err(|_| OpError::Invalid("the body is not UTF-8".into()))?
    };
    if !json.trim_start().starts_with('{') {
        return Err(OpError::Invalid("the body must be an object".into()));
    }
    served
        .check_input(&json)
        .map_err(|fault| invalid(fault.to_string()))?;
    serde_json::from_str(&json).map_err(|error| invalid(error.to_string()))
}

/// A query as an object; numbers and booleans where the schema says so.
fn from_query(served: &Served, query: &str) -> Result<Value, OpError> {
    let properties = &served.descriptor.input["properties"];
    let mut input = Map::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (decode(name), decode(value)) else {
            return Err(OpError::Invalid("the query is not UTF-8".into()));
        };
        let value = match properties[&name]["type"].as_str() {
            Some("integer" | "number" | "boolean") => {
                serde_json::from_str(&value).unwrap_or(Value::String(value))
            }
            _ => Value::String(value),
        };
        if input.insert(name, value).is_some() {
            return Err(OpError::Invalid("the query names something twice".into()));
        }
    }
    Ok(Value::Object(input))
}

fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_encoding::percent_decode_str(&spaced)
        .decode_utf8()
        .ok()?;
    Some(decoded.into_owned())
}
