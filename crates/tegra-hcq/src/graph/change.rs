//! Changes of a built graph, from its next replay on.

use core::ops::Range;

use super::{Graph, Node, NodeId, keep};
use crate::args::Arg;
use crate::error::{Error, RangeError, Result};
use crate::heap::Handle;
use crate::launch::record::{self, Parameters};
use crate::launch::shape::Shape;
use crate::limits::Dim3;
use crate::memory::{Pod, Slice, SliceMut};
use crate::shared::Shared;
use crate::transfer;

impl Node {
    /// Replaces an argument; returns its place in the record and the buffer that it referred to.
    fn set_argument(
        &mut self,
        device: &Shared,
        index: usize,
        argument: &Arg<'_>,
    ) -> Result<(Range<usize>, Option<Handle>)> {
        let params = &self.kernel.code().params;
        let Some(param) = params.get(index).copied() else {
            return Err(Error::Arguments {
                kernel: self.kernel.name().to_owned(),
                reason: format!("there is no argument {index}, only {}", params.len()),
            });
        };
        if record::check_argument(device.heap().id(), &self.kernel, index, param.size, argument)? {
            return Err(Error::OtherDevice(record::name_of(&self.kernel, index)));
        }
        let place = param.offset..param.offset + param.size;
        argument.write_to(&mut self.bank[place.clone()]);
        self.parts[index] = argument.part();
        Ok((place, core::mem::replace(&mut self.buffers[index], keep(argument))))
    }

    /// Whether the launch already has this argument.
    fn has_argument(&self, index: usize, argument: &Arg<'_>) -> bool {
        let param = self.kernel.code().params[index];
        let same_memory = match (argument, &self.buffers[index]) {
            (Arg::Buffer(new), Some(old)) => core::ptr::eq(new.handle().memory(), old.memory()),
            (Arg::Buffer(_), None) | (_, Some(_)) => false,
            (_, None) => true,
        };
        // A slice of another length may begin at the same address.
        same_memory
            && self.parts[index] == argument.part()
            && is_stored(argument, &self.bank[param.offset..param.offset + param.size])
    }

    fn set_shape(&mut self, grid: Dim3, block: Dim3) -> Result<()> {
        let dynamic = self.shape.shared.dynamic_bytes;
        let priority = self.shape.priority;
        self.shape = Shape { priority, ..self.kernel.code().shape(grid, block, dynamic)? };
        record::put_shape(self.kernel.code().qmd.chip, &mut self.bank, &self.shape);
        Ok(())
    }
}

/// Whether the value equals the bytes of a parameter block.
fn is_stored(argument: &Arg<'_>, bytes: &[u8]) -> bool {
    if let Arg::Bytes(given) = argument {
        return *given == bytes;
    }
    let mut given = [0; 8];
    let given = &mut given[..argument.size()];
    argument.write_to(given);
    given == bytes
}

impl Graph {
    /// Replaces one argument of a launch, from the next replay on. [`Graph::set_launch`] is the safe alternative.
    ///
    /// # Errors
    ///
    /// [`Error::Arguments`] if there is no such argument or its size differs. [`Error::Range`] if the step belongs to
    /// another graph. [`Error::OtherDevice`].
    ///
    /// # Safety
    ///
    /// As for [`GraphBuilder::launch`](super::GraphBuilder::launch) with the new argument.
    pub unsafe fn set_argument<'a>(
        &mut self,
        node: NodeId,
        index: usize,
        value: impl Into<Arg<'a>>,
    ) -> Result<()> {
        self.check_node(node)?;
        self.replace_argument(node, index, &value.into())
    }

    fn replace_argument(&mut self, node: NodeId, index: usize, value: &Arg<'_>) -> Result<()> {
        let (place, old) = self.nodes[node.index].set_argument(&self.device, index, value)?;
        if let Arg::Buffer(buffer) = value {
            self.kept.add(buffer.handle());
        }
        if let Some(old) = old {
            self.kept.remove(&old);
        }
        for instance in &mut self.instances {
            instance.patch(node.index, &place);
        }
        Ok(())
    }

    /// Replaces grid and block of a launch, from the next replay on. [`Graph::set_launch`] is the safe alternative.
    ///
    /// # Errors
    ///
    /// [`Error::Launch`] if they do not fit the kernel or the chip. [`Error::Range`] if the step belongs to another
    /// graph.
    ///
    /// # Safety
    ///
    /// As for [`GraphBuilder::launch`](super::GraphBuilder::launch) with the new sizes.
    pub unsafe fn set_size(
        &mut self,
        node: NodeId,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
    ) -> Result<()> {
        self.check_node(node)?;
        self.nodes[node.index].set_shape(grid.into(), block.into())?;
        self.launches = None;
        self.soil(node);
        Ok(())
    }

    /// Replaces sizes and arguments of a launch, where they differ. Changes nothing if one of them does not fit.
    pub(crate) fn change_launch(
        &mut self,
        node: NodeId,
        grid: Dim3,
        block: Dim3,
        arguments: &[Arg<'_>],
    ) -> Result<()> {
        self.check_node(node)?;
        let changed = &mut self.nodes[node.index];
        record::check_own_arguments(self.device.heap().id(), &changed.kernel, arguments)?;
        if (grid, block) != (changed.shape.grid, changed.shape.block) {
            changed.set_shape(grid, block)?;
            self.launches = None;
            self.soil(node);
        }
        for (index, argument) in arguments.iter().enumerate() {
            if !self.nodes[node.index].has_argument(index, argument) {
                self.replace_argument(node, index, argument)?;
            }
        }
        Ok(())
    }

    /// Replaces source and target of a copy, from the next replay on.
    ///
    /// # Errors
    ///
    /// As [`GraphBuilder::copy`](super::GraphBuilder::copy). [`Error::Range`] if the step belongs to another graph or
    /// is not a copy.
    pub fn set_copy<'s, 't, T: Pod>(
        &mut self,
        node: NodeId,
        source: impl Into<Slice<'s, T>>,
        target: impl Into<SliceMut<'t, T>>,
    ) -> Result<()> {
        let (source, target) = (source.into(), target.into());
        self.check_node(node)?;
        let step = transfer::copy(&self.device, &source, &target)?;
        let (grid, block) = (step.grid.into(), transfer::BLOCK.into());
        let replaced = &mut self.nodes[node.index];
        // All copy kernels have the same parameters, so their records have the same size.
        if !replaced.kernel.same_program(&step.kernel) || !replaced.kernel.name().starts_with("copy_") {
            return Err(RangeError::NotACopy.into());
        }
        let parameters = Parameters::List(&step.arguments);
        let mut fresh = Node::new(&self.device, &step.kernel, grid, block, 0, parameters)?;
        fresh.buffers.iter().flatten().for_each(|handle| self.kept.add(handle));
        replaced.buffers.iter().flatten().for_each(|handle| self.kept.remove(handle));
        fresh.shape.priority = replaced.shape.priority;
        *replaced = Node { offset: replaced.offset, begin: replaced.begin, ..fresh };
        self.soil(node);
        Ok(())
    }

    fn check_node(&self, node: NodeId) -> Result<()> {
        if node.graph == self.number {
            return Ok(());
        }
        Err(RangeError::OtherGraph.into())
    }

    /// Marks the record of a step for rewriting in every instance.
    fn soil(&mut self, node: NodeId) {
        for instance in &mut self.instances {
            instance.soil(node.index);
        }
    }
}
