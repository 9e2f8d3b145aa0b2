//! One record: a key `KIND/NAME`, a version, and a body that is JSON in every version known so far.

use std::sync::Arc;

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A lane whose dispatch an operator stopped.
    Paused,
    /// A change an operator made.
    Audit,
    /// Limits of a tenant in place of the file's.
    Override,
    /// A breaker that is open: a database's, or a flow's for one tenant.
    Breaker,
    /// That there is a queue store, and what must be known if it is gone.
    Store,
}

impl Kind {
    const ALL: [Kind; 5] = [Kind::Paused, Kind::Audit, Kind::Override, Kind::Breaker, Kind::Store];
    /// The newest version written and understood here.
    pub(crate) const VERSION: u8 = 1;

    /// The first part of a key, with the slash.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Kind::Paused => "paused/",
            Kind::Audit => "audit/",
            Kind::Override => "override/",
            Kind::Breaker => "breaker/",
            Kind::Store => "store/",
        }
    }
    pub(crate) fn key(self, name: &str) -> String {
        format!("{}{name}", self.prefix())
    }
}

/// A version and a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) version: u8,
    pub(crate) body: Arc<[u8]>,
}

impl Record {
    pub(crate) fn of(body: &impl serde::Serialize) -> Result<Record, serde_json::Error> {
        Ok(Record { version: Kind::VERSION, body: serde_json::to_vec(body)?.into() })
    }
    /// As it stands in a notebook: the version, then the body.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [&[self.version][..], &self.body].concat()
    }
    /// `None`: there is not even a version.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Record> {
        let (version, body) = bytes.split_first()?;
        Some(Record { version: *version, body: body.into() })
    }
    /// The body as this version knows it.
    pub(crate) fn read<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        (self.version == Kind::VERSION).then(|| serde_json::from_slice(&self.body).ok()).flatten()
    }
    /// Bytes of its line in an export, nearly.
    pub(crate) fn cost(&self, key: &str) -> u64 {
        const AROUND: u64 = 48;
        let length = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        length(key.len()).saturating_add(length(self.body.len())).saturating_add(AROUND)
    }
    /// Tells this record, under this key, from any other.
    pub(crate) fn checksum(&self, key: &str) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(key.as_bytes());
        hasher.update(&[0, self.version]);
        hasher.update(&self.body);
        hasher.finalize()
    }
}

/// Whether a record is of a kind and version that is understood here.
pub(crate) fn is_known(key: &str, record: &Record) -> bool {
    record.version == Kind::VERSION && Kind::ALL.iter().any(|kind| key.starts_with(kind.prefix()))
}
