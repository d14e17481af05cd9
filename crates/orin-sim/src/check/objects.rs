//! The registered objects of programs, by address space and address.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::calls::Trace;
use super::finding::{Finding, Kind, NearObject, Place};
use super::init::Written;
use super::program::Image;
use super::watcher::{Pointer, What};

/// An object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) va: u64,
    /// Size in bytes.
    pub(super) bytes: u64,
    /// Size with its red zone.
    pub(super) reserved: u64,
    pub(super) what: What,
    pub(super) name: String,
    /// Whether the user gave the name.
    pub(super) named: bool,
    pub(super) allocated: Arc<Trace>,
    /// Where it was freed; its memory is in quarantine.
    pub(super) freed: Option<Arc<Trace>>,
    /// Where the CPU's view of it was opened.
    pub(super) viewed: Option<Arc<Trace>>,
    /// The image of a program.
    pub(super) image: Option<Arc<Image>>,
    /// Bytes that have been written, if they are tracked.
    pub(super) written: Option<Arc<Written>>,
}

/// A range that kernels may access.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Whether stores are allowed.
    pub(super) writable: bool,
    /// First address of `written`.
    pub(super) base: u64,
    pub(super) written: Option<Arc<Written>>,
}

/// Data of a launch, as registered by the program.
#[derive(Clone, Debug, Default)]
pub(super) struct LaunchInfo {
    /// Shared memory of a block in bytes.
    pub(super) shared_bytes: u32,
    /// Arguments that are parts of objects.
    pub(super) pointers: Vec<Pointer>,
    /// The calls of the launch, if the program's language gave them.
    pub(super) calls: Option<Arc<[String]>>,
}

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Objects by address space and address.
    spaces: HashMap<u64, BTreeMap<u64, Object>>,
    /// Launches by address space and address of constant bank 0.
    launches: HashMap<(u64, u64), LaunchInfo>,
}

/// Result of the look-up of an address.
#[derive(Debug)]
pub(super) enum Found {
    /// An accessible range.
    Extent(Extent),
    /// An error.
    Wrong(Kind),
}

impl Object {
    fn place(&self, va: u64) -> Place {
        match va.checked_sub(self.va) {
            None => Place::Before(self.va - va),
            Some(offset) if offset < self.bytes => Place::Inside(offset),
            Some(offset) => Place::Past(offset - self.bytes),
        }
    }

    /// Describes the object for a finding about an access at `va`.
    fn near(&self, va: u64) -> NearObject {
        NearObject {
            name: self.name.clone(),
            va: self.va,
            bytes: self.bytes,
            place: self.place(va),
            argument: None,
            allocated: self.allocated.calls(),
            freed: self.freed.as_deref().map_or_else(Vec::new, Trace::calls),
            viewed: self.viewed.as_deref().map_or_else(Vec::new, Trace::calls),
        }
    }

    /// The range around `va` that kernels may access.
    fn extent(&self, va: u64, write: bool) -> Found {
        let offset = va - self.va;
        if self.freed.is_some() {
            return Found::Wrong(Kind::UseAfterFree);
        }
        match self.what {
            What::Driver => Found::Wrong(Kind::DriverMemory),
            What::Data | What::Runtime | What::Heap if offset >= self.bytes => {
                Found::Wrong(Kind::OutOfBounds)
            }
            What::Data | What::Runtime | What::Heap => Found::Extent(Extent {
                start: self.va,
                end: self.va + self.bytes,
                writable: true,
                base: self.va,
                written: self.written.clone(),
            }),
            What::Program => {
                let variables = self.image.as_ref().map_or(&[][..], |image| &image.variables);
                let after = variables.partition_point(|variable| variable.offset <= offset);
                let before = after.checked_sub(1).map(|at| &variables[at]);
                let (start, end, writable) = match before {
                    Some(variable) if offset < variable.offset + variable.bytes => {
                        (variable.offset, variable.offset + variable.bytes, true)
                    }
                    // Variables are the last part of an image.
                    Some(_) => return Found::Wrong(Kind::OutOfBounds),
                    None if write => return Found::Wrong(Kind::DriverMemory),
                    None => (0, variables.first().map_or(self.bytes, |first| first.offset), false),
                };
                let [start, end] = [start, end].map(|offset| self.va + offset);
                Found::Extent(Extent { start, end, writable, base: self.va, written: None })
            }
        }
    }
}

/// An object that was not freed.
pub(super) struct Leak {
    va: u64,
    near: NearObject,
}

impl Leak {
    pub(super) fn key(&self) -> u64 {
        self.va
    }

    pub(super) fn finding(&self) -> Finding {
        let NearObject { name, bytes, .. } = &self.near;
        let message = format!("{name} ({bytes} bytes) is alive at the end");
        Finding { object: Some(self.near.clone()), ..Finding::new(Kind::Leak, message) }
    }
}

impl Objects {
    /// Starts tracking an address space.
    pub(super) fn manage(&mut self, space: u64) {
        self.spaces.entry(space).or_default();
    }

    /// Whether the objects of an address space are known.
    pub(super) fn is_managed(&self, space: u64) -> bool {
        self.spaces.contains_key(&space)
    }

    pub(super) fn insert(&mut self, space: u64, object: Object) {
        self.spaces.entry(space).or_default().insert(object.va, object);
    }

    pub(super) fn remove(&mut self, space: u64, va: u64) {
        if let Some(objects) = self.spaces.get_mut(&space) {
            objects.remove(&va);
        }
    }

    pub(super) fn close(&mut self, space: u64) {
        self.spaces.remove(&space);
        self.launches.retain(|(other, _), _| *other != space);
    }

