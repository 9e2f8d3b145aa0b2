//! Room in the store: asked for before content exists, given back by drop.

use std::time::Duration;

use crate::status::LaneName;
use crate::store::Store;

/// Limits in force at one append. `u64::MAX` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Items of the queue that have not ended, all lanes.
    pub queue_items: u64,
    /// Content bytes of them.
    pub queue_bytes: u64,
    /// Items of the tenant that have not ended, all queues.
    pub tenant_items: u64,
    /// Content bytes of them.
    pub tenant_bytes: u64,
    /// Bytes of disk that all the tenant's lanes hold: whole extents.
    pub tenant_disk: u64,
    /// Several tenants use the queue: a lane leaves a part of it to the others.
    pub shared: bool,
    /// Content bytes of one item.
    pub item_bytes: u64,
    /// Bytes of one kept outcome.
    pub outcome_bytes: u64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Items.
    pub items: u64,
    /// Content bytes of all of them, at most.
    pub bytes: u64,
    /// Where the lane's own share is full: end its oldest waiting items as `shed` to make room.
    pub shed_oldest: bool,
}

/// Which limit spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum WhichLimit {
    QueueItems,
    QueueBytes,
    /// What a lane may hold of a queue that several tenants use.
    LaneItems,
    LaneBytes,
    TenantItems,
    TenantBytes,
    TenantDisk,
    /// It could never fit: waiting will not help.
    ItemBytes,
    /// Extents of the store are used up.
    StoreDisk,
    /// The volume's free space is below the reserve.
    VolumeFree,
    /// The store does not accept work: see its health.
    NotServing,
}

impl WhichLimit {
    pub(crate) fn is_bytes(self) -> bool {
        matches!(self, WhichLimit::QueueBytes | WhichLimit::LaneBytes | WhichLimit::TenantBytes)
    }
    pub(crate) fn is_of_lane(self) -> bool {
        matches!(self, WhichLimit::LaneItems | WhichLimit::LaneBytes)
    }
}

/// There is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Which limit.
    pub which: WhichLimit,
    /// What it is.
    pub limit: u64,
    /// What is used of it.
    pub used: u64,
    /// This tenant's own lane is what fills the queue (own share) rather than others.
    pub own_share: bool,
    /// When there may be room, by the pace at which jobs end; `None`: nothing is known of it.
    pub retry_after: Option<Duration>,
}

/// Room for items of one lane, with their final states. Dropping it gives back what was not used.
#[derive(Debug)]
pub struct Room {
    pub(crate) store: Store,
    /// Of the lane.
    pub(crate) index: usize,
    pub(crate) lane: LaneName,
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    pub(crate) limits: QueueLimits,
    /// Older items make way, where limits are passed.
    pub(crate) shed_oldest: bool,
}

impl Room {
    /// Which lane it is in.
    pub fn lane(&self) -> &LaneName {
        &self.lane
    }
    /// Content bytes it is for.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
