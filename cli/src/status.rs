//! `ramen status`: the groups of a cluster, read as kubectl reads them.
//!
//! [`cluster`] is the only module of this program that knows `kube`; [`view`] says what a group's objects mean and
//! [`table`] how that looks. The cargo feature `cluster` leaves all of it out.

mod cluster;
mod table;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use self::cluster::Change;
pub(crate) use self::cluster::Cluster;
use self::view::{Detail, Groups, Summary};
use crate::exit::Failure;
use crate::output::{self, Format, OutputArg};

/// `ramen status`.
#[derive(Args)]
pub(crate) struct StatusArgs {
    /// One group, with all that is known about it [default: a line for each group]
    #[arg(value_name = "GROUP")]
    group: Option<String>,
    /// Show each change as it comes, until interrupted
    #[arg(long, short)]
    watch: bool,
    /// Groups of all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["namespace", "group"])]
    all_namespaces: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    output: OutputArg,
}

/// Which cluster, as kubectl's own flags say it.
#[derive(Args)]
pub(crate) struct ClusterArgs {
    /// Namespace [default: that of the context]
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The kubeconfig [default: `$KUBECONFIG`, `~/.kube/config`, or the account of the pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl ClusterArgs {
    /// Whether anything of a cluster is named.
    pub(crate) fn is_named(&self) -> bool {
        self.namespace.is_some() || self.context.is_some() || self.kubeconfig.is_some()
    }
}

/// Runs the command.
pub(crate) fn run(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let runtime = crate::runtime()?;
    let code = runtime.block_on(async {
        let cluster = Cluster::connect(&args.cluster, args.all_namespaces).await?;
        match (&args.group, args.watch) {
            (None, false) => list(&cluster, args.output).await,
            (Some(group), false) => one(&cluster, group, args.output).await,
            (None, true) => watch(&cluster, args.output).await,
            (Some(group), true) => watch_one(&cluster, group, args.output).await,
        }
    });
    runtime.shutdown_background();
    code
}

/// 0 when all is well, else the code that the help names.
fn verdict(ready: bool) -> ExitCode {
    ExitCode::from(if ready { 0 } else { crate::exit::NOT_READY })
}

async fn list(cluster: &Cluster, output: OutputArg) -> Result<ExitCode, Failure> {
    let groups = Groups {
        groups: cluster.summaries().await?,
    };
    if groups.groups.is_empty() {
        output::note(&format!("no groups in {}", cluster.place()));
    }
    if !groups.groups.is_empty() || output.output != Format::Table {
        output.print(&groups, || {
            table::list(&groups.groups, cluster.all_namespaces())
        })?;
    }
    Ok(verdict(groups.groups.iter().all(|group| group.ready)))
}

async fn one(cluster: &Cluster, group: &str, output: OutputArg) -> Result<ExitCode, Failure> {
    let detail = cluster.detail(group).await?;
    output.print(&detail, || table::detail(&detail, output::colours()))?;
    Ok(verdict(detail.group.ready))
}

/// A line for each change of any group; the last known states decide the exit code.
async fn watch(cluster: &Cluster, output: OutputArg) -> Result<ExitCode, Failure> {
    let mut lines = table::Lines::new(cluster.all_namespaces());
    let mut known = std::collections::BTreeMap::<(String, String), Summary>::new();
    let mut changes = std::pin::pin!(cluster.changes(None));
    let mut stop = std::pin::pin!(crate::signals::stop());
    loop {
        let change = tokio::select! {
            () = &mut stop => return Ok(verdict(known.values().all(|group| group.ready))),
            change = next(&mut changes) => change?,
        };
        match change {
            Change::Is(group) => {
                let key = (group.namespace.clone(), group.name.clone());
                if known.get(&key) == Some(&*group) {
                    continue;
                }
                print(output, &*group, || lines.line(&group));
                known.insert(key, *group);
            }
            Change::Gone(namespace, name) => {
                output::note(&format!("{namespace}/{name} is gone"));
                known.remove(&(namespace, name));
            }
        }
    }
}

/// All about one group again, each time that anything of it changed.
async fn watch_one(cluster: &Cluster, group: &str, output: OutputArg) -> Result<ExitCode, Failure> {
    // Also the check that it is there: a watch of nothing would wait for ever.
    let mut shown: Option<Detail> = None;
    let mut now = cluster.detail(group).await?;
    let mut changes = std::pin::pin!(cluster.changes(Some(group)));
    let mut stop = std::pin::pin!(crate::signals::stop());
    loop {
        if shown.as_ref() != Some(&now) {
            if shown.is_some() && output.output == Format::Table {
                output::line("");
            }
            print(output, &now, || table::detail(&now, output::colours()));
        }
        let ready = now.group.ready;
        shown = Some(now);
        let change = tokio::select! {
            () = &mut stop => return Ok(verdict(ready)),
            change = next(&mut changes) => change?,
        };
        match change {
            Change::Is(_) => now = cluster.detail(group).await?,
            Change::Gone(..) => {
                return Err(Failure::error(format!("the group {group} was removed")));
            }
        }
    }
}

async fn next<S>(changes: &mut std::pin::Pin<&mut S>) -> Result<Change, Failure>
where
    S: futures::Stream<Item = Result<Change, Failure>>,
{
    futures::StreamExt::next(changes)
        .await
        .unwrap_or_else(|| Err(Failure::transport("the watch ended")))
}

/// One state of a watch: a document of its own for programs.
fn print<T: serde::Serialize>(output: OutputArg, data: &T, text: impl FnOnce() -> String) {
    match output.output {
        Format::Table => output::line(text().trim_end()),
        Format::Json => output::line(&serde_json::to_string(data).unwrap_or_default()),
        Format::Yaml => {
            let text = serde_saphyr::to_string(data).unwrap_or_default();
            output::line(&format!("---\n{}", text.trim_end()));
        }
    }
}
