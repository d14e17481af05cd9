//! The results of CUDA's driver API, and failures with their reason.

use core::fmt;
use core::time::Duration;

use tegra_hcq::CompileError;

/// Longest wait for work, after which it fails with [`Code::LaunchTimeout`]. CUDA has no limit; a kernel that runs
/// longer hangs.
pub(crate) const LONGEST: Duration = Duration::from_secs(3600);

/// Declares [`Code`] with each result's number, name and text in one table.
macro_rules! codes {
    ($($number:literal $variant:ident $name:literal $text:literal;)*) => {
        /// A result of the driver API (`CUresult` of `cuda.h`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = concat!($text, ".")] $variant = $number,)*
        }

        impl Code {
            /// All results, by number.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The constant's name in `cuda.h`, with a zero byte at the end for C.
            pub fn name(self) -> &'static core::ffi::CStr {
                match self { $(Self::$variant => $name,)* }
            }

            /// What `cuGetErrorString` says, with a zero byte at the end for C.
            pub fn text(self) -> &'static core::ffi::CStr {
                match self { $(Self::$variant => texts::$variant,)* }
            }
        }

        #[expect(non_upper_case_globals, reason = "named like the variants")]
        mod texts {
            use core::ffi::CStr;
            $(pub(super) const $variant: &CStr = match CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                Ok(text) => text,
                // PANIC: at compile time, if a text of the table contains a zero byte.
                Err(_) => panic!("a text contains a zero byte"),
            };)*
        }
    };
}

