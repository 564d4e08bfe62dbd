//! `ramen-operator`.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let args = ramen_operator::Args::parse();
    ramen_operator::telemetry::init(&args.log, args.log_format);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime cannot be started");
            return ExitCode::FAILURE;
        }
    };
    let ended = runtime.block_on(ramen_operator::run(args));
    // A fetch may still sit in its thread; nothing waits for it.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the operator ends");
            ExitCode::FAILURE
        }
    }
}
