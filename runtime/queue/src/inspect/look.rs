//! The files of a stopped store, opened to be read, and what a start would make of them.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use spillgate_model::wall;

use crate::core::Core;
use crate::core::extents::{Extents, Position};
use crate::core::lookup::ReadExtent;
use crate::core::recover::{Known, Source};
use crate::disk::{Disk, DiskFile};
use crate::format::{
    EXTENT_BYTES, Fault, HEAD_BYTES, HEAD_NAME, HEADER_BYTES, REDO_NAME, StoreHead, decode_header, file_bytes, file_name, file_number,
};
use crate::inspect::{Damage, InspectError};
use crate::record::ExtentHeader;
use crate::status::Recovered;
use crate::store::catalog::Catalog;
use crate::store::redo::{Overlay, Said};
use crate::store::{left_alone, missing_numbers, strays, wanted_under};

const EXTENT: u64 = EXTENT_BYTES as u64;

/// See the module.
pub(super) struct Look {
    pub(super) head: StoreHead,
    pub(super) files: BTreeMap<u32, (Arc<dyn DiskFile>, u64)>,
    pub(super) missing: Vec<u32>,
    pub(super) remarks: Vec<String>,
    per_file: u32,
    catalog: Catalog,
    /// What a start would write to its place first.
    redo: Overlay,
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
        let catalog = disk.open(HEAD_NAME).map(|file| Catalog::read(file, head.store)).unwrap_or_default();
        let opened = files.iter().map(|(number, (file, _))| (*number, file.clone())).collect();
        // Of a head that was lost nobody knows the limit: twice what is there, for what is missing.
        let is_known = (1..u64::MAX).contains(&head.disk_limit);
        let limit = if is_known { head.disk_limit } else { head.file_bytes.saturating_mul(2 * files.len() as u64 + 2) };
        let strays = strays(&opened, limit, &head, &catalog);
        files.retain(|number, _| !strays.contains(number));
        remarks.extend(left_alone(&strays));
        let missing = missing_numbers(&files.keys().copied().collect(), &head, &catalog);
        let per_file = u32::try_from(head.file_bytes / EXTENT).unwrap_or(u32::MAX);
        let redo = if names.iter().any(|name| name == REDO_NAME) {
            let file = disk.open(REDO_NAME).map_err(unreadable(REDO_NAME))?;
            let said = Said::read(file.as_ref(), head.store).map_err(unreadable(REDO_NAME))?;
            if said.is_damaged {
                remarks.push(format!("part of the file {REDO_NAME} is damaged: what it said may be missing in its place"));
            }
            said.by_extent()
        } else {
            Overlay::default()
        };
        Ok(Look { head, files, missing, remarks, per_file, catalog, redo })
    }

    /// Files that are shorter than they were, with their length and what it was.
    pub(super) fn cut(&self) -> Vec<(u32, u64, u64)> {
        let lengths = self.files.iter().map(|(number, (_, bytes))| (*number, *bytes, self.bytes_before(*number)));
        lengths.filter(|(_, bytes, before)| bytes < before).collect()
    }

    /// How long a file was at the last start, as far as is known.
    fn bytes_before(&self, number: u32) -> u64 {
        if self.head.disk_limit == u64::MAX { 0 } else { wanted_under(&self.head, self.head.disk_limit, number) }
    }

    /// The state that a start would find. Nothing is written.
    pub(super) fn recover(&self) -> Core {
        let mut extents = Extents::new(self.per_file, u64::MAX);
        for (number, (_, bytes)) in &self.files {
            extents.add_file(*number as usize, self.extents_in(*number, *bytes));
        }
        let wall = wall::milliseconds(SystemTime::now());
        let mut core = Core::new(self.head.store, extents, 0, wall);
        core.recover(self, Recovered::default(), wall);
        core
    }

    /// With those that were cut off, which read as zeros.
    fn extents_in(&self, number: u32, bytes: u64) -> u32 {
        u32::try_from(bytes.max(self.bytes_before(number)) / EXTENT).unwrap_or(u32::MAX).min(self.per_file)
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

    /// Fills `buffer` from an extent; with zeros, where its file was cut.
    fn read(&self, position: Position, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        self.read_place(position, offset, buffer)?;
        self.redo.lay_over(position, offset, buffer);
        Ok(())
    }

    fn read_place(&self, position: Position, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        let number = position / self.per_file;
        let (file, bytes) = self.files.get(&number).ok_or(io::ErrorKind::NotFound)?;
        let at = u64::from(position % self.per_file) * EXTENT + offset as u64;
        if *bytes >= self.bytes_before(number) {
            return file.read_at(buffer, at);
        }
        let there = usize::try_from(bytes.saturating_sub(at)).unwrap_or(usize::MAX).min(buffer.len());
        buffer[there..].fill(0);
        file.read_at(&mut buffer[..there], at)
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
        let mut content = vec![0; EXTENT_BYTES];
        self.read(position, 0, &mut content)?;
        Ok(content)
    }
}

impl Source for Look {
    fn read_part(&self, position: Position, offset: usize, buffer: &mut [u8]) -> io::Result<()> {
        self.read(position, offset, buffer)
    }
    fn known(&self, position: Position) -> Known {
        self.catalog.of(position)
    }
    fn catalogued(&self) -> Position {
        self.catalog.len()
    }
    fn complete_below(&self) -> u64 {
        self.catalog.complete_below
    }
    fn is_cut(&self, position: Position) -> bool {
        let number = position / self.per_file;
        let cut = |bytes: u64| bytes < self.bytes_before(number) && u64::from(position % self.per_file) >= bytes / EXTENT;
        self.files.get(&number).is_some_and(|(_, bytes)| cut(*bytes))
    }
    fn missing(&self) -> Vec<Range<Position>> {
        let first = |number: &u32| number.saturating_mul(self.per_file);
        self.missing.iter().map(|number| first(number)..first(number).saturating_add(self.per_file)).collect()
    }
    fn positions(&self) -> Vec<Position> {
        let in_file = |(number, (_, bytes)): (&u32, &(Arc<dyn DiskFile>, u64))| {
            let first = number * self.per_file;
            first..first + self.extents_in(*number, *bytes)
        };
        self.files.iter().flat_map(in_file).collect()
    }
}
