use std::fs;
use std::os::unix::fs::PermissionsExt;

use ramen_redact::Redactor;

use super::*;

/// Compiles with a shell script in the place of Python, with so many MiB for it.
async fn compile_with(script: &str, mib: u64) -> Result<(), UvFault> {
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python");
    fs::write(&python, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    let mut config = IndexConfig::default();
    let path = std::env::var("PATH").unwrap();
    config.env.insert("PATH".into(), path);
    let uv = Uv {
        program: python.clone(),
        config,
        python,
        scratch: folder.path().to_owned(),
        deadline: Instant::now() + Duration::from_mins(1),
        log: RunLog::new(Redactor::none()),
        memory: Memory::new(Some(mib)),
    };
    uv.compile(folder.path(), false).await
}

#[tokio::test]
async fn files_that_do_not_compile_are_no_fault() {
    assert_eq!(compile_with("exit 1", 0).await, Ok(()));
}

#[tokio::test]
async fn a_compiler_that_is_ended_for_its_memory_has_not_compiled() {
    let fills = "text=$(head -c 16000000 /dev/zero | tr '\\0' x); sleep 600; exit 1";
    let fault = compile_with(fills, 4).await.unwrap_err();
    assert_eq!(fault.reason, Reason::InstallFailed);
    assert!(
        matches!(fault.ended, Some(EndCause::Budget { .. })),
        "{fault:?}"
    );
}
