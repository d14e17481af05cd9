//! The request codes as literals. The comparison with the tables uses the same encoder, so it would not
//! find an error in it.

use kernel_door::RequestInfo;
use nvgpu_sys::{address_space, channel, ctrl, host1x, nvmap, tsg};

/// Every request of a family has a literal, and every literal a request.
fn check(all: &[RequestInfo], literals: &[(u32, u32)]) {
    for (code, literal) in literals {
        assert_eq!(code, literal, "{code:#010x}");
    }
    let mut ours: Vec<u32> = all.iter().map(|request| request.code).collect();
    let mut theirs: Vec<u32> = literals.iter().map(|(_, literal)| *literal).collect();
    ours.sort_unstable();
    theirs.sort_unstable();
    assert_eq!(ours, theirs);
}

#[test]
fn codes_of_ctrl_are_these_numbers() {
    use ctrl::code;
    check(
        ctrl::ALL,
        &[
            (code::ZCULL_GET_CTX_SIZE, 0x8004_4701),
            (code::ZCULL_GET_INFO, 0x8028_4702),
            (code::ZBC_SET_TABLE, 0x4030_4703),
            (code::ZBC_QUERY_TABLE, 0xc038_4704),
            (code::GET_CHARACTERISTICS, 0xc010_4705),
            (code::PREPARE_COMPRESSIBLE_READ, 0xc050_4706),
            (code::MARK_COMPRESSIBLE_WRITE, 0xc020_4707),
            (code::ALLOC_AS, 0xc040_4708),
            (code::OPEN_TSG, 0xc018_4709),
            (code::GET_TPC_MASKS, 0xc010_470a),
            (code::OPEN_CHANNEL, 0xc004_470b),
            (code::FLUSH_L2, 0xc005_470c),
            (code::SET_MMUDEBUG_MODE, 0xc008_470e),
            (code::SET_SM_DEBUG_MODE, 0xc010_470f),
            (code::WAIT_FOR_PAUSE, 0xc008_4710),
            (code::GET_TPC_EXCEPTION_EN_STATUS, 0xc008_4711),
            (code::NUM_VSMS, 0xc008_4712),
            (code::VSMS_MAPPING, 0xc008_4713),
            (code::RESUME_FROM_PAUSE, 0x0000_4715),
            (code::TRIGGER_SUSPEND, 0x0000_4716),
            (code::CLEAR_SM_ERRORS, 0x0000_4717),
            (code::GET_CPU_TIME_CORRELATION_INFO, 0xc108_4718),
            (code::GET_GPU_TIME, 0xc010_4719),
            (code::GET_ENGINE_INFO, 0xc010_471a),
            (code::ALLOC_VIDMEM, 0xc020_471b),
            (code::CLK_GET_RANGE, 0xc010_471c),
            (code::CLK_GET_VF_POINTS, 0xc018_471d),
            (code::CLK_GET_INFO, 0xc010_471e),
            (code::CLK_SET_INFO, 0xc018_471f),
            (code::GET_EVENT_FD, 0xc008_4720),
            (code::GET_MEMORY_STATE, 0xc028_4721),
            (code::GET_VOLTAGE, 0xc010_4722),
            (code::GET_CURRENT, 0xc010_4723),
            (code::GET_POWER, 0xc010_4724),
            (code::GET_TEMPERATURE, 0xc010_4725),
            (code::GET_FBP_L2_MASKS, 0xc010_4726),
            (code::SET_THERM_ALERT_LIMIT, 0xc010_4727),
            (code::SET_DETERMINISTIC_OPTS, 0xc010_4728),
            (code::REGISTER_BUFFER, 0xc018_4729),
            (code::GET_BUFFER_INFO, 0xc018_472a),
            (code::GET_GPC_LOCAL_TO_PHYSICAL_MAP, 0xc010_472b),
            (code::GET_GPC_LOCAL_TO_LOGICAL_MAP, 0xc010_472c),
            (code::GET_PPC_MASKS, 0xc010_472d),
            (code::GET_ROP_MASKS, 0xc010_472e),
            (code::GET_FBP_LOCAL_TO_PHYSICAL_MAP, 0xc010_472f),
            (code::GET_FBP_LOCAL_TO_LOGICAL_MAP, 0xc010_4730),
        ],
    );
}

#[test]
fn codes_of_address_space_are_these_numbers() {
    use address_space::code;
    check(
        address_space::ALL,
        &[
            (code::BIND_CHANNEL, 0xc004_4101),
            (code::ALLOC_SPACE_32, 0xc018_4102),
            (code::FREE_SPACE, 0xc020_4103),
            (code::UNMAP_BUFFER, 0xc008_4105),
            (code::ALLOC_SPACE, 0xc020_4106),
            (code::MAP_BUFFER_EX, 0xc028_4107),
            (code::GET_VA_REGIONS, 0xc010_4108),
            (code::GET_BUFFER_COMPBITS_INFO, 0xc020_4109),
            (code::MAP_BUFFER_COMPBITS, 0xc028_410a),
            (code::MAP_BUFFER_BATCH, 0xc020_410b),
            (code::GET_SYNC_RO_MAP, 0x8010_410c),
            (code::MAPPING_MODIFY, 0xc020_410d),
            (code::REMAP, 0xc010_410e),
            (code::GET_SYNC_RO_MAP_V2, 0x8048_410f),
        ],
    );
}