    pub(super) fn launch(&mut self, space: u64, bank: u64, launch: LaunchInfo) {
        self.launches.insert((space, bank), launch);
    }

    /// The registered data of the launch with this constant bank 0.
    pub(super) fn launched(&self, space: u64, bank: u64) -> Option<&LaunchInfo> {
        self.launches.get(&(space, bank))
    }

    /// First byte and end of the live data object that contains `va`.
    pub(super) fn data_at(&self, space: u64, va: u64) -> Option<(u64, u64)> {
        let object =
            self.at(space, va).filter(|object| object.what == What::Data && object.freed.is_none())?;
        Some((object.va, object.va + object.bytes))
    }

    pub(super) fn get_mut(&mut self, space: u64, va: u64) -> Option<&mut Object> {
        self.spaces.get_mut(&space)?.get_mut(&va)
    }

    /// The object whose block contains `va`.
    fn at(&self, space: u64, va: u64) -> Option<&Object> {
        let (_, object) = self.spaces.get(&space)?.range(..=va).next_back()?;
        (va - object.va < object.reserved).then_some(object)
    }

    /// The first byte of `[va, va + bytes)` in the last object there that the CPU has a view of.
    pub(super) fn viewed(&self, space: u64, va: u64, bytes: u64) -> Option<u64> {
        let before = self.spaces.get(&space)?.range(..va.saturating_add(bytes)).rev();
        let mut inside =
            before.map(|(_, object)| object).take_while(|object| va < object.va + object.reserved);
        let viewed = inside.find(|object| object.viewed.is_some() && va < object.va + object.bytes)?;
        Some(viewed.va.max(va))
    }

    /// Returns what a kernel may access at `va`, or the error.
    pub(super) fn find(&self, space: u64, va: u64, write: bool) -> Found {
        match self.at(space, va) {
            Some(object) => object.extent(va, write),
            None => Found::Wrong(Kind::OutOfBounds),
        }
    }

    /// For the copy engine and descriptors: one past the last byte of the object at `va`, or the error.
    pub(super) fn find_any(&self, space: u64, va: u64) -> Result<u64, Kind> {
        match self.at(space, va) {
            Some(object) if object.freed.is_some() => Err(Kind::UseAfterFree),
            Some(object) if va - object.va < object.bytes => Ok(object.va + object.bytes),
            _ => Err(Kind::OutOfBounds),
        }
    }

    /// The tracked bytes of the object at `va`, and its address.
    pub(super) fn written(&self, space: u64, va: u64) -> Option<(Arc<Written>, u64)> {
        let object = self.at(space, va).filter(|object| object.freed.is_none())?;
        Some((Arc::clone(object.written.as_ref()?), object.va))
    }

    /// The image of the program that contains `va`, and the offset in it.
    pub(super) fn image(&self, space: u64, va: u64) -> Option<(Arc<Image>, u64)> {
        let object = self.at(space, va)?;
        Some((Arc::clone(object.image.as_ref()?), va - object.va))
    }

    /// The object nearest to `va`. Of two at the same distance, the lower one: most overruns go upwards. Memory of the
    /// driver is only taken if `va` lies in it.
    pub(super) fn nearest(&self, space: u64, va: u64) -> Option<NearObject> {
        let objects = self.spaces.get(&space)?;
        if let Some(object) = self.at(space, va).filter(|object| va - object.va < object.bytes) {
            return Some(match &object.image {
                Some(image) if object.freed.is_none() => variable(object, image, va),
                _ => object.near(va),
            });
        }
        let wanted = |(_, object): &(&u64, &Object)| object.what != What::Driver;
        let below = objects.range(..=va).rev().find(wanted).map(|(_, object)| object.near(va));
        let above = objects.range(va..).find(wanted).map(|(_, object)| object.near(va));
        match (below, above) {
            (Some(below), Some(above)) if above.place.distance() < below.place.distance() => Some(above),
            (Some(below), _) => Some(below),
            (None, above) => above,
        }
    }

    /// Distance of `va` from the nearest object's bytes.
    pub(super) fn distance(&self, space: u64, va: u64) -> u64 {
        let Some(objects) = self.spaces.get(&space) else { return u64::MAX };
        let wanted = |(_, object): &(&u64, &Object)| object.what != What::Driver;
        let below = objects.range(..=va).rev().find(wanted).map(|(_, object)| object.place(va).distance());
        let above = objects.range(va..).find(wanted).map(|(_, object)| object.place(va).distance());
        below.into_iter().chain(above).min().unwrap_or(u64::MAX)
    }

    /// Live objects with data, of all address spaces.
    pub(super) fn leaks(&self) -> Vec<Leak> {
        let objects = self.spaces.values().flat_map(BTreeMap::values);
        let is_the_programs = |what| matches!(what, What::Data | What::Program);
        let alive = objects.filter(|object| object.freed.is_none() && is_the_programs(object.what));
        alive.map(|object| Leak { va: object.va, near: object.near(object.va) }).collect()
    }
}

/// Describes the variable of a program that is nearest to `va`.
fn variable(object: &Object, image: &Image, va: u64) -> NearObject {
    let offset = va - object.va;
    let after = image.variables.partition_point(|variable| variable.offset <= offset);
    let Some(variable) = after.checked_sub(1).map(|at| &image.variables[at]) else { return object.near(va) };
    let within = offset - variable.offset;
    let place = match within.checked_sub(variable.bytes) {
        Some(past) => Place::Past(past),
        None => Place::Inside(within),
    };
    NearObject {
        name: variable.name.clone(),
        va: object.va + variable.offset,
        bytes: variable.bytes,
        place,
        ..object.near(va)
    }
}
