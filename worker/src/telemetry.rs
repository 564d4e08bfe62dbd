//! Logs, and traces when a collector is named.

use std::collections::HashMap;
use std::io::IsTerminal;

use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::ExporterBuildError;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use ramen_mcp::meta::TraceContext;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config;

/// What must be flushed at the end.
#[derive(Default)]
pub struct Telemetry {
    traces: Option<SdkTracerProvider>,
}

/// Starts logging to stderr: JSON unless it is a terminal. Must run inside the runtime.
pub fn start(filter: &str) -> Telemetry {
    let filter = || EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = if std::io::stderr().is_terminal() {
        lines.with_target(false).boxed()
    } else {
        lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .boxed()
    };
    let (traces, fault) = match config::traces_wanted().then(exporter) {
        None => (None, None),
        Some(Ok(provider)) => (Some(provider), None),
        Some(Err(error)) => (None, Some(error)),
    };
    let spans = traces.as_ref().map(|provider| {
        tracing_opentelemetry::layer()
            .with_tracer(provider.tracer("ramen-worker"))
            .with_filter(EnvFilter::new("off,ramen_worker=debug"))
    });
    // A second start in one process (tests) keeps the first.
    let _ = tracing_subscriber::registry()
        .with(lines.with_filter(filter()))
        .with(spans)
        .try_init();
    if let Some(error) = fault {
        // A worker without traces still serves.
        tracing::error!(%error, "traces are not exported");
    }
    Telemetry { traces }
}

fn exporter() -> Result<SdkTracerProvider, ExporterBuildError> {
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_tonic()
        .build()?;
    let resource = opentelemetry_sdk::Resource::builder()
        .with_service_name("ramen-worker")
        .build();
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .build())
}

/// Makes the caller's trace the parent of a span that is exported.
pub(crate) fn adopt(span: &Span, trace: Option<&TraceContext>) {
    let (false, Some(trace)) = (span.is_disabled(), trace) else {
        return;
    };
    let fields = [
        ("traceparent", &trace.traceparent),
        ("tracestate", &trace.tracestate),
    ];
    let fields: HashMap<String, String> = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?)))
        .collect();
    // Without an exporter there is nothing to be the parent of.
    let _ = span.set_parent(TraceContextPropagator::new().extract(&fields));
}

impl Telemetry {
    /// Sends what is left.
    pub fn stop(self) {
        if let Some(provider) = self.traces
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(%error, "the last traces were not sent");
        }
    }
}
