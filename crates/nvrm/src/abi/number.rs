//! Numbers of classes and commands, with the type of their parameters.

use core::marker::PhantomData;

/// A class of RM objects with allocation parameters of type `P`; `()` for none.
///
/// ```
/// use nvrm::abi::alloc;
///
/// assert_eq!((alloc::DEVICE.number, alloc::DEVICE.name), (0x80, "NV01_DEVICE_0"));
/// ```
#[derive(Debug)]
pub struct Class<P> {
    /// Number of the class.
    pub number: u32,
    /// Name of the class in its header.
    pub name: &'static str,
    parameters: PhantomData<P>,
}

impl<P> Class<P> {
    pub(crate) const fn new(number: u32, name: &'static str) -> Self {
        Self { number, name, parameters: PhantomData }
    }
}

/// A command to an RM object with parameters of type `P`.
#[derive(Debug)]
pub struct Command<P> {
    /// Number of the command.
    pub number: u32,
    /// Name of the command in its header, without the prefix of the class.
    pub name: &'static str,
    parameters: PhantomData<P>,
}

impl<P> Command<P> {
    pub(crate) const fn new(number: u32, name: &'static str) -> Self {
        Self { number, name, parameters: PhantomData }
    }
}