codes! {
    0 Success c"CUDA_SUCCESS" "no error";
    1 InvalidValue c"CUDA_ERROR_INVALID_VALUE" "invalid argument";
    2 OutOfMemory c"CUDA_ERROR_OUT_OF_MEMORY" "out of memory";
    3 NotInitialized c"CUDA_ERROR_NOT_INITIALIZED" "initialization error";
    4 Deinitialized c"CUDA_ERROR_DEINITIALIZED" "driver shutting down";
    5 ProfilerDisabled c"CUDA_ERROR_PROFILER_DISABLED"
        "profiler disabled while using external profiling tool";
    6 ProfilerNotInitialized c"CUDA_ERROR_PROFILER_NOT_INITIALIZED"
        "profiler not initialized: call cudaProfilerInitialize()";
    7 ProfilerAlreadyStarted c"CUDA_ERROR_PROFILER_ALREADY_STARTED" "profiler already started";
    8 ProfilerAlreadyStopped c"CUDA_ERROR_PROFILER_ALREADY_STOPPED" "profiler already stopped";
    34 StubLibrary c"CUDA_ERROR_STUB_LIBRARY" "CUDA driver is a stub library";
    36 CallRequiresNewerDriver c"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER"
        "API call is not supported in the installed CUDA driver";
    46 DeviceUnavailable c"CUDA_ERROR_DEVICE_UNAVAILABLE" "CUDA-capable device(s) is/are busy or unavailable";
    47 MulticastResourceFull c"CUDA_ERROR_MULTICAST_RESOURCE_FULL"
        "not enough multicast resources for the operation";
    100 NoDevice c"CUDA_ERROR_NO_DEVICE" "no CUDA-capable device is detected";
    101 InvalidDevice c"CUDA_ERROR_INVALID_DEVICE" "invalid device ordinal";
    102 DeviceNotLicensed c"CUDA_ERROR_DEVICE_NOT_LICENSED" "device doesn't have valid Grid license";
    200 InvalidImage c"CUDA_ERROR_INVALID_IMAGE" "device kernel image is invalid";
    201 InvalidContext c"CUDA_ERROR_INVALID_CONTEXT" "invalid device context";
    202 ContextAlreadyCurrent c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT" "context already current";
    205 MapFailed c"CUDA_ERROR_MAP_FAILED" "mapping of buffer object failed";
    206 UnmapFailed c"CUDA_ERROR_UNMAP_FAILED" "unmapping of buffer object failed";
    207 ArrayIsMapped c"CUDA_ERROR_ARRAY_IS_MAPPED" "array is mapped";
    208 AlreadyMapped c"CUDA_ERROR_ALREADY_MAPPED" "resource already mapped";
    209 NoBinaryForGpu c"CUDA_ERROR_NO_BINARY_FOR_GPU"
        "no kernel image is available for execution on the device";
    210 AlreadyAcquired c"CUDA_ERROR_ALREADY_ACQUIRED" "resource already acquired";
    211 NotMapped c"CUDA_ERROR_NOT_MAPPED" "resource not mapped";
    212 NotMappedAsArray c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY" "resource not mapped as array";
    213 NotMappedAsPointer c"CUDA_ERROR_NOT_MAPPED_AS_POINTER" "resource not mapped as pointer";
    214 EccUncorrectable c"CUDA_ERROR_ECC_UNCORRECTABLE" "uncorrectable ECC error encountered";
    215 UnsupportedLimit c"CUDA_ERROR_UNSUPPORTED_LIMIT" "limit is not supported on this architecture";
    216 ContextAlreadyInUse c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE"
        "exclusive-thread device already in use by a different thread";
    217 PeerAccessUnsupported c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
        "peer access is not supported between these two devices";
    218 InvalidPtx c"CUDA_ERROR_INVALID_PTX" "a PTX JIT compilation failed";
    219 InvalidGraphicsContext c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT" "invalid OpenGL or DirectX context";
    220 NvlinkUncorrectable c"CUDA_ERROR_NVLINK_UNCORRECTABLE"
        "uncorrectable NVLink error detected during the execution";
    221 JitCompilerNotFound c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND" "PTX JIT compiler library not found";
    222 UnsupportedPtxVersion c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
        "the provided PTX was compiled with an unsupported toolchain.";
    223 JitCompilationDisabled c"CUDA_ERROR_JIT_COMPILATION_DISABLED" "PTX JIT compilation was disabled";
    224 UnsupportedExecAffinity c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY"
        "the provided execution affinity is not supported";
    225 UnsupportedDevsideSync c"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC"
        "the operation cannot be performed in the present state of device-side synchronization";
    226 Contained c"CUDA_ERROR_CONTAINED" "a contained error was encountered";
    227 InsufficientLoaderVersion c"CUDA_ERROR_INSUFFICIENT_LOADER_VERSION"
        "the installed driver is too old for this loader";
    300 InvalidSource c"CUDA_ERROR_INVALID_SOURCE" "device kernel image is invalid";
    301 FileNotFound c"CUDA_ERROR_FILE_NOT_FOUND" "file not found";
    302 SharedObjectSymbolNotFound c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND"
        "shared object symbol not found";
    303 SharedObjectInitFailed c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED" "shared object initialization failed";
    304 OperatingSystem c"CUDA_ERROR_OPERATING_SYSTEM" "OS call failed or operation not supported on this OS";
    400 InvalidHandle c"CUDA_ERROR_INVALID_HANDLE" "invalid resource handle";
    401 IllegalState c"CUDA_ERROR_ILLEGAL_STATE" "the operation cannot be performed in the present state";
    402 LossyQuery c"CUDA_ERROR_LOSSY_QUERY" "attempted introspection would be semantically lossy";
    500 NotFound c"CUDA_ERROR_NOT_FOUND" "named symbol not found";
    600 NotReady c"CUDA_ERROR_NOT_READY" "device not ready";
    700 IllegalAddress c"CUDA_ERROR_ILLEGAL_ADDRESS" "an illegal memory access was encountered";
    701 LaunchOutOfResources c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" "too many resources requested for launch";
    702 LaunchTimeout c"CUDA_ERROR_LAUNCH_TIMEOUT" "the launch timed out and was terminated";
    703 LaunchIncompatibleTexturing c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING"
        "launch uses incompatible texturing mode";
    704 PeerAccessAlreadyEnabled c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED" "peer access is already enabled";
    705 PeerAccessNotEnabled c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED" "peer access has not been enabled";
    708 PrimaryContextActive c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"
        "cannot set while device is active in this process";
    709 ContextIsDestroyed c"CUDA_ERROR_CONTEXT_IS_DESTROYED" "context is destroyed";
    710 Assert c"CUDA_ERROR_ASSERT" "device-side assert triggered";
    711 TooManyPeers c"CUDA_ERROR_TOO_MANY_PEERS" "peer mapping resources exhausted";
    712 HostMemoryAlreadyRegistered c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"
        "part or all of the requested memory range is already mapped";
    713 HostMemoryNotRegistered c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"
        "pointer does not correspond to a registered memory region";
    714 HardwareStackError c"CUDA_ERROR_HARDWARE_STACK_ERROR" "hardware stack error";
    715 IllegalInstruction c"CUDA_ERROR_ILLEGAL_INSTRUCTION" "an illegal instruction was encountered";
    716 MisalignedAddress c"CUDA_ERROR_MISALIGNED_ADDRESS" "misaligned address";
    717 InvalidAddressSpace c"CUDA_ERROR_INVALID_ADDRESS_SPACE"
        "operation not supported on global/shared address space";
    718 InvalidPc c"CUDA_ERROR_INVALID_PC" "invalid program counter";
    719 LaunchFailed c"CUDA_ERROR_LAUNCH_FAILED" "unspecified launch failure";
    720 CooperativeLaunchTooLarge c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"
        "too many blocks in cooperative launch";
    721 TensorMemoryLeak c"CUDA_ERROR_TENSOR_MEMORY_LEAK" "a tensor memory leak was detected";
    800 NotPermitted c"CUDA_ERROR_NOT_PERMITTED" "operation not permitted";
    801 NotSupported c"CUDA_ERROR_NOT_SUPPORTED" "operation not supported";
    802 SystemNotReady c"CUDA_ERROR_SYSTEM_NOT_READY" "system not yet initialized";
    803 SystemDriverMismatch c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
        "system has unsupported display driver / cuda driver combination";
    804 CompatNotSupportedOnDevice c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"
        "forward compatibility was attempted on non supported HW";
    805 MpsConnectionFailed c"CUDA_ERROR_MPS_CONNECTION_FAILED"
        "MPS client failed to connect to the MPS control daemon or the MPS server";
    806 MpsRpcFailure c"CUDA_ERROR_MPS_RPC_FAILURE"
        "the remote procedural call between the MPS server and the MPS client failed";
    807 MpsServerNotReady c"CUDA_ERROR_MPS_SERVER_NOT_READY"
        "MPS server is not ready to accept new MPS client requests";
    808 MpsMaxClientsReached c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED"
        "the hardware resources required to create MPS client have been exhausted";
    809 MpsMaxConnectionsReached c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED"
        "the hardware resources required to support device connections have been exhausted";
    810 MpsClientTerminated c"CUDA_ERROR_MPS_CLIENT_TERMINATED"
        "the MPS client has been terminated by the server";
    811 CdpNotSupported c"CUDA_ERROR_CDP_NOT_SUPPORTED" "dynamic parallelism is not supported";
    812 CdpVersionMismatch c"CUDA_ERROR_CDP_VERSION_MISMATCH"
        "the versions of dynamic parallelism of program and driver differ";
    900 StreamCaptureUnsupported c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
        "operation not permitted when stream is capturing";
    901 StreamCaptureInvalidated c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
        "operation failed due to a previous error during capture";
    902 StreamCaptureMerge c"CUDA_ERROR_STREAM_CAPTURE_MERGE"
        "operation would result in a merge of separate capture sequences";
    903 StreamCaptureUnmatched c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"
        "capture was not ended in the same stream as it began";
    904 StreamCaptureUnjoined c"CUDA_ERROR_STREAM_CAPTURE_UNJOINED" "capturing stream has unjoined work";
    905 StreamCaptureIsolation c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION"
        "dependency created on uncaptured work in another stream";
    906 StreamCaptureImplicit c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"
        "operation would make the legacy stream depend on a capturing blocking stream";
    907 CapturedEvent c"CUDA_ERROR_CAPTURED_EVENT"
        "operation not permitted on an event last recorded in a capturing stream";
    908 StreamCaptureWrongThread c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"
        "attempt to terminate a thread-local capture sequence from another thread";
    909 Timeout c"CUDA_ERROR_TIMEOUT" "wait operation timed out";
    910 GraphExecUpdateFailure c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"
        "the graph update was not performed because it included changes which violated constraints";
    911 ExternalDevice c"CUDA_ERROR_EXTERNAL_DEVICE"
        "an async error has occured in external entity outside of CUDA";
    912 InvalidClusterSize c"CUDA_ERROR_INVALID_CLUSTER_SIZE"
        "a kernel launch error has occurred due to cluster misconfiguration";
    913 FunctionNotLoaded c"CUDA_ERROR_FUNCTION_NOT_LOADED"
        "the function handle is not loaded when performing an operation that requires a loaded function";
    914 InvalidResourceType c"CUDA_ERROR_INVALID_RESOURCE_TYPE"
        "one or more resources passed in are not valid resource types for the operation";
    915 InvalidResourceConfiguration c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION"
        "one or more resources are insufficient or non-applicable for the operation";
    916 KeyRotation c"CUDA_ERROR_KEY_ROTATION" "an error happened during the key rotation sequence";
    917 StreamDetached c"CUDA_ERROR_STREAM_DETACHED" "the stream is detached";
    918 GraphRecaptureFailure c"CUDA_ERROR_GRAPH_RECAPTURE_FAILURE" "the graph could not be recaptured";
    919 FabricNotReady c"CUDA_ERROR_FABRIC_NOT_READY" "the fabric is not ready";
    999 Unknown c"CUDA_ERROR_UNKNOWN" "unknown error";
}

