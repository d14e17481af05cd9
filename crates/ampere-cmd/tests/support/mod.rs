//! What the test files share: commands as values, written by the encoder and read back by the
//! decoder.

use ampere_cmd::command::{
    AcquireCondition, CopyRelease, LinearCopy, MAX_COPY_PIECE, Payload, PcasAction, SemaphoreAcquire,
    SemaphoreRelease,
};
use ampere_cmd::{
    Encoder, Error, Method, MethodStream, MethodWrite, Subchannel, compute_c7c0, copy_c7b5, host_c76f,
};

/// One command of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    SetObject(Subchannel, u32),
    Acquire(SemaphoreAcquire),
    Release(SemaphoreRelease),
    Interrupt,
    InvalidateShaderCaches,
    LocalWindow(u64),
    SharedWindow(u64),
    LocalMemory(u64),
    LocalMemorySize(u64, u32),
    Launch(u64, PcasAction),
    Copy(LinearCopy),
    CopyRelease(CopyRelease),
}

/// The words of commands. NON_STALL_INTERRUPT is written in its long form, a header and a data
/// word, as the producers of the vectors do.
pub(crate) fn encode(commands: &[Command]) -> Result<Vec<u32>, Error> {
    let mut encoder = Encoder::new(Vec::new());
    for command in commands {
        match command {
            Command::SetObject(subchannel, class) => encoder.set_object(*subchannel, *class),
            Command::Acquire(acquire) => encoder.semaphore_acquire(acquire),
            Command::Release(release) => encoder.semaphore_release(release).map(drop),
            Command::Interrupt => {
                encoder.method(Subchannel::HOST, &host_c76f::NonStallInterrupt { handle: 0 })
            }
            Command::InvalidateShaderCaches => encoder.invalidate_shader_caches_no_wfi(),
            Command::LocalWindow(va) => encoder.shader_local_memory_window(*va),
            Command::SharedWindow(va) => encoder.shader_shared_memory_window(*va),
            Command::LocalMemory(va) => encoder.shader_local_memory(*va),
            Command::LocalMemorySize(bytes, sms) => encoder.shader_local_memory_size(*bytes, *sms),
            Command::Launch(qmd_va, action) => encoder.launch(*qmd_va, *action),
            Command::Copy(copy) => encoder.linear_copy(copy),
            Command::CopyRelease(release) => encoder.copy_release(release),
        }?;
    }
    Ok(encoder.into_sink())
}

/// The commands that words mean: what a model of the engines would do with them.
pub(crate) fn decode(words: &[u32]) -> Vec<Command> {
    let mut stream = MethodStream::new();
    let mut engines = Engines::default();
    for word in words {
        if let Some(write) = stream.push(*word).unwrap() {
            engines.write(&write);
        }
    }
    assert_eq!(stream.owed(), 0, "a header is owed data");
    engines.commands
}

/// The state that methods leave behind until one of them acts.
#[derive(Default)]
struct Engines {
    commands: Vec<Command>,
    semaphore: [u32; 4],
    upper: u32,
    size_lower: u32,
    qmd_address: u32,
    offsets: [u32; 4],
    line_length: u32,
    copy_semaphore: [u32; 3],
}

