//! Reasons for which a driver stops a channel.

/// The reason for which the driver stopped a channel.
///
/// Most reasons have a number that all of NVIDIA's drivers report: `ROBUST_CHANNEL_*` of `nverror.h`
/// (open-gpu-kernel-modules), the Xid of the desktop driver. A driver whose numbers differ decodes these itself.
///
/// ```
/// use gpu_hal::ErrorCode;
///
/// assert_eq!(ErrorCode::from_raw(31), ErrorCode::MmuFault);
/// assert_eq!(ErrorCode::Unknown(99).raw(), Some(99));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// A submit timed out.
    SubmitTimeout,
    /// 8: the channel or a context switch made no progress for too long.
    IdleTimeout,
    /// The copy engine faulted.
    CopyEngineFault,
    /// 12: the engine received a method that needs a software handler.
    SoftwareMethod,
    /// 13: the engine raised an exception, e.g. an SM fault in a kernel.
    EngineException,
    /// 24: a semaphore acquire timed out.
    SemaphoreTimeout,
    /// 25: an illegal notify.
    IllegalNotify,
    /// 31: the MMU refused an access.
    MmuFault,
    /// 32: the host engine found an error in the pushbuffer.
    PbdmaError,
    /// 37: the context-switch firmware does not implement a method.
    UnimplementedFirmwareMethod,
    /// 43: the channel was reset, on request or because of another channel of its TSG.
    ChannelReset,
    /// 80: the pushbuffer's checksum is wrong.
    PushbufferCrcMismatch,
    /// A number that this crate does not know.
    Unknown(u32),
}

impl ErrorCode {
    /// Decodes a number that all drivers report.
    pub fn from_raw(code: u32) -> Self {
        match code {
            8 => Self::IdleTimeout,
            12 => Self::SoftwareMethod,
            13 => Self::EngineException,
            24 => Self::SemaphoreTimeout,
            25 => Self::IllegalNotify,
            31 => Self::MmuFault,
            32 => Self::PbdmaError,
            37 => Self::UnimplementedFirmwareMethod,
            43 => Self::ChannelReset,
            80 => Self::PushbufferCrcMismatch,
            other => Self::Unknown(other),
        }
    }

    /// The number, if all drivers report the same one.
    pub fn raw(self) -> Option<u32> {
        Some(match self {
            Self::SubmitTimeout | Self::CopyEngineFault => return None,
            Self::IdleTimeout => 8,
            Self::SoftwareMethod => 12,
            Self::EngineException => 13,
            Self::SemaphoreTimeout => 24,
            Self::IllegalNotify => 25,
            Self::MmuFault => 31,
            Self::PbdmaError => 32,
            Self::UnimplementedFirmwareMethod => 37,
            Self::ChannelReset => 43,
            Self::PushbufferCrcMismatch => 80,
            Self::Unknown(code) => code,
        })
    }
}

impl core::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let text = match self {
            Self::SubmitTimeout => "submit timed out",
            Self::IdleTimeout => "no progress for too long",
            Self::CopyEngineFault => "copy engine fault",
            Self::SoftwareMethod => "method without a software handler",
            Self::EngineException => "engine exception",
            Self::SemaphoreTimeout => "semaphore acquire timed out",
            Self::IllegalNotify => "illegal notify",
            Self::MmuFault => "MMU fault",
            Self::PbdmaError => "pushbuffer error in the host engine",
            Self::UnimplementedFirmwareMethod => "method not implemented by the context-switch firmware",
            Self::ChannelReset => "channel reset",
            Self::PushbufferCrcMismatch => "pushbuffer checksum mismatch",
            Self::Unknown(_) => "unknown error",
        };
        match self.raw() {
            Some(code) => write!(f, "{text} (code {code})"),
            None => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_survive_a_round_trip() {
        for code in 0..256 {
            assert_eq!(ErrorCode::from_raw(code).raw(), Some(code));
        }
        assert_eq!(ErrorCode::from_raw(31), ErrorCode::MmuFault);
        assert_eq!(ErrorCode::from_raw(99), ErrorCode::Unknown(99));
        assert_eq!(ErrorCode::MmuFault.to_string(), "MMU fault (code 31)");
        assert_eq!(ErrorCode::CopyEngineFault.to_string(), "copy engine fault");
    }
}