impl Code {
    /// The result with a number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.binary_search_by_key(&number, |code| code.number()).ok().map(|index| Self::ALL[index])
    }

    /// The number in `cuda.h`.
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// Why a call failed: the result that the program gets, and the reason for whoever reads the trace.
#[derive(Clone, Debug, thiserror::Error)]
pub struct Failure {
    /// The result.
    pub code: Code,
    /// The reason; empty if the code says it all.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code.name().to_string_lossy())?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

/// Result of this crate's calls.
pub type Result<T, E = Failure> = core::result::Result<T, E>;

impl Failure {
    /// A failure with its reason.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }

    /// An argument that the call does not take.
    pub fn invalid(reason: impl Into<String>) -> Self {
        Self::new(Code::InvalidValue, reason)
    }
}

impl From<Code> for Failure {
    fn from(code: Code) -> Self {
        Self::new(code, "")
    }
}

impl From<tegra_hcq::Error> for Failure {
    fn from(error: tegra_hcq::Error) -> Self {
        use tegra_hcq::Error as E;
        let code = match &error {
            E::OutOfMemory { .. } | E::TooManyQueues(_) | E::TooManyTextures(_) => Code::OutOfMemory,
            E::Fault(fault) => of_fault(fault),
            E::Timeout { .. } => Code::LaunchTimeout,
            E::Range(_) | E::Launch(_) | E::Arguments { .. } | E::OtherDevice(_) => Code::InvalidValue,
            E::Cubin(error) => of_cubin(error),
            E::Compile(error) => of_compiler(error),
            E::TexturesAbsent { .. } | E::Driver(gpu_hal::Error::Unsupported(_)) => Code::NotSupported,
            E::Texture(_) => Code::InvalidValue,
            E::Driver(_) | E::Thread(_) | E::File { .. } | E::Interrupted => Code::OperatingSystem,
            E::Encoding(_) | E::Variable { .. } => Code::InvalidValue,
            E::NotMapped { .. } => Code::PeerAccessUnsupported,
            E::NoSuchDevice { .. } | E::UnknownKind(_) => Code::InvalidDevice,
            E::NoSoftwareOrin | E::NoDriver { .. } | E::SoftwareOrin(_) => Code::NoDevice,
            _ => Code::Unknown,
        };
        Self::new(code, error.to_string())
    }
}

impl From<CompileError> for Failure {
    fn from(error: CompileError) -> Self {
        tegra_hcq::Error::from(error).into()
    }
}

/// The result for code that cannot be compiled.
fn of_compiler(error: &CompileError) -> Code {
    use CompileError as E;
    match error {
        E::Cubin(error) => of_cubin(error),
        E::Compilation { .. } => Code::InvalidPtx,
        E::UnsupportedPtx { .. } => Code::UnsupportedPtxVersion,
        E::UnresolvedSymbols { .. } => Code::SharedObjectSymbolNotFound,
        E::NotAnImage { .. } => Code::InvalidImage,
        E::Request(_) => Code::InvalidValue,
        E::NoNvJitLink { .. } | E::NoPtxas { .. } | E::StaticProgram { .. } => Code::JitCompilerNotFound,
        E::File { .. } => Code::OperatingSystem,
        _ => Code::Unknown,
    }
}

/// The result for a refused cubin.
fn of_cubin(error: &cubin::Error) -> Code {
    match error {
        cubin::Error::NoSuchKernel { .. } | cubin::Error::NoSuchVariable { .. } => Code::NotFound,
        cubin::Error::WrongArchitecture { .. } | cubin::Error::NoFittingEntry { .. } => Code::NoBinaryForGpu,
        _ => Code::InvalidImage,
    }
}

/// The result for a fault of the GPU; it stays with the context (`docs/cuda.md`).
fn of_fault(fault: &tegra_hcq::Fault) -> Code {
    use tegra_hcq::{FaultKind, WarpError};
    match fault.kind {
        FaultKind::Mmu => Code::IllegalAddress,
        FaultKind::Assert => Code::Assert,
        FaultKind::LaunchDescriptor => Code::LaunchOutOfResources,
        FaultKind::Sm(error) => match error {
            WarpError::IllegalInstruction => Code::IllegalInstruction,
            WarpError::MisalignedAddress => Code::MisalignedAddress,
            WarpError::InvalidAddressSpace => Code::InvalidAddressSpace,
            WarpError::ProgramCounter => Code::InvalidPc,
            WarpError::OutOfRangeAddress | WarpError::MmuNack => Code::IllegalAddress,
            _ => Code::LaunchFailed,
        },
        _ => Code::LaunchFailed,
    }
}
