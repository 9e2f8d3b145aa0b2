//! File descriptors: as many as the system lets this process have, and how many of them the connections of callers may take.
//!
//! Invariants
//! 1. However many connections callers open, half of the descriptors are left: for databases, the store, the admin face, a reload.

/// As many as are asked for: a connection needs one. More would cost a driver that looks at them one by one.
const WANTED: u64 = 65_536;
/// Most connections of callers, however many descriptors there are.
const CONNECTIONS: usize = 10_000;

/// Raises the soft limit, which a shell or a container often sets to 1,024, as far as the hard one allows. Answers how many
/// connections of callers may be open at once.
pub(crate) fn connections() -> usize {
    let limit = match rlimit::increase_nofile_limit(WANTED) {
        Ok(limit) => limit,
        Err(error) => {
            tracing::warn!(%error, "the limit of file descriptors is not known; connections of callers are limited as if it were high");
            WANTED
        }
    };
    let connections = connections_of(limit);
    if connections < CONNECTIONS {
        tracing::warn!(limit, connections, "few file descriptors (`ulimit -Hn`): callers may have so many connections open and no more");
    }
    connections
}

fn connections_of(limit: u64) -> usize {
    usize::try_from(limit / 2).unwrap_or(CONNECTIONS).clamp(1, CONNECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_few_descriptors_and_no_more_than_the_cap_of_many_are_for_callers() {
        assert_eq!([0, 256, 1_024, WANTED, u64::MAX].map(connections_of), [1, 128, 512, CONNECTIONS, CONNECTIONS]);
    }
}
