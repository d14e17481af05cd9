//! The table of clear values that need no memory traffic (`common/gr/zbc.c`, `ioctl_ctrl.c`).
//!
//! Each kind of value has a table. Entry 0 means "not cleared" and is never allocated. An entry counts how often its
//! value has been set. The driver's initial entries are unknown, so the tables start empty; their length is an
//! assumption.

use gpu_log::ChannelLine;
use nvgpu_sys::ctrl::{
    GpuFlags, ZBC_TYPE_COLOR, ZBC_TYPE_DEPTH, ZBC_TYPE_INVALID, ZBC_TYPE_STENCIL, ZbcQueryTable, ZbcSetTable,
    code,
};
use rustix::io::Errno;

use super::Kernel;
use super::argument::Argument;
use super::log::Log;

/// Number of entries of each table, without entry 0.
const ENTRIES: usize = 15;

/// One entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Value {
    color_ds: [u32; 4],
    color_l2: [u32; 4],
    /// Depth or stencil.
    plain: u32,
    format: u32,
}

/// The table of one kind.
#[derive(Debug, Default)]
struct Table {
    entries: Vec<(Value, u32)>,
}

impl Table {
    fn set(&mut self, value: Value) -> Result<(), Errno> {
        if let Some((_, users)) = self.entries.iter_mut().find(|(known, _)| *known == value) {
            *users += 1;
        } else if self.entries.len() < ENTRIES {
            self.entries.push((value, 1));
        } else {
            return Err(Errno::NOMEM);
        }
        Ok(())
    }
}

/// All tables of the GPU.
#[derive(Debug, Default)]
pub(super) struct ClearValues {
    color: Table,
    depth: Table,
    stencil: Table,
}

impl ClearValues {
    fn set(&mut self, args: &ZbcSetTable) -> Result<(), Errno> {
        let plain = |plain| Value { plain, format: args.format, ..Value::default() };
        match args.kind {
            ZBC_TYPE_COLOR => self.color.set(Value {
                color_ds: args.color_ds,
                color_l2: args.color_l2,
                plain: 0,
                format: args.format,
            }),
            ZBC_TYPE_DEPTH => self.depth.set(plain(args.depth)),
            ZBC_TYPE_STENCIL => self.stencil.set(plain(args.stencil)),
            _ => Err(Errno::INVAL),
        }
    }

    fn query(&self, log: &Log, args: &mut ZbcQueryTable) -> Result<(), Errno> {
        let function = "nvgpu_gr_zbc_query_table";
        let (name, table) = match args.kind {
            ZBC_TYPE_INVALID => {
                // CAST: 15.
                args.index_size = ENTRIES as u32;
                return Ok(());
            }
            ZBC_TYPE_COLOR => ("color", &self.color),
            ZBC_TYPE_DEPTH => ("depth", &self.depth),
            ZBC_TYPE_STENCIL => ("stencil", &self.stencil),
            _ => {
                log.error(function, ChannelLine::ZbcType);
                return Err(Errno::INVAL);
            }
        };
        let index = args.index_size as usize;
        if !(1..=ENTRIES).contains(&index) {
            log.error(function, ChannelLine::ZbcIndex { table: name.to_owned(), index });
            return Err(Errno::INVAL);
        }
        let (value, users) = table.entries.get(index - 1).copied().unwrap_or_default();
        match args.kind {
            ZBC_TYPE_COLOR => (args.color_ds, args.color_l2) = (value.color_ds, value.color_l2),
            ZBC_TYPE_DEPTH => args.depth = value.plain,
            _ => args.stencil = value.plain,
        }
        (args.format, args.ref_cnt) = (value.format, users);
        Ok(())
    }
}

impl Kernel {
    /// ZBC_SET_TABLE and ZBC_QUERY_TABLE.
    pub(super) fn clear_values(&self, argument: &mut Argument<'_>) -> Result<(), Errno> {
        let flags = GpuFlags::from_bits_retain(self.config.characteristics.flags);
        if !flags.contains(GpuFlags::SUPPORT_ZBC) {
            return Err(Errno::NODEV);
        }
        let mut state = self.state.lock();
        if argument.code() == code::ZBC_SET_TABLE {
            argument.call(|args: &mut ZbcSetTable| {
                if ![ZBC_TYPE_COLOR, ZBC_TYPE_DEPTH, ZBC_TYPE_STENCIL].contains(&args.kind) {
                    return Err(Errno::INVAL);
                }
                if state.quiesced { Err(Errno::NODEV) } else { state.clear_values.set(args) }
            })
        } else {
            argument.call(|args: &mut ZbcQueryTable| state.clear_values.query(&self.log, args))
        }
    }
}
