//! Options of compilations: two lists, of numbers and of values that are stored in pointers or behind them.

use core::ffi::c_void;

use orin_cuda_core::{Failure, Result};
use tegra_hcq::{Compiled, JitOptions};

use crate::abi::{In, Out};

/// The first number that is no option in CUDA 13.
const OPTIONS: u32 = 36;

/// A room for a log: its address, its size, and where the size that was used goes.
#[derive(Clone, Copy, Debug)]
struct Log {
    room: Out<u8>,
    size: usize,
    used: Out<*mut c_void>,
}

// SAFETY: `cuda.h` documents that the rooms of a link's logs stay valid until the link is destroyed, for any thread.
unsafe impl Send for Log {}
// SAFETY: as above; each call that writes them belongs to the program, which orders its calls.
unsafe impl Sync for Log {}

/// What the program has asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Jit {
    pub(crate) options: JitOptions,
    information: Option<Log>,
    errors: Option<Log>,
}

impl Jit {
    /// Reads the lists.
    pub(crate) fn read(count: u32, options: In<u32>, values: Out<*mut c_void>) -> Result<Self> {
        if count > OPTIONS {
            return Err(Failure::invalid(format!("{count} compiler options; there are {OPTIONS}")));
        }
        let options = options.list(count as usize, "the list of options")?;
        if count > 0 {
            values.need("the list of values")?;
        }
        let mut jit = Self::default();
        let mut logs = [(Out::none(), 0_usize, Out::none()); 2];
        for (at, option) in options.into_iter().enumerate() {
            let place = values.at(at);
            let value = place.read("a value")?;
            // A number is the value itself, in its low bits.
            let number = value.addr();
            // CAST: the interface stores unsigned ints.
            let small = number as u32;
            match option {
                0 => jit.options.max_registers = Some(small).filter(|registers| *registers > 0),
                // CU_JIT_WALL_TIME is written behind the call; zero is a time.
                2 => place.set(core::ptr::null_mut()),
                3 | 5 => logs[usize::from(option == 5)].0 = Out::of(value.cast::<u8>()),
                4 | 6 => {
                    let log = &mut logs[usize::from(option == 6)];
                    (log.1, log.2) = (small as usize, place);
                }
                7 if small <= 4 => jit.options.optimisation = Some(small),
                7 => return Err(Failure::invalid(format!("optimisation level {small}"))),
                11 => jit.options.debug = small != 0,
                12 => jit.options.verbose = small != 0,
                13 => jit.options.line_info = small != 0,
                _ if option < OPTIONS => {}
                _ => return Err(Failure::invalid(format!("there is no compiler option {option}"))),
            }
        }
        let log = |(room, size, used): (Out<u8>, usize, Out<*mut c_void>)| {
            (!room.is_null() && size > 0).then_some(Log { room, size, used })
        };
        (jit.information, jit.errors) = (log(logs[0]), log(logs[1]));
        Ok(jit)
    }

    /// Writes the logs of a compilation.
    pub(crate) fn report<'r>(&self, result: core::result::Result<&'r Compiled, &'r Failure>) {
        let (information, errors) = match result {
            Ok(compiled) => (compiled.log.as_str(), ""),
            Err(failure) => ("", failure.reason.as_str()),
        };
        for (log, text) in [(&self.information, information), (&self.errors, errors)] {
            let Some(log) = log else { continue };
            let text = &text.as_bytes()[..text.len().min(log.size - 1)];
            log.room.fill(text);
            log.room.at(text.len()).set(0);
            log.used.set(core::ptr::without_provenance_mut(text.len()));
        }
    }
}
