//! Who calls: `Authorization: Bearer KEY` against the hashes of all keys.
//!
//! Invariants
//! 1. No key is held here, only SHA-256 hashes; they are compared in constant time.
//! 2. A wrong key and a missing tenant cannot be told apart by the reply.

use sha2::{Digest as _, Sha256};
use spillgate_engine::LiveTenant;
use spillgate_model::{Code, Refusal};
use subtle::ConstantTimeEq as _;

/// All keys of a live plan.
#[derive(Debug)]
pub(crate) struct Callers {
    /// Hash of a key and the index of its tenant, in the order of the hashes.
    keys: Box<[([u8; 32], usize)]>,
}

impl Callers {
    pub(crate) fn new(tenants: &[LiveTenant]) -> Self {
        let keys = tenants.iter().enumerate().flat_map(|(index, tenant)| tenant.plan.keys.iter().map(move |key| (*key, index)));
        let mut keys: Box<[_]> = keys.collect();
        keys.sort_unstable();
        Callers { keys }
    }

    /// The tenant whose key it is.
    pub(crate) fn find(&self, authorization: Option<&[u8]>) -> Result<usize, Refusal> {
        let missing = || Refusal::new(Code::Unauthenticated, "Send the header Authorization: Bearer KEY.");
        let key = authorization.and_then(bearer).ok_or_else(missing)?;
        let hash: [u8; 32] = Sha256::digest(key).into();
        // The start of a hash only narrows the search: nobody can choose it without knowing the key.
        let start = self.keys.partition_point(|(known, _)| known[..8] < hash[..8]);
        let alike = self.keys[start..].iter().take_while(|(known, _)| known[..8] == hash[..8]);
        let found = alike.filter(|(known, _)| bool::from(known.ct_eq(&hash))).map(|(_, tenant)| *tenant).next();
        found.ok_or_else(|| Refusal::new(Code::Unauthenticated, "The key is not known here."))
    }
}

fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, key) = authorization.split_at_checked(7)?;
    (scheme.eq_ignore_ascii_case(b"bearer ") && !key.is_empty()).then(|| key.trim_ascii())
}