#[test]
fn codes_of_tsg_are_these_numbers() {
    use tsg::code;
    check(
        tsg::ALL,
        &[
            (code::BIND_CHANNEL, 0x4004_5401),
            (code::UNBIND_CHANNEL, 0x4004_5402),
            (code::ENABLE, 0x0000_5403),
            (code::DISABLE, 0x0000_5404),
            (code::PREEMPT, 0x0000_5405),
            (code::EVENT_ID_CTRL, 0xc010_5407),
            (code::SET_RUNLIST_INTERLEAVE, 0x4008_5408),
            (code::SET_TIMESLICE, 0x4008_5409),
            (code::GET_TIMESLICE, 0x8008_540a),
            (code::BIND_CHANNEL_EX, 0xc018_540b),
            (code::READ_SINGLE_SM_ERROR_STATE, 0xc018_540c),
            (code::SET_L2_MAX_WAYS_EVICT_LAST, 0x4008_540d),
            (code::GET_L2_MAX_WAYS_EVICT_LAST, 0x8008_540e),
            (code::SET_L2_SECTOR_PROMOTION, 0x4008_540f),
            (code::BIND_SCHEDULING_DOMAIN, 0x4020_5410),
            (code::READ_ALL_SM_ERROR_STATES, 0xc018_5411),
            (code::CREATE_SUBCONTEXT, 0xc010_5412),
            (code::DELETE_SUBCONTEXT, 0x4008_5413),
            (code::GET_SHARE_TOKEN, 0xc018_5414),
            (code::REVOKE_SHARE_TOKEN, 0x4018_5415),
        ],
    );
}

#[test]
fn codes_of_channel_are_these_numbers() {
    use channel::code;
    check(
        channel::ALL,
        &[
            (code::SET_NVMAP_FD, 0x4004_4805),
            (code::SET_TIMEOUT, 0x4004_480b),
            (code::GET_TIMEDOUT, 0x8004_480c),
            (code::SET_TIMEOUT_EX, 0xc008_4812),
            (code::WAIT, 0xc018_4866),
            (code::SUBMIT_GPFIFO, 0xc018_486b),
            (code::ALLOC_OBJ_CTX, 0xc010_486c),
            (code::ZCULL_BIND, 0xc010_486e),
            (code::SET_ERROR_NOTIFIER, 0xc018_486f),
            (code::OPEN, 0x8004_4870),
            (code::ENABLE, 0x0000_4871),
            (code::DISABLE, 0x0000_4872),
            (code::PREEMPT, 0x0000_4873),
            (code::FORCE_RESET, 0x0000_4874),
            (code::EVENT_ID_CTRL, 0xc010_4875),
            (code::WDT, 0x4008_4877),
            (code::SET_RUNLIST_INTERLEAVE, 0x4008_4878),
            (code::SET_PREEMPTION_MODE, 0x4008_487a),
            (code::ALLOC_GPFIFO_EX, 0x4020_487b),
            (code::ALLOC_GPFIFO_EX_R39, 0xc020_487b),
            (code::SET_BOOSTED_CTX, 0x4008_487c),
            (code::GET_USER_SYNCPOINT, 0x8010_487e),
            (code::RESCHEDULE_RUNLIST, 0x4004_487f),
            (code::SETUP_BIND, 0xc068_4880),
        ],
    );
}

#[test]
fn codes_of_nvmap_are_these_numbers() {
    use nvmap::code;
    check(
        nvmap::ALL,
        &[
            (code::CREATE, 0xc008_4e00),
            (code::CREATE_64, 0xc008_4e01),
            (code::FROM_ID, 0xc008_4e02),
            (code::ALLOC, 0x4014_4e03),
            (code::ALLOC_R39, 0x4020_4e03),
            (code::FREE, 0x0000_4e04),
            (code::WRITE, 0x4038_4e06),
            (code::READ, 0x4038_4e07),
            (code::WRITE_32, 0x401c_4e06),
            (code::READ_32, 0x401c_4e07),
            (code::PARAM, 0xc010_4e08),
            (code::PARAM_32, 0xc00c_4e08),
            (code::CACHE, 0x4018_4e0c),
            (code::CACHE_64, 0x4020_4e0c),
            (code::CACHE_32, 0x4010_4e0c),
            (code::GET_ID, 0xc008_4e0d),
            (code::GET_FD, 0xc008_4e0f),
            (code::FROM_FD, 0xc008_4e10),
            (code::CACHE_LIST, 0x4020_4e11),
            (code::FROM_IVC_ID, 0xc008_4e13),
            (code::GET_IVC_ID, 0xc008_4e14),
            (code::GET_IVM_HEAPS, 0x8004_4e15),
            (code::FROM_VA, 0xc018_4e16),
            (code::GUP_TEST, 0xc010_4e17),
            (code::SET_TAG_LABEL, 0x4010_4e18),
            (code::GET_AVAILABLE_HEAPS, 0x8008_4e19),
            (code::GET_HEAP_SIZE, 0x8010_4e1a),
            (code::PARAMETERS, 0x8048_4e1b),
            (code::ALLOC_IVM, 0x4014_4e65),
            (code::VPR_FLOOR_SIZE, 0x4004_4e66),
            (code::GET_SCIIPCID, 0x8020_4e67),
            (code::HANDLE_FROM_SCIIPCID, 0x8020_4e68),
            (code::QUERY_HEAP_PARAMS, 0x8030_4e69),
            (code::DUP_HANDLE, 0xc00c_4e6a),
            (code::GET_FD_FOR_RANGE_FROM_LIST, 0x8028_4e6b),
            (code::QUERY_HEAP_PARAMS_NUMA, 0x8030_4e6c),
        ],
    );
}

#[test]
fn codes_of_host1x_are_these_numbers() {
    use host1x::code;
    check(
        host1x::ALL,
        &[
            (code::CREATE_FENCE, 0xc010_5802),
            (code::FENCE_EXTRACT, 0xc018_5805),
            (code::CREATE_POLLFD, 0xc008_5810),
            (code::TRIGGER_POLLFD, 0xc010_5811),
        ],
    );
}
