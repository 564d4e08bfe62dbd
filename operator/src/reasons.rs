//! The reasons of conditions, besides those of the errors list (`ramen_group::Reason`) and the cluster's own words for what pods
//! have. `docs/cluster/day-2.md` says of each what to do.

macro_rules! reasons {
    ($( $name:ident = $word:literal; )+) => {
        $( pub(crate) const $name: &str = $word; )+

        /// All of them.
        #[cfg(test)]
        const ALL: &[&str] = &[ $( $word ),+ ];
    };
}

reasons! {
    // Where a group stands.
    SERVING = "Serving";
    LAST_GOOD_SERVES = "LastGoodServes";
    ROLLED_BACK = "RolledBack";
    STARTING = "Starting";
    RESOLVING = "Resolving";
    FETCHING = "Fetching";
    DEPLOYING = "Deploying";
    RELOADING = "Reloading";
    RETRYING = "Retrying";
    PODS_NOT_READY = "PodsNotReady";
    ROLLING_OUT = "RollingOut";
    CATCHING_UP = "CatchingUp";
    DEPLOY_FAILED = "DeployFailed";
    SOURCE_FAILED = "SourceFailed";
    SUSPENDED = "Suspended";
    // Of one part alone.
    FETCHED = "Fetched";
    DEPLOYED = "Deployed";
    UNDER_WAY = "UnderWay";
    NOT_YET = "NotYet";
    PODS_READY = "PodsReady";
    NOTHING_TO_SERVE = "NothingToServe";
    NOT_KNOWN = "NotKnown";
    // What a run ends with that does not go through.
    QUOTA_EXCEEDED = "QuotaExceeded";
    FORBIDDEN = "Forbidden";
    REFUSED = "Refused";
    API_ERROR = "ApiError";
    API_UNREACHABLE = "ApiUnreachable";
    FOREIGN_OBJECT = "ForeignObject";
    MEMORY_UNREADABLE = "MemoryUnreadable";
    INTERNAL = "Internal";
    // Why there is no pod.
    POD_SECURITY_REFUSED = "PodSecurityRefused";
    POD_REFUSED = "PodRefused";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use ramen_crds::labels::condition;
    use ramen_group::Reason;

    use super::*;

    /// What stands in backticks in the first column of the table of stuck groups.
    fn listed() -> BTreeSet<String> {
        let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let page = std::fs::read_to_string(top.join("docs/cluster/day-2.md")).unwrap();
        let chapter = page
            .split("\n## ")
            .find(|text| text.starts_with("A stuck group\n"));
        let rows = chapter
            .unwrap()
            .lines()
            .filter(|line| line.starts_with("| "));
        let cells = rows.filter_map(|row| row.split('|').nth(1));
        let spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
        spans.map(str::to_owned).collect()
    }

    #[test]
    fn the_guide_has_every_reason_and_no_other() {
        let listed = listed();
        let missing: Vec<_> = ALL.iter().filter(|word| !listed.contains(**word)).collect();
        assert!(
            missing.is_empty(),
            "docs/cluster/day-2.md lacks {missing:?}"
        );
        let mut known: BTreeSet<&str> = ALL.iter().copied().collect();
        known.extend(Reason::ALL.iter().map(|reason| reason.as_str()));
        known.extend([
            condition::READY,
            condition::RECONCILING,
            condition::STALLED,
            condition::SOURCE_FETCHED,
            condition::DEPLOYED,
            condition::WORKERS_AVAILABLE,
            "True",
            "False",
        ]);
        let unknown: Vec<_> = listed
            .iter()
            .filter(|word| !known.contains(word.as_str()))
            .collect();
        assert!(
            unknown.is_empty(),
            "docs/cluster/day-2.md names {unknown:?}"
        );
    }
}
