#![doc = include_str!("../README.md")]

mod address_space;
pub mod barrier;
mod channel;
mod characteristics;
mod doorbell;
mod error;
mod gpu;
mod kernel_log;
mod notifier;
pub mod ring;
mod tsg;

pub use address_space::{
    Access, AddressSpace, GPU_PAGE, GpuVa, LOCAL_WINDOW, MapOptions, Mapping, Reservation, SHARED_WINDOW,
    VA_END, VA_START,
};
pub use channel::{Channel, ChannelBuilder, DEFAULT_ENTRIES, UserSyncpoint};
pub use characteristics::{AMPERE_CHANNEL_GPFIFO_B, AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B, Characteristics};
pub use doorbell::Doorbell;
pub use error::Error;
pub use gpu::Gpu;
pub use kernel_log::KernelLog;
pub use notifier::{ErrorNotifier, Fault};
pub use nvgpu_sys::channel::ErrorCode;
pub use nvgpu_sys::ctrl::GpuFlags;
pub use ring::{Ring, RingFull};
pub use tsg::{CompletionEvent, SmErrorStateRecord, Subcontext, Tsg};
