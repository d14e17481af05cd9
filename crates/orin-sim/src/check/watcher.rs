//! Registration of the objects of a program.

use std::sync::Arc;

use super::calls::{self, Trace};
use super::objects::{LaunchInfo, Object};
use super::program::Image;
use super::{Checker, Tools, init};
use crate::mmu::AddressSpace;

/// Content of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Data of kernels.
    Data,
    /// A loaded program: kernels execute and read it, and write its variables.
    Program,
    /// The functions that programs are linked with and their memory. Kernels use it only through these functions.
    Runtime,
    /// The heap of `malloc` in kernels.
    Heap,
    /// Commands, launch descriptors and other memory that kernels do not use.
    Driver,
}

/// A kernel argument that is a part of an object.
///
/// ```
/// use orin_sim::check::Pointer;
///
/// let second_half = Pointer { offset: 0x160, va: 0x1_0000_0800, bytes: 0x800 };
/// assert_eq!(second_half.va + second_half.bytes, 0x1_0000_1000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Offset of the argument in constant bank 0, in bytes.
    pub offset: u32,
    /// GPU address of the first byte.
    pub va: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Registers the objects of one address space with a checker.
#[derive(Clone, Debug)]
pub struct Watcher {
    checker: Checker,
    space: Arc<AddressSpace>,
}

impl Watcher {
    pub(super) fn new(checker: Checker, space: Arc<AddressSpace>) -> Self {
        checker.change(|objects| objects.manage(space.serial()));
        Self { checker, space }
    }

    /// The checker.
    pub fn checker(&self) -> &Checker {
        &self.checker
    }

    /// Registers an object of `bytes` bytes at `va`, in a block of `reserved` bytes whose rest is a red zone. With
    /// [`Tools::INITCHECK`] the bytes of [`What::Data`] and [`What::Heap`] count as unwritten.
    pub fn allocated(&self, va: u64, bytes: u64, reserved: u64, what: What, name: &str) {
        let tracked = matches!(what, What::Data | What::Heap)
            && self.checker.tools().contains(Tools::INITCHECK)
            && (1..=init::MOST_BYTES).contains(&bytes);
        let written = tracked.then(|| init::Written::poison(&self.space.view(), va, bytes)).flatten();
        self.insert(va, bytes, reserved, what, name, written);
    }

    /// As [`Watcher::allocated`] for data that the program has already written.
    pub fn imported(&self, va: u64, bytes: u64, reserved: u64, name: &str) {
        self.insert(va, bytes, reserved, What::Data, name, None);
    }

    fn insert(
        &self,
        va: u64,
        bytes: u64,
        reserved: u64,
        what: What,
        name: &str,
        written: Option<init::Written>,
    ) {
        let object = Object {
            va,
            bytes,
            reserved: reserved.max(bytes),
            what,
            name: name.to_owned(),
            named: false,
            allocated: self.trace(),
            freed: None,
            viewed: None,
            image: None,
            written: written.map(Arc::new),
        };
        self.checker.change(|objects| objects.insert(self.space.serial(), object));
    }

    /// The current calls; none without tools, because no finding would show them.
    fn trace(&self) -> Arc<Trace> {
        let tools = self.checker.tools();
        Arc::new(if tools.is_empty() { Trace::none() } else { Trace::capture() })
    }

    /// Names an object, by its address.
    pub fn named(&self, va: u64, name: &str) {
        self.checker.change(|objects| {
            if let Some(object) = objects.get_mut(self.space.serial(), va) {
                (object.name, object.named) = (name.to_owned(), true);
            }
        });
    }

    /// Registers the program loaded at `va` from the cubin `file`.
    pub fn loaded(&self, va: u64, file: &[u8]) {
        let image = Image::of(file).map(Arc::new);
        self.checker.change(|objects| {
            if let Some(object) = objects.get_mut(self.space.serial(), va) {
                object.image = image;
            }
        });
    }

    /// Marks an object as freed. Its memory stays in quarantine: an access is an error.
    pub fn freed(&self, va: u64) {
        let trace = self.trace();
        self.checker.change(|objects| {
            if let Some(object) = objects.get_mut(self.space.serial(), va) {
                object.freed = Some(trace);
            }
        });
    }

    /// Removes a freed object whose memory is reused.
    pub fn recycled(&self, va: u64) {
        self.checker.change(|objects| objects.remove(self.space.serial(), va));
    }

    /// Records that the CPU opens or closes a view of an object. While it is open, the GPU must not write the object.
    /// For [`Tools::RACECHECK`].
    pub fn viewed(&self, va: u64, viewed: bool) {
        if !self.checker.tools().contains(Tools::RACECHECK) {
            return;
        }
        let trace = viewed.then(|| self.trace());
        let found = self.checker.0.objects.write().get_mut(self.space.serial(), va).is_some_and(|object| {
            let changes = object.viewed.is_some() != viewed;
            object.viewed = trace;
            changes
        });
        if found {
            self.checker.count_view(viewed);
        }
    }

    /// Records a write of `bytes` bytes at `va` by the CPU. Needed only where the exact bytes matter: other CPU
    /// writes are recognised by the changed contents.
    pub fn written(&self, va: u64, bytes: u64) {
        if self.checker.tools().contains(Tools::INITCHECK)
            && let Some((written, start)) = self.checker.objects().written(self.space.serial(), va)
        {
            written.set(va - start, bytes);
        }
    }

    /// Registers a launch whose constant bank 0 is at `va` and whose blocks use `bytes` bytes of shared memory; its
    /// descriptor rounds the number up.
    ///
    /// `pointers` are the arguments that are parts of objects. A kernel that gets only parts of an object may access
    /// only them. Findings about the launch show the calls of [`set_calls`](super::set_calls).
    pub fn launch(&self, va: u64, bytes: u32, pointers: Vec<Pointer>) {
        self.checker.0.objects.write().launch(
            self.space.serial(),
            va,
            LaunchInfo { shared_bytes: bytes, pointers, calls: calls::given() },
        );
    }

    /// Removes all objects of the address space when the device is closed.
    pub fn closed(&self) {
        self.checker.change(|objects| objects.close(self.space.serial()));
    }
}
