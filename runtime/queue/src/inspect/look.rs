//! The files of a stopped store, opened to be read, and what a start would make of them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::core::Core;
use crate::core::extents::{Extents, Position};
use crate::core::lookup::ReadExtent;
use crate::core::recover::Source;
use crate::disk::{Disk, DiskFile};
use crate::format::{
    EXTENT_BYTES, Fault, HEAD_BYTES, HEAD_NAME, HEADER_BYTES, StoreHead, decode_header, file_bytes, file_name, file_number,
};
use crate::inspect::{Damage, InspectError};
use crate::record::ExtentHeader;
use crate::status::Recovered;

const EXTENT: u64 = EXTENT_BYTES as u64;

/// See the module.
pub(super) struct Look {
    pub(super) head: StoreHead,
    pub(super) files: BTreeMap<u32, (Arc<dyn DiskFile>, u64)>,
    pub(super) missing: Vec<String>,
    pub(super) remarks: Vec<String>,
    per_file: u32,
}

impl Look {
    pub(super) fn open(disk: &dyn Disk) -> Result<Look, InspectError> {
        let unreadable = |file: &str| {
            let file = file.to_owned();
            move |source| InspectError::Unreadable { file, source }
        };
        let names = disk.list().map_err(unreadable("the folder"))?;
        let (mut files, mut remarks) = (BTreeMap::new(), Vec::new());
        for number in names.iter().filter_map(|name| file_number(name)) {
            let name = file_name(number);
            let file = disk.open(&name).map_err(unreadable(&name))?;
            let bytes = file.bytes().map_err(unreadable(&name))?;
            files.insert(number, (file, bytes));
        }
        if files.is_empty() {
            return Err(InspectError::NoStore);
        }
        let longest = files.values().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let head = read_head(disk).or_else(|what| {
            // As a start would have it.
            remarks.push(format!("the file {HEAD_NAME} cannot be used: {what}"));
            let store = files.values().find_map(|(file, bytes)| first_store(file.as_ref(), *bytes));
            store
                .map(|store| StoreHead { store, file_bytes: file_bytes(longest.saturating_mul(32)), disk_limit: u64::MAX, next_serial: 0 })
                .ok_or(InspectError::NoStore)
        })?;
        let last = files.keys().next_back().copied().unwrap_or(0);
        let missing = (0..last).filter(|number| !files.contains_key(number)).map(file_name).collect();
        let per_file = u32::try_from(head.file_bytes / EXTENT).unwrap_or(u32::MAX);
        Ok(Look { head, files, missing, remarks, per_file })
    }

    /// The state that a start would find. Nothing is written.
    pub(super) fn recover(&self) -> Core {
        let mut extents = Extents::new(self.per_file, u64::MAX);
        for (number, (_, bytes)) in &self.files {
            extents.add_file(*number as usize, self.extents_in(*bytes));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let mut core = Core::new(self.head.store, extents, 0, wall);
        core.recover(self, Recovered::default(), wall);
        core
    }

    fn extents_in(&self, bytes: u64) -> u32 {
        u32::try_from(bytes / EXTENT).unwrap_or(u32::MAX).min(self.per_file)
    }

    /// The header of an extent: `None` if nothing was written there.
    pub(super) fn header(&self, position: Position) -> Result<Option<ExtentHeader>, Damage> {
        let mut sector = [0; HEADER_BYTES];
        if let Err(error) = self.read_part(position, 0, &mut sector) {
            return Err(self.damage(position, Some(0), format!("its header cannot be read: {error}")));
        }
        match decode_header(&sector) {
            Ok(header) if header.store != self.head.store => Err(self.damage(position, Some(0), "it belongs to another store".to_owned())),
            Ok(header) if header.position != position => Err(self.damage(position, Some(0), "it belongs to another place".to_owned())),
            Ok(header) => Ok(Some(header)),
            Err(Fault::Blank) => Ok(None),
            Err(fault) => Err(self.damage(position, Some(0), format!("its header cannot be used: {fault}"))),
        }
    }

    pub(super) fn damage(&self, position: Position, offset: Option<usize>, reason: String) -> Damage {
        Damage {
            file: file_name(position / self.per_file),
            extent: Some(position % self.per_file),
            offset: offset.and_then(|offset| u32::try_from(offset).ok()),
            reason,
        }
    }

    fn file(&self, position: Position) -> io::Result<(&dyn DiskFile, u64)> {
        let found = self.files.get(&(position / self.per_file)).ok_or(io::ErrorKind::NotFound)?;
        Ok((found.0.as_ref(), u64::from(position % self.per_file) * EXTENT))
    }
}

fn read_head(disk: &dyn Disk) -> Result<StoreHead, String> {
    let file = disk.open(HEAD_NAME).map_err(|error| error.to_string())?;
    let mut bytes = vec![0; HEAD_BYTES];
    file.read_at(&mut bytes, 0).map_err(|error| error.to_string())?;
    StoreHead::decode(&bytes).map_err(|fault| fault.to_string())
}

fn first_store(file: &dyn DiskFile, bytes: u64) -> Option<u64> {
    let mut sector = [0; HEADER_BYTES];
    (0..bytes / EXTENT).find_map(|index| {
        file.read_at(&mut sector, index * EXTENT).ok()?;
        decode_header(&sector).ok().map(|header| header.store)
    })
}

impl ReadExtent for Look {
    fn read_extent(&self, position: Position) -> io::Result<Vec<u8>> {
        let (file, at) = self.file(position)?;
        let mut content = vec![0; EXTENT_BYTES];
        file.read_at(&mut content, at)?;
        Ok(content)
    }
}

impl Source for Look {
    fn read_part(&self, position: Position, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let (file, at) = self.file(position)?;
        file.read_at(buffer, at + offset as u64)
    }
    fn positions(&self) -> Vec<Position> {
        let in_file = |(number, (_, bytes)): (&u32, &(Arc<dyn DiskFile>, u64))| {
            let first = number * self.per_file;
            first..first + self.extents_in(*bytes)
        };
        self.files.iter().flat_map(in_file).collect()
    }
}
