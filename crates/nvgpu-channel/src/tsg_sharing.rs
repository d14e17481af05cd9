//! TSGs of more than one process.
//!
//! Each open of the control node is an instance with a number. The one that opened a TSG makes a token
//! for another, which opens the same TSG with it, once: the two then share time slice and engine
//! context, and each other's faults (`ioctl_tsg.c`). Numbers and tokens are sent between the processes
//! by whatever means they have.

use nvgpu_sys::ctrl::{self, OpenTsgFlags};
use nvgpu_sys::tsg as sys;

use crate::error::{self, Error};
use crate::gpu::Gpu;
use crate::tsg::Tsg;

/// Permission for one instance to open a TSG of another, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShareToken {
    /// The instance that gives it.
    pub source: u64,
    /// The instance that may use it.
    pub target: u64,
    /// The token itself.
    pub number: u64,
}

impl Gpu {
    /// Number of this open of the control node, for [`Tsg::share_with`] in another process.
    pub fn instance_id(&self) -> u64 {
        self.characteristics().raw().device_instance_id
    }

    /// Opens a TSG that another instance has shared with this one; uses the token up.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `EINVAL` for a token that is used up, revoked or another instance's.
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
    /// Lets the instance `target` open this TSG. The token ends with either instance.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: `EINVAL` if there is no such instance, `ENOSPC` when 64 tokens are out.
    pub fn share_with(&self, target: u64) -> Result<ShareToken, Error> {
        let source = self.gpu().instance_id();
        let mut argument = sys::GetShareToken {
            source_device_instance_id: source,
            target_device_instance_id: target,
            share_token: 0,
        };
        sys::GET_SHARE_TOKEN
            .send(self.fd(), &mut argument)
            .map_err(error::call(sys::GET_SHARE_TOKEN.name(), "the TSG"))?;
        Ok(ShareToken { source, target, number: argument.share_token })
    }

    /// Takes back a token that has not been used.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `EINVAL` for a token that is used up or not of this TSG.
    pub fn revoke(&self, token: ShareToken) -> Result<(), Error> {
        let mut argument = sys::RevokeShareToken {
            source_device_instance_id: token.source,
            target_device_instance_id: token.target,
            share_token: token.number,
        };
        sys::REVOKE_SHARE_TOKEN
            .send(self.fd(), &mut argument)
            .map(drop)
            .map_err(error::call(sys::REVOKE_SHARE_TOKEN.name(), "the TSG"))
    }
}
