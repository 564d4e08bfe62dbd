//! A clock that jumps.

use std::{fs, process::Command};

use anyhow::{Context as _, ensure};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};

use super::rig::{self, Rig, now};

/// Shifts the time of day, and nothing else, by the seconds in a file.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = (int)syscall(SYS_clock_gettime, clock, now);
    if (done == 0 && clock == CLOCK_REALTIME) {
        long shift = 0;
        FILE *file = fopen(getenv("CLOCK_SHIFT"), "r");
        if (file) {
            if (fscanf(file, "%ld", &shift) != 1) shift = 0;
            fclose(file);
        }
        now->tv_sec += shift;
    }
    return done;
}
"#;

/// Lets the operator's clock follow a file from its next start on; gives the file.
fn shiftable(rig: &mut Rig) -> anyhow::Result<std::path::PathBuf> {
    let source = rig.dir.path().join("shift.c");
    let library = rig.dir.path().join("shift.so");
    let file = rig.dir.path().join("shift");
    fs::write(&source, SHIFT)?;
    fs::write(&file, "0")?;
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .output()
        .context("running cc")?;
    ensure!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    rig.operator
        .set("LD_PRELOAD", &library.display().to_string());
    rig.operator.set("CLOCK_SHIFT", &file.display().to_string());
    Ok(file)
}

#[tokio::test]
#[ignore = "needs a cluster: make e2e"]
async fn a_clock_that_jumps_an_hour_moves_neither_the_lease_nor_a_group() {
    rig::on_paper(async |rig| {
        rig.operator.stop().await?;
        let shift = shiftable(rig)?;
        rig.operator.up().await?;
        let (group, _) = rig.live("soup").await?;
        let mut standby = rig.operator.replica("two")?;
        standby.start()?;
        for (jump, text) in [("3600", "forward"), ("-3600", "back"), ("0", "right")] {
            fs::write(&shift, jump)?;
            let commit = rig.push(text)?;
            group.look(&now()).await?;
            group.serves(&commit).await?;
            // The next renewal tells what time it is for the operator.
            let ahead: i64 = jump.parse()?;
            let lease = rig
                .namespace
                .until::<Lease>("ramen-operator", move |lease: Option<&Lease>| {
                    let spec = lease.and_then(|lease| lease.spec.as_ref());
                    let renewed = spec.and_then(|spec| spec.renew_time.as_ref());
                    let now = Timestamp::now().as_second() + ahead;
                    renewed.is_some_and(|at| (at.0.as_second() - now).abs() < 900)
                })
                .await
                .with_context(|| format!("the clock never jumped {text}"))?;
            let spec = lease.and_then(|lease| lease.spec);
            let spec = spec.context("a lease without a spec")?;
            assert_eq!(spec.holder_identity.as_deref(), Some("one"), "{text}");
        }
        // The other one is still there and takes over when it is its turn.
        rig.operator.stop().await?;
        rig.namespace
            .until::<Lease>("ramen-operator", |lease: Option<&Lease>| {
                let spec = lease.and_then(|lease| lease.spec.as_ref());
                spec.and_then(|spec| spec.holder_identity.as_deref()) == Some("two")
            })
            .await?;
        assert!(standby.stop().await?);
        Ok(())
    })
    .await;
}
