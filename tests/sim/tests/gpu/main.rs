//! Drives the modelled GPU like user space: pushbuffer, GPFIFO entry, GP_PUT, doorbell.

mod compute;
mod copy;
mod descriptor;
mod faults;
mod fuzz;
mod golden;
mod host;
mod launches;
mod layouts;
mod ordering;
mod pcas;
mod rig;
mod scheduling;
mod segments;
mod semaphores;
