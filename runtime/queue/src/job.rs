//! What a caller sees of an item.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;

use crate::item::{Hash, NewItem};
use crate::limits::Room;
use crate::status::LaneName;

/// A lane's number and the item's number in it; `2f-1a` as text (hexadecimal).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId {
    /// The lane's number, unique in a store for good.
    pub lane: u64,
    /// The item's number in the lane, from 1, never used twice.
    pub sequence: u64,
}

impl fmt::Display for JobId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:x}-{:x}", self.lane, self.sequence)
    }
}

/// Not the text of a job id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a job id")]
pub struct NotAJobId;

impl FromStr for JobId {
    type Err = NotAJobId;

    fn from_str(text: &str) -> Result<Self, NotAJobId> {
        // One spelling for each id: no sign, no upper case, no leading zero.
        let part = |digits: &str| {
            let plain = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) && !digits.starts_with('0');
            u64::from_str_radix(digits, 16).ok().filter(|_| plain).ok_or(NotAJobId)
        };
        let (lane, sequence) = text.split_once('-').ok_or(NotAJobId)?;
        Ok(JobId { lane: part(lane)?, sequence: part(sequence)? })
    }
}

/// Where a job stands. All but the first two are ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum JobState {
    Queued,
    Running,
    Succeeded,
    Failed,
    Dead,
    Cancelled,
    Expired,
    Shed,
    Purged,
    Unknown,
}

impl JobState {
    /// Every state.
    pub const ALL: [JobState; 10] = [
        JobState::Queued,
        JobState::Running,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Dead,
        JobState::Cancelled,
        JobState::Expired,
        JobState::Shed,
        JobState::Purged,
        JobState::Unknown,
    ];
    /// The word callers see.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Running => "running",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Dead => "dead",
            JobState::Cancelled => "cancelled",
            JobState::Expired => "expired",
            JobState::Shed => "shed",
            JobState::Purged => "purged",
            JobState::Unknown => "unknown",
        }
    }
    /// Whether nothing more will happen.
    pub fn is_end(self) -> bool {
        !matches!(self, JobState::Queued | JobState::Running)
    }
}

/// What is known of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Which.
    pub id: JobId,
    /// Its lane.
    pub lane: LaneName,
    /// Where it stands.
    pub state: JobState,
    /// Counted attempts so far.
    pub attempts: u32,
    /// The end's result (of `succeeded`) or problem object is still kept: see [`crate::Store::outcome`].
    pub has_outcome: bool,
    /// How long that is; 0 where there is none.
    pub outcome_bytes: u64,
    /// It had an outcome that was pushed out since.
    pub outcome_gone: bool,
    /// It was a dead letter and was replayed: the new job.
    pub replayed_as: Option<JobId>,
}

/// How an item ended.
#[derive(Debug)]
pub struct End {
    /// Any end but `Purged` and `Shed`.
    pub state: JobState,
    /// JSON: the result of `Succeeded`, a problem object otherwise. `None`: there is nothing, or it is too large to keep.
    pub outcome: Option<Bytes>,
    /// How long the final state (and, room allowing, the outcome) is kept.
    pub keep: Duration,
    /// It is proven that nothing was executed: its keys and its business key may be used again.
    pub frees_keys: bool,
    /// Items handed on: they exist if and only if this end does.
    pub emits: Vec<Emit>,
    /// A note of the lane that becomes true with this end: see [`crate::Store::note`].
    pub note: Option<(Hash, Bytes)>,
}

/// Items handed on to one lane.
#[derive(Debug)]
pub struct Emit {
    /// Taken in the target's lane.
    pub room: Room,
    /// In order.
    pub items: Vec<NewItem>,
}

/// What an operator decided about a job whose end is unknown.
#[derive(Clone, Debug)]
pub struct Resolution {
    /// `Succeeded` or `Failed`.
    pub state: JobState,
    /// JSON for the caller.
    pub outcome: Option<Bytes>,
}
