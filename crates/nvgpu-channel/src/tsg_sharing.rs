//! TSGs shared by several processes.
//!
//! Each open control node is an instance with an id. The instance that opened a TSG creates a token for
//! another instance, which opens the same TSG with it, once. Both then share time slice, engine context
//! and faults (`ioctl_tsg.c`). Pass ids and tokens between the processes by any IPC mechanism.

use nvgpu_sys::ctrl::{self, OpenTsgFlags};
use nvgpu_sys::tsg as sys;

use crate::error::{self, Error};
use crate::gpu::Gpu;
use crate::tsg::Tsg;

/// Permission for an instance to open a TSG of another instance, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShareToken {
    /// Id of the instance that issued it.
    pub source: u64,
    /// Id of the instance that may use it.
    pub target: u64,
    /// The token itself.
    pub number: u64,
}

impl Gpu {
    /// Id of this instance, for [`Tsg::share_with`] in another process.
    pub fn instance_id(&self) -> u64 {
        self.characteristics().raw().device_instance_id
    }

    /// Opens a TSG that another instance has shared with this one. The token becomes invalid.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `EINVAL` for a token that was used or revoked, or that belongs to another instance.
    pub fn shared_tsg(&self, token: ShareToken) -> Result<Tsg, Error> {
        let argument = ctrl::OpenTsg {
            flags: OpenTsgFlags::SHARE.bits(),
            source_device_instance_id: token.source,
            share_token: token.number,
            ..ctrl::OpenTsg::default()
        };
        Tsg::open(self, argument)
    }
}

impl Tsg {
    /// Lets the instance `target` open this TSG. The token is invalidated when either instance closes.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: `EINVAL` if the instance does not exist, `ENOSPC` if 64 tokens exist.
    pub fn share_with(&self, target: u64) -> Result<ShareToken, Error> {
        let source = self.gpu().instance_id();
        let interface = self.gpu().characteristics().interface();
        let number = sys::get_share_token(self.fd(), interface, source, target)
            .map_err(error::call(sys::GET_SHARE_TOKEN.name(), "the TSG"))?;
        Ok(ShareToken { source, target, number })
    }

    /// Revokes an unused token.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `EINVAL` for a token that was used, or that belongs to another TSG.
    pub fn revoke(&self, token: ShareToken) -> Result<(), Error> {
        let interface = self.gpu().characteristics().interface();
        sys::revoke_share_token(self.fd(), interface, token.source, token.target, token.number)
            .map_err(error::call(sys::REVOKE_SHARE_TOKEN.name(), "the TSG"))
    }
}