fn join(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

impl Engines {
    fn write(&mut self, write: &MethodWrite) {
        if write.is_host() {
            self.host(write);
        } else if write.subchannel == Subchannel::COMPUTE {
            self.compute(write);
        } else if write.subchannel == Subchannel::COPY {
            self.copy(write);
        } else {
            panic!("no engine for {write:?}");
        }
    }

    fn host(&mut self, write: &MethodWrite) {
        use ampere_cmd::host_c76f::*;
        match write.address {
            SetObject::ADDRESS => {
                let object = SetObject::decode(write.data);
                assert_eq!(object.encode(), Ok(write.data));
                self.commands.push(Command::SetObject(write.subchannel, object.nvclass));
            }
            SemAddrLo::ADDRESS => self.semaphore[0] = SemAddrLo::decode(write.data).offset << 2,
            SemAddrHi::ADDRESS => self.semaphore[1] = SemAddrHi::decode(write.data).offset,
            SemPayloadLo::ADDRESS => self.semaphore[2] = SemPayloadLo::decode(write.data).payload,
            SemPayloadHi::ADDRESS => self.semaphore[3] = SemPayloadHi::decode(write.data).payload,
            SemExecute::ADDRESS => self.semaphore(SemExecute::decode(write.data)),
            NonStallInterrupt::ADDRESS => self.commands.push(Command::Interrupt),
            _ => panic!("unexpected {write:?}"),
        }
    }

    fn semaphore(&mut self, execute: host_c76f::SemExecute) {
        use ampere_cmd::host_c76f::{SemExecuteOperation as Operation, SemExecutePayloadSize};
        let [lo, hi, payload_lo, payload_hi] = self.semaphore;
        let va = join(hi, lo);
        let payload = match execute.payload_size {
            SemExecutePayloadSize::_32bit => {
                assert_eq!(payload_hi, 0);
                Payload::Bits32(payload_lo)
            }
            _ => Payload::Bits64(join(payload_hi, payload_lo)),
        };
        let acquire = |condition| {
            let switch_tsg = execute.acquire_switch_tsg;
            Command::Acquire(SemaphoreAcquire { va, payload, condition, switch_tsg })
        };
        self.commands.push(match execute.operation {
            Operation::Acquire => acquire(AcquireCondition::Equal),
            Operation::AcqStrictGeq => acquire(AcquireCondition::StrictGreaterOrEqual),
            Operation::AcqCircGeq => acquire(AcquireCondition::CircularGreaterOrEqual),
            Operation::AcqAnd => acquire(AcquireCondition::AnySet),
            Operation::AcqNor => acquire(AcquireCondition::AnyClear),
            Operation::Release => Command::Release(SemaphoreRelease {
                va,
                payload,
                wait_for_idle: execute.release_wfi,
                timestamp: execute.release_timestamp,
            }),
            operation => panic!("unexpected {operation:?}"),
        });
    }

    fn compute(&mut self, write: &MethodWrite) {
        use compute_c7c0::*;
        let command = match write.address {
            SetShaderLocalMemoryWindowA::ADDRESS
            | SetShaderSharedMemoryWindowA::ADDRESS
            | SetShaderLocalMemoryA::ADDRESS
            | SetShaderLocalMemoryNonThrottledA::ADDRESS => {
                self.upper = write.data;
                return;
            }
            SetShaderLocalMemoryWindowB::ADDRESS => Command::LocalWindow(join(self.upper, write.data)),
            SetShaderSharedMemoryWindowB::ADDRESS => Command::SharedWindow(join(self.upper, write.data)),
            SetShaderLocalMemoryB::ADDRESS => Command::LocalMemory(join(self.upper, write.data)),
            SetShaderLocalMemoryNonThrottledB::ADDRESS => {
                self.size_lower = write.data;
                return;
            }
            SetShaderLocalMemoryNonThrottledC::ADDRESS => {
                let sms = SetShaderLocalMemoryNonThrottledC::decode(write.data).max_sm_count;
                Command::LocalMemorySize(join(self.upper, self.size_lower), sms)
            }
            InvalidateShaderCachesNoWfi::ADDRESS => {
                let caches = InvalidateShaderCachesNoWfi::decode(write.data);
                assert!(caches.instruction && caches.global_data && caches.constant);
                Command::InvalidateShaderCaches
            }
            SendPcasA::ADDRESS => {
                self.qmd_address = SendPcasA::decode(write.data).qmd_address_shifted8;
                return;
            }
            SendSignalingPcas2B::ADDRESS => {
                let action = SendSignalingPcas2B::decode(write.data).pcas_action;
                Command::Launch(u64::from(self.qmd_address) << 8, action)
            }
            _ => panic!("unexpected {write:?}"),
        };
        self.commands.push(command);
    }

    fn copy(&mut self, write: &MethodWrite) {
        use copy_c7b5::*;
        match write.address {
            OffsetInUpper::ADDRESS..=OffsetOutLower::ADDRESS => {
                self.offsets[(write.address - OffsetInUpper::ADDRESS) as usize / 4] = write.data;
            }
            LineLengthIn::ADDRESS => self.line_length = write.data,
            SetSemaphoreA::ADDRESS..=SetSemaphorePayload::ADDRESS => {
                self.copy_semaphore[(write.address - SetSemaphoreA::ADDRESS) as usize / 4] = write.data;
            }
            LaunchDma::ADDRESS => self.launch_dma(LaunchDma::decode(write.data)),
            _ => panic!("unexpected {write:?}"),
        }
    }

    fn launch_dma(&mut self, launch: copy_c7b5::LaunchDma) {
        use copy_c7b5::{LaunchDmaDataTransferType as Transfer, LaunchDmaSemaphoreType as Semaphore};
        if launch.data_transfer_type == Transfer::NonPipelined {
            let [in_upper, in_lower, out_upper, out_lower] = self.offsets;
            let piece = LinearCopy {
                source: join(in_upper, in_lower),
                destination: join(out_upper, out_lower),
                bytes: u64::from(self.line_length),
            };
            self.copy_piece(piece);
        }
        let timestamp = match launch.semaphore_type {
            Semaphore::None => return,
            Semaphore::ReleaseSemaphoreNoTimestamp => false,
            Semaphore::ReleaseSemaphoreWithTimestamp => true,
            other => panic!("unexpected {other:?}"),
        };
        assert!(launch.flush_enable);
        let [upper, lower, payload] = self.copy_semaphore;
        let release = CopyRelease { va: join(upper, lower), payload, timestamp };
        self.commands.push(Command::CopyRelease(release));
    }

    /// Joins pieces of one copy again.
    fn copy_piece(&mut self, piece: LinearCopy) {
        if let Some(Command::Copy(copy)) = self.commands.last_mut()
            && copy.bytes.is_multiple_of(MAX_COPY_PIECE)
            && copy.source + copy.bytes == piece.source
            && copy.destination + copy.bytes == piece.destination
        {
            copy.bytes += piece.bytes;
            return;
        }
        self.commands.push(Command::Copy(piece));
    }
}
