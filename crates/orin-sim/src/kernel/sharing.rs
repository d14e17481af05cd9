//! Tokens that let another open of the control node open a TSG (`ioctl_tsg.c`, `ioctl_ctrl.c`).
//!
//! An instance of the control node that opened a TSG can give a token to another instance, which can open the TSG once
//! with it. Closing either instance invalidates the token.

use nvgpu_sys::ctrl::OpenTsg;
use rustix::io::Errno;

use super::State;
use super::process::fds::Object;
use super::process::mappings::Mapped;

/// Maximum number of outstanding tokens of a TSG.
const TOKENS: usize = 64;

/// One token.
#[derive(Debug)]
pub(super) struct Token {
    number: u64,
    tsg: u32,
    source: u64,
    target: u64,
}

impl State {
    /// A mapping of the doorbell page keeps the file open even without a descriptor.
    fn instance_is_open(&self, instance: u64) -> bool {
        let is_doorbell =
            |mapped: &Mapped| matches!(mapped, Mapped::Doorbell { instance: i, .. } if *i == instance);
        self.fds.objects().any(|object| matches!(object, Object::Ctrl(open) if *open == instance))
            || self.mappings.values().any(|mapping| is_doorbell(&mapping.mapped))
    }

    /// GET_SHARE_TOKEN between two instances, `source` and `target`.
    pub(super) fn share(&mut self, tsg: u32, (source, target): (u64, u64)) -> Result<u64, Errno> {
        if source == 0 || target == 0 || !self.may_share(tsg, source) {
            return Err(Errno::INVAL);
        }
        if self.tokens.iter().filter(|token| token.tsg == tsg).count() >= TOKENS {
            return Err(Errno::NOSPC);
        }
        if !self.instance_is_open(target) {
            return Err(Errno::INVAL);
        }
        self.next_token += 1;
        let number = self.next_token;
        self.tokens.push(Token { number, tsg, source, target });
        Ok(number)
    }

    /// GET_SHARE_TOKEN of R39. Which instance of a shared TSG counts as the creator is unknown; here the oldest one.
    pub(super) fn share_jointly(&mut self, tsg: u32, target: u64) -> Result<[u64; 2], Errno> {
        let source = self.tsgs.get(&tsg).and_then(|tsg| tsg.instances.first()).copied().unwrap_or(0);
        Ok([source, self.share(tsg, (source, target))?])
    }

    /// REVOKE_SHARE_TOKEN.
    pub(super) fn revoke(
        &mut self,
        tsg: u32,
        (source, target): (u64, u64),
        number: u64,
    ) -> Result<(), Errno> {
        if source == 0 || target == 0 || number == 0 || !self.may_share(tsg, source) {
            return Err(Errno::INVAL);
        }
        let wanted = |token: &Token| {
            (token.number, token.tsg, token.source, token.target) == (number, tsg, source, target)
        };
        let at = self.tokens.iter().position(wanted).ok_or(Errno::INVAL)?;
        self.tokens.remove(at);
        Ok(())
    }

    /// OPEN_TSG with a token. Consumes the token and returns its TSG.
    pub(super) fn redeem(&mut self, instance: u64, args: &OpenTsg) -> Result<u32, Errno> {
        let wanted = |token: &Token| {
            (token.number, token.source, token.target)
                == (args.share_token, args.source_device_instance_id, instance)
        };
        let at = self.tokens.iter().position(wanted).ok_or(Errno::INVAL)?;
        let token = self.tokens.remove(at);
        let tsg = self.tsgs.get_mut(&token.tsg).ok_or(Errno::INVAL)?;
        tsg.instances.push(instance);
        Ok(token.tsg)
    }

    fn may_share(&self, tsg: u32, instance: u64) -> bool {
        self.tsgs.get(&tsg).is_some_and(|tsg| tsg.instances.contains(&instance))
    }

    /// Called after a descriptor or the mapping of an open of the control node is closed. The last one ends the open,
    /// with its tokens and clock requests.
    pub(super) fn close_instance(&mut self, instance: u64) {
        if self.instance_is_open(instance) {
            return;
        }
        self.frequencies.remove(&instance);
        self.tokens.retain(|token| token.source != instance && token.target != instance);
        for tsg in self.tsgs.values_mut() {
            tsg.instances.retain(|other| *other != instance);
        }
    }

    /// Removes the tokens of a TSG that no longer exists.
    pub(super) fn forget_tokens(&mut self, tsg: u32) {
        self.tokens.retain(|token| token.tsg != tsg);
    }
}
