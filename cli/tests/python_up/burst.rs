//! GIT12: many pushes in a row.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::OTHER;
use crate::files::{call, document, push};
use crate::support::{Place, Repo, Up};

/// A worker that tells of each deploy. One that finds another at work tells of that too; it gives one that was killed the
/// time to die. While there is a gate, a deploy waits at it.
const WATCHED: &str = r#"#!/bin/sh
cd 'PLACE'
if [ "$1" = deploy ]; then
    for other in $(cat deploys); do
        tries=0
        while grep -qs deploy "/proc/$other/cmdline"; do
            tries=$((tries + 1))
            if [ $tries = 100 ]; then
                echo "$$ beside $other" >> overlaps
                break
            fi
            sleep 0.05
        done
    done
    echo $$ >> deploys
    if [ -p gate ]; then cat gate > /dev/null; fi
fi
exec 'WORKER' "$@"
"#;

struct Watched {
    place: Place,
    repo: Repo,
    up: Up,
}

impl Watched {
    /// A group that serves, whose deploys are watched.
    fn serve() -> Self {
        let place = Place::new();
        let repo = place.repo("demo");
        let worker = Path::new(env!("CARGO_BIN_EXE_ramen")).with_file_name("ramen-worker");
        let text = WATCHED
            .replace("PLACE", place.path("").to_str().unwrap())
            .replace("WORKER", worker.to_str().unwrap());
        let script = place.write("watched-worker", &text);
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        for told in ["deploys", "overlaps"] {
            place.write(told, "");
        }
        let file = place.write("group.yaml", &document("demo", &repo.bare, ""));
        let worker = [("RAMEN_WORKER", script.to_str().unwrap())];
        let mut up = place.up_with(&["-f", file.to_str().unwrap()], &worker);
        up.until("it serves", "demo", |s| {
            s["ready"] == true && s["revision"].is_string()
        });
        Self { place, repo, up }
    }

    /// Pushes code with the answers from `first` on.
    fn push(&self, first: usize, count: usize) -> Vec<String> {
        let code = |answer: usize| OTHER.replace("43", &answer.to_string());
        let answers = first..first + count;
        let pushed = answers.map(|answer| push(&self.place, &self.repo, &code(answer), "demo"));
        pushed.collect()
    }

    fn told(&self, file: &str) -> String {
        std::fs::read_to_string(self.place.path(file)).unwrap()
    }

    fn deploys(&self) -> usize {
        self.told("deploys").lines().count()
    }

    /// The last push serves; some may have been left out, and none came after a newer one.
    fn ends_with_the_last(mut self, pushed: &[String], answer: &str) {
        let last = pushed.last().unwrap();
        self.up.until("the last push serves", "demo", |s| {
            s["revision"].as_str().is_some_and(|r| r.ends_with(last))
        });
        assert_eq!(call(&self.place, "demo"), answer);
        let place_of = |status: &Value| {
            let revision = status["revision"].as_str()?.to_owned();
            pushed.iter().position(|push| revision.ends_with(push))
        };
        let served: Vec<usize> = self.up.all().iter().filter_map(place_of).collect();
        assert!(served.is_sorted(), "{served:?}");
        assert_eq!(self.told("overlaps"), "", "two deploys at once");
        assert_eq!(self.up.stop(), Some(0));
    }
}

#[test]
fn git12_many_pushes_in_a_row_end_with_the_last_one() {
    let watched = Watched::serve();
    let pushed = watched.push(100, 15);
    watched.ends_with_the_last(&pushed, "114\n");
}

#[test]
fn git12_fifty_pushes_during_a_deploy_make_few_deploys_one_after_the_other() {
    let mut watched = Watched::serve();
    let gate = watched.place.path("gate");
    let made = Command::new("mkfifo").arg(&gate).status().unwrap();
    assert!(made.success());
    let before = watched.deploys();
    let pushed = watched.push(100, 50);
    let last = pushed.last().unwrap();
    watched.up.until("the last push is seen", "demo", |s| {
        s["observed"].as_str().is_some_and(|r| r.ends_with(last))
    });
    // A pipe that is open on both sides opens for everybody, and ends for them when we close it.
    let pipe = std::fs::File::options().read(true).write(true).open(&gate);
    let pipe = pipe.unwrap();
    std::fs::remove_file(&gate).unwrap();
    drop(pipe);
    watched.up.until("the last push serves", "demo", |s| {
        s["revision"].as_str().is_some_and(|r| r.ends_with(last))
    });
    // Three are given up for something newer, the fourth is left to end, and the last push has its own.
    let deploys = watched.deploys() - before;
    assert!(deploys <= 5, "{deploys} deploys");
    watched.ends_with_the_last(&pushed, "149\n");
}
