//! fjall, redb and sled as a queue: keys are sequence numbers, a turn is one durable commit.
//!
//! Each as its documentation shows it, with its defaults; reading starts at the known head, so that none has to pass over what was
//! removed before.

use std::hint::black_box;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use bytes::Bytes;
use fjall::{KeyspaceCreateOptions, PersistMode};
use redb::{ReadableDatabase, TableDefinition};

use super::super::pile::{ITEM_BYTES, noise};
use super::{AT_ONCE, Rival, allocated};

/// Items of one commit while a backlog is made.
const FILL_ITEMS: u64 = 4096;
const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("items");

/// A key-value store with ordered keys.
pub(super) trait KeyValue: Sized {
    fn open(folder: &Path) -> Result<Self>;
    /// Writes `item` under the new keys and removes others, durably and together.
    fn commit(&self, item: &[u8], new: Range<u64>, removed: Range<u64>) -> Result<()>;
    /// Reads values in key order from `head`, [`AT_ONCE`] at most: how many.
    fn read(&self, head: u64) -> Result<usize>;
}

/// Such a store as a queue: keys from `head` up to `tail` wait.
pub(super) struct Queue<S> {
    store: S,
    head: u64,
    tail: u64,
    item: Bytes,
    folder: PathBuf,
}

impl<S: KeyValue> Queue<S> {
    pub(super) fn open(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        Ok(Queue { store: S::open(folder)?, head: 0, tail: 0, item: noise(ITEM_BYTES), folder: folder.to_owned() })
    }
    fn commit(&mut self, appended: u64, removed: u64) -> Result<()> {
        let (head, tail) = (self.head + removed, self.tail + appended);
        self.store.commit(&self.item, self.tail..tail, self.head..head)?;
        (self.head, self.tail) = (head, tail);
        Ok(())
    }
}

impl<S: KeyValue> Rival for Queue<S> {
    fn fill(&mut self, items: u64) -> Result<()> {
        let mut left = items;
        while left > 0 {
            let now = left.min(FILL_ITEMS);
            self.commit(now, 0)?;
            left -= now;
        }
        Ok(())
    }
    fn turn(&mut self) -> Result<()> {
        let read = self.store.read(self.head)?;
        ensure!(read == AT_ONCE, "{read} items were read");
        self.commit(AT_ONCE as u64, AT_ONCE as u64)
    }
    fn disk_bytes(&self) -> Result<u64> {
        allocated(&self.folder)
    }
}

pub(super) struct Fjall {
    database: fjall::Database,
    items: fjall::Keyspace,
}

impl KeyValue for Fjall {
    fn open(folder: &Path) -> Result<Self> {
        let database = fjall::Database::builder(folder).open()?;
        let items = database.keyspace("items", KeyspaceCreateOptions::default)?;
        Ok(Fjall { database, items })
    }
    fn commit(&self, item: &[u8], new: Range<u64>, removed: Range<u64>) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        new.for_each(|key| batch.insert(&self.items, key.to_be_bytes(), item));
        removed.for_each(|key| batch.remove(&self.items, key.to_be_bytes()));
        Ok(batch.commit()?)
    }
    fn read(&self, head: u64) -> Result<usize> {
        let mut read = 0;
        for item in self.items.range(head.to_be_bytes()..).take(AT_ONCE) {
            black_box(item.value()?);
            read += 1;
        }
        Ok(read)
    }
}

pub(super) struct Redb {
    database: redb::Database,
}

impl KeyValue for Redb {
    fn open(folder: &Path) -> Result<Self> {
        Ok(Redb { database: redb::Database::create(folder.join("items.redb"))? })
    }
    fn commit(&self, item: &[u8], new: Range<u64>, removed: Range<u64>) -> Result<()> {
        let transaction = self.database.begin_write()?;
        let mut table = transaction.open_table(TABLE)?;
        for key in new {
            table.insert(key, item)?;
        }
        for key in removed {
            table.remove(key)?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }
    fn read(&self, head: u64) -> Result<usize> {
        let mut read = 0;
        for item in self.database.begin_read()?.open_table(TABLE)?.range(head..)?.take(AT_ONCE) {
            black_box(item?.1.value());
            read += 1;
        }
        Ok(read)
    }
}

pub(super) struct Sled {
    database: sled::Db,
}

impl KeyValue for Sled {
    fn open(folder: &Path) -> Result<Self> {
        Ok(Sled { database: sled::open(folder)? })
    }
    fn commit(&self, item: &[u8], new: Range<u64>, removed: Range<u64>) -> Result<()> {
        let mut batch = sled::Batch::default();
        new.for_each(|key| batch.insert(&key.to_be_bytes(), item));
        removed.for_each(|key| batch.remove(&key.to_be_bytes()));
        self.database.apply_batch(batch)?;
        self.database.flush()?;
        Ok(())
    }
    fn read(&self, head: u64) -> Result<usize> {
        let mut read = 0;
        for item in self.database.range(head.to_be_bytes()..).take(AT_ONCE) {
            black_box(item?.1);
            read += 1;
        }
        Ok(read)
    }
}
