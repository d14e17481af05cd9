//! Tables of texture headers and samplers, which the queues of a device set with their first work after the first
//! texture.

use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::collections::VecDeque;

use ampere_cmd::texture::{self, WORDS};
use gpu_hal::volatile;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::heap::{Handle, Mapped};

/// Headers of a table; number 0 is none.
const HEADERS: u32 = 1 << 16;
/// Samplers of a table.
const SAMPLERS: u32 = texture::MAX_SAMPLERS;

/// What a queue sets: address and last number of both tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) headers: (u64, u32),
    pub(crate) samplers: (u64, u32),
}

/// A number of a header that is free again when its memory is.
#[derive(Debug)]
struct Retired {
    header: u32,
    memory: Option<Handle>,
}

/// The tables.
struct Tables {
    headers: Mapped,
    samplers: Mapped,
    /// Headers that were never used begin here.
    fresh: u32,
    retired: VecDeque<Retired>,
    /// The samplers with the number of their textures.
    known: Vec<([u32; WORDS], usize)>,
}

/// The textures of a device.
#[derive(Default)]
pub(crate) struct Textures {
    tables: Mutex<Option<Tables>>,
    exist: AtomicBool,
}

impl Tables {
    fn new(allocate: impl Fn(u64) -> Result<Mapped>) -> Result<Self> {
        let table = |count: u32| allocate(u64::from(count) * texture::BYTES);
        let (headers, samplers) = (table(HEADERS)?, table(SAMPLERS)?);
        // SAFETY: fresh memory of as many bytes, which the GPU does not use yet.
        unsafe { volatile::fill(headers.cpu(), 0, HEADERS as usize * texture::BYTES as usize) };
        Ok(Self { headers, samplers, fresh: 1, retired: VecDeque::new(), known: Vec::new() })
    }

    /// A free number of a header.
    fn take(&mut self) -> Result<u32> {
        let reusable = self.retired.iter().position(|retired| match &retired.memory {
            Some(memory) => memory.heap().has_passed(memory.uses()),
            None => self.fresh == HEADERS,
        });
        if let Some(retired) = reusable.and_then(|at| self.retired.remove(at)) {
            return Ok(retired.header);
        }
        if self.fresh == HEADERS {
            return Err(Error::TooManyTextures(HEADERS - 1));
        }
        self.fresh += 1;
        Ok(self.fresh - 1)
    }

    /// The number of a sampler, entered if there is no equal one.
    fn sampler(&mut self, words: [u32; WORDS]) -> Result<u32> {
        let equal = self.known.iter().position(|(known, count)| *count > 0 && *known == words);
        let unused = || self.known.iter().position(|(_, count)| *count == 0);
        let at = match equal.or_else(unused) {
            Some(at) => at,
            None if self.known.len() < SAMPLERS as usize => {
                self.known.push((words, 0));
                self.known.len() - 1
            }
            None => return Err(Error::TooManyTextures(SAMPLERS)),
        };
        let (known, count) = &mut self.known[at];
        *known = words;
        *count += 1;
        // CAST: below the number of samplers.
        let number = at as u32;
        write(&self.samplers, number, &words);
        Ok(number)
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
            headers: (tables.headers.gpu_va(), HEADERS - 1),
            samplers: (tables.samplers.gpu_va(), SAMPLERS - 1),
        })
    }

    /// Enters a header and a sampler. Returns their numbers, and the memory of the headers. `allocate` makes the tables
    /// for the first one.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyTextures`]; what `allocate` returns.
    pub(crate) fn enter(
        &self,
        allocate: impl Fn(u64) -> Result<Mapped>,
        header: &[u32; WORDS],
        sampler: [u32; WORDS],
    ) -> Result<(u32, u32, Handle)> {
        let mut tables = self.tables.lock();
        let tables = match &mut *tables {
            Some(tables) => tables,
            none => none.insert(Tables::new(allocate)?),
        };
        let number = tables.take()?;
        let sampler = tables.sampler(sampler).inspect_err(|_| {
            tables.retired.push_back(Retired { header: number, memory: None });
        })?;
        write(&tables.headers, number, header);
        self.exist.store(true, Ordering::Release);
        let memory: &Handle = &tables.headers;
        Ok((number, sampler, memory.clone()))
    }

    /// Gives the numbers back; that of the header when the work with `memory` has ended.
    pub(crate) fn leave(&self, header: u32, sampler: u32, memory: Option<Handle>) {
        let Some(tables) = &mut *self.tables.lock() else { return };
        tables.retired.push_back(Retired { header, memory });
        if let Some((_, count)) = tables.known.get_mut(sampler as usize) {
            *count -= 1;
        }
    }
}

impl fmt::Debug for Textures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Textures").field("exist", &self.exist).finish_non_exhaustive()
    }
}
