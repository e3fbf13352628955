//! What ranks have done lately, as JSON.
use super::{TimeJson, rank_number};
use mycroft_diagnose::operations::{GroupOperations, InFlight, OperationSeen, Operations, RankOperations};
use mycroft_record::HostTime;
use serde::{Deserialize, Serialize};

/// `GET /api/v1/jobs/JOB/operations`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OperationsJson {
    /// The job.
    pub job: String,
    /// Server clock.
    pub as_of: TimeJson,
    /// What collectives are called: rows name them by their place here.
    pub kinds: Vec<String>,
    /// Communicators, those first in which somebody is behind.
    pub groups: Vec<GroupOpsJson>,
    /// Communicators cut off.
    pub more_groups: u64,
    /// What ranks are in, those that have been in it longest first.
    pub in_flight: Vec<InFlightJson>,
    /// Ranks that are cut off.
    pub more_in_flight: u64,
}

/// Collectives of a communicator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GroupOpsJson {
    /// The communicator, 16 hex digits.
    pub communicator: String,
    /// What people know it by.
    pub name: String,
    /// Its members that are known.
    pub ranks: u64,
    /// The order number after the newest that any of them has issued.
    pub next: u64,
    /// Members that have issued less.
    pub behind: u64,
    /// Members, ascending.
    pub rows: Vec<RankOpsJson>,
}

/// Collectives of a rank on a communicator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankOpsJson {
    /// The rank.
    pub rank: Option<u32>,
    /// Its host.
    pub host: String,
    /// The order number after the newest that it has issued.
    pub next: u64,
    /// Of each operation its order number, its kind (place in `kinds`), and how far it is: 0 issued, 1 running, 2 over.
    pub ops: Vec<(u64, usize, u8)>,
}

/// What a rank is in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InFlightJson {
    /// The rank.
    pub rank: Option<u32>,
    /// Its host.
    pub host: String,
    /// What it is in, with its communicator, peer and order number.
    pub what: String,
    /// When its host issued it, or the device began with it.
    pub since: Option<TimeJson>,
    /// `issued`, `running` or `over`: the device has left it, and data is on its way.
    pub stage: String,
    /// Operations of it that are in flight besides.
    pub more: u64,
}

impl OperationsJson {
    pub(crate) fn of(job: &str, told: &Operations, now: HostTime) -> OperationsJson {
        let mut kinds = Vec::new();
        OperationsJson {
            job: job.to_owned(),
            as_of: TimeJson::exact(now),
            groups: told.groups.iter().map(|group| GroupOpsJson::of(group, &mut kinds)).collect(),
            kinds,
            more_groups: told.more_groups,
            in_flight: told.in_flight.iter().map(InFlightJson::of).collect(),
            more_in_flight: told.more_in_flight,
        }
    }
}

impl GroupOpsJson {
    fn of(group: &GroupOperations, kinds: &mut Vec<String>) -> GroupOpsJson {
        GroupOpsJson {
            communicator: group.comm.to_string(),
            name: group.name.clone(),
            ranks: group.ranks,
            next: group.next,
            behind: group.behind,
            rows: group.rows.iter().map(|row| RankOpsJson::of(row, kinds)).collect(),
        }
    }
}

impl RankOpsJson {
    fn of(row: &RankOperations, kinds: &mut Vec<String>) -> RankOpsJson {
        let mut op = |op: &OperationSeen| {
            let name = op.kind.to_string();
            let kind = kinds.iter().position(|known| *known == name).unwrap_or_else(|| {
                kinds.push(name);
                kinds.len() - 1
            });
            (op.seq, kind, op.stage as u8)
        };
        RankOpsJson {
            rank: rank_number(row.rank),
            host: row.host.to_string(),
            next: row.next,
            ops: row.ops.iter().map(&mut op).collect(),
        }
    }
}

impl InFlightJson {
    fn of(op: &InFlight) -> InFlightJson {
        InFlightJson {
            rank: rank_number(op.rank),
            host: op.host.to_string(),
            what: op.what.clone(),
            since: TimeJson::of(op.since),
            stage: op.stage.as_str().to_owned(),
            more: op.more,
        }
    }
}
