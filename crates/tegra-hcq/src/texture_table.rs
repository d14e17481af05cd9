//! Tables of texture headers and samplers, which the queues of a device set with their first work after the first
//! texture. A sampler has the number of its header, as launch descriptors say (SAMPLER_INDEX). With samplers of their
//! own numbers, lookups whose handle is in a uniform register take sampler 0 on an H100, whatever the handle says.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::collections::VecDeque;

use ampere_cmd::texture::{self, WORDS};
use gpu_hal::volatile;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::heap::{Handle, Mapped};

/// Entries of a table; number 0 is none.
const ENTRIES: u32 = 1 << 16;

/// What a queue sets: addresses and last number of both tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) headers: u64,
    pub(crate) samplers: u64,
    pub(crate) last: u32,
}

/// A number that is free again when the memory of its texture is.
#[derive(Debug)]
struct Retired {
    number: u32,
    memory: Option<Handle>,
}

/// The tables.
struct Tables {
    headers: Mapped,
    samplers: Mapped,
    /// Entries that were never used begin here.
    fresh: u32,
    retired: VecDeque<Retired>,
}

/// The textures of a device.
#[derive(Default)]
pub(crate) struct Textures {
    tables: Mutex<Option<Tables>>,
    exist: AtomicBool,
}

impl Tables {
    fn new(allocate: impl Fn(u64) -> Result<Mapped>) -> Result<Self> {
        let bytes = u64::from(ENTRIES) * texture::BYTES;
        let (headers, samplers) = (allocate(bytes)?, allocate(bytes)?);
        for table in [&headers, &samplers] {
            // SAFETY: fresh memory of as many bytes, which the GPU does not use yet.
            unsafe { volatile::fill(table.cpu(), 0, bytes as usize) };
        }
        Ok(Self { headers, samplers, fresh: 1, retired: VecDeque::new() })
    }

    /// A free number.
    fn take(&mut self) -> Result<u32> {
        let reusable = self.retired.iter().position(|retired| match &retired.memory {
            Some(memory) => memory.heap().has_passed(memory.uses()),
            None => self.fresh == ENTRIES,
        });
        if let Some(retired) = reusable.and_then(|at| self.retired.remove(at)) {
            return Ok(retired.number);
        }
        if self.fresh == ENTRIES {
            return Err(Error::TooManyTextures(ENTRIES - 1));
        }
        self.fresh += 1;
        Ok(self.fresh - 1)
    }
}

/// Writes an entry of a table.
fn write(table: &Mapped, number: u32, words: &[u32; WORDS]) {
    let bytes = bytemuck::bytes_of(words);
    // SAFETY: the number is below that of the table's entries, so the entry is inside. A kernel that reads the entry
    // has a handle of it only after this.
    unsafe { volatile::store(table.cpu().add(number as usize * texture::BYTES as usize), bytes) };
    fence(Ordering::Release);
}

impl Textures {
    /// Whether there has been a texture.
    #[inline]
    pub(crate) fn exist(&self) -> bool {
        self.exist.load(Ordering::Acquire)
    }

    /// What queues set; `None` without textures.
    pub(crate) fn places(&self) -> Option<Places> {
        let tables = self.tables.lock();
        let tables = tables.as_ref()?;
        Some(Places {
            headers: tables.headers.gpu_va(),
            samplers: tables.samplers.gpu_va(),
            last: ENTRIES - 1,
        })
    }

    /// Enters a header and its sampler. Returns their number, and the memory of the headers. `allocate` makes the
    /// tables for the first one.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyTextures`]; what `allocate` returns.
    pub(crate) fn enter(
        &self,
        allocate: impl Fn(u64) -> Result<Mapped>,
        header: &[u32; WORDS],
        sampler: &[u32; WORDS],
    ) -> Result<(u32, Handle)> {
        let mut tables = self.tables.lock();
        let tables = match &mut *tables {
            Some(tables) => tables,
            none => none.insert(Tables::new(allocate)?),
        };
        let number = tables.take()?;
        write(&tables.samplers, number, sampler);
        write(&tables.headers, number, header);
        self.exist.store(true, Ordering::Release);
        let memory: &Handle = &tables.headers;
        Ok((number, memory.clone()))
    }

    /// Gives a number back when the work with `memory` has ended.
    pub(crate) fn leave(&self, number: u32, memory: Option<Handle>) {
        if let Some(tables) = &mut *self.tables.lock() {
            tables.retired.push_back(Retired { number, memory });
        }
    }
}

impl fmt::Debug for Textures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Textures").field("exist", &self.exist).finish_non_exhaustive()
    }
}
