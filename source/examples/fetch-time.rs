//! How long a push takes to become an unpacked layer: `fetch-time DIR [ROUNDS]` serves a repository
//! with the files of DIR under `mcp/` over smart HTTP on loopback, changes one file each round, and
//! prints the median of each step in milliseconds.

use std::{
    error::Error,
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

use ramen_source::{
    Cache, Kind, Store,
    git::{Git, GitUrl, Remote, Wanted, no_progress},
    layer,
    testing::{Entry, Repo, SmartHttp},
    tree::{TreeLimits, walk_folder},
};

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let dir = args
        .next()
        .map(PathBuf::from)
        .ok_or("usage: fetch-time DIR [ROUNDS]")?;
    let rounds = args
        .next()
        .and_then(|n| n.to_str()?.parse().ok())
        .unwrap_or(20_u32);
    let files = walk_folder(&dir, &TreeLimits::default())?.files;
    let entries: Vec<(String, Entry)> = files
        .into_iter()
        .map(|file| (format!("mcp/{}", file.path), Entry::File(file.data)))
        .collect();
    let scratch = tempfile::tempdir()?;
    let steps = measure(scratch.path(), entries, rounds).await?;
    let mut out = std::io::stdout();
    for (name, times) in steps {
        writeln!(out, "{name:8} {:8.2} ms", median(times))?;
    }
    Ok(())
}

type Steps = Vec<(&'static str, Vec<f64>)>;

async fn measure(
    scratch: &Path,
    mut entries: Vec<(String, Entry)>,
    rounds: u32,
) -> Result<Steps, Box<dyn Error>> {
    let repo = Repo::init(&scratch.join("repos/x.git"))?;
    let server = SmartHttp::serve(&scratch.join("repos"))?;
    let git = Git::new(&scratch.join("git"), 2)?;
    let store = Store::open(&scratch.join("store"))?;
    let cache = Cache::open(&scratch.join("cache"))?;
    let remote = Remote::new(GitUrl::parse(&server.url("x.git"))?);
    fs::create_dir_all(scratch.join("packed"))?;
    let names = ["resolve", "load", "pack", "put", "unpack", "total"];
    let mut steps: Steps = names.map(|name| (name, Vec::new())).into();
    for round in 0..rounds {
        let change = Entry::text(&format!("round {round}\n"));
        entries.retain(|(path, _)| path != "mcp/round.txt");
        entries.push(("mcp/round.txt".to_owned(), change));
        repo.commit("main", &entries)?;
        let mut at = vec![Instant::now()];
        let resolved = git.resolve(&remote, &Wanted::Head).await?;
        at.push(Instant::now());
        let limits = TreeLimits::default();
        let loaded = git
            .load(&remote, &resolved, "", limits, no_progress())
            .await?;
        at.push(Instant::now());
        let layer = layer::pack_tree(&loaded.tree, &scratch.join("packed"))?;
        at.push(Instant::now());
        let put = store.put(Kind::Code, &loaded.tree.id, &layer).await?;
        at.push(Instant::now());
        cache.ready(&store, Kind::Code, &put).await?;
        at.push(Instant::now());
        let spans = at
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .chain([at[5] - at[0]]);
        for ((_, times), span) in steps.iter_mut().zip(spans) {
            times.push(span.as_secs_f64() * 1000.0);
        }
    }
    Ok(steps)
}
