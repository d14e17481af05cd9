//! Rows of TSGs.

use nvgpu_sys::door::DoorFd;
use nvgpu_sys::tsg;

use super::{Outcome, UNKNOWN, send};
use crate::support::*;

pub(crate) fn tsg_bind(condition: &str) -> Outcome {
    let bench = Bench::new();
    let (space, other, tsg, first) = (bench.space(), bench.space(), bench.tsg(), bench.channel());
    Ok(match condition {
        "scheduling control locked" => {
            bench.orin.lock_scheduling(true);
            bind_tsg(&tsg, &first, 0)
        }
        "fd is not a channel" => bind_tsg(&tsg, &space, 0),
        "subcontext_id 64" => bind_tsg(&tsg, &first, 64),
        "channel AS differs from subcontext AS" => {
            subcontext(&tsg, &other, tsg::SUBCONTEXT_SYNC).unwrap();
            bind_space(&space, &first).unwrap();
            bind_tsg(&tsg, &first, 0)
        }
        "channel on another runlist than the TSG" => {
            let second = bench.try_channel(1).unwrap();
            for channel in [&first, &second] {
                bind_space(&space, channel).unwrap();
            }
            bind_tsg(&tsg, &first, 0).unwrap();
            bind_tsg(&tsg, &second, 0)
        }
        "129th channel" => {
            let channels: Vec<DoorFd> = (0..129).map(|_| bench.channel()).collect();
            let mut result = Ok(0);
            for (at, channel) in channels.iter().enumerate() {
                bind_space(&space, channel).unwrap();
                result = bind_tsg(&tsg, channel, 0);
                assert_eq!(result.is_ok(), at < 128);
            }
            result
        }
        "second id-0 bind after a first bind of a channel without AS" => {
            bind_tsg(&tsg, &first, 0).unwrap();
            let second = bench.channel();
            bind_space(&space, &second).unwrap();
            bind_tsg(&tsg, &second, 0)
        }
        _ => return Err(UNKNOWN),
    })
}

pub(crate) fn tsg_requests(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::new();
    let (space, tsg, channel) = (bench.space(), bench.tsg(), bench.channel());
    bind_space(&space, &channel).unwrap();
    let timeslice =
        |timeslice_us| tsg::SET_TIMESLICE.send(&tsg, &mut tsg::Timeslice { timeslice_us, reserved: 0 });
    Ok(match (ioctl, condition) {
        ("tsg:*", "size above 32") => send(&tsg, 0xc021_540b, &mut [0; 33]),
        ("NVGPU_TSG_IOCTL_READ_ALL_SM_ERROR_STATES", _) => send(&tsg, 0xc018_5411, &mut [0; 24]),
        ("NVGPU_TSG_IOCTL_BIND_CHANNEL", "fd negative") => tsg::BIND_CHANNEL.send(&tsg, &mut -1),
        ("NVGPU_TSG_IOCTL_BIND_CHANNEL", "fd is not a channel") => {
            tsg::BIND_CHANNEL.send(&tsg, &mut space.raw())
        }
        ("NVGPU_TSG_IOCTL_UNBIND_CHANNEL", "fd negative") => tsg::UNBIND_CHANNEL.send(&tsg, &mut -1),
        ("NVGPU_TSG_IOCTL_UNBIND_CHANNEL", "hardware still busy with the channel") => {
            bind_tsg(&tsg, &channel, 0).unwrap();
            bench.orin.stall_engines(true);
            let result = tsg::UNBIND_CHANNEL.send(&tsg, &mut channel.raw());
            bench.orin.stall_engines(false);
            assert_eq!(tsg::UNBIND_CHANNEL.send(&tsg, &mut channel.raw()), Ok(0), "it can be repeated");
            result
        }
        ("NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT", "second SYNC") => {
            subcontext(&tsg, &space, tsg::SUBCONTEXT_SYNC).unwrap();
            subcontext(&tsg, &space, tsg::SUBCONTEXT_SYNC).map(|_| 0)
        }
        ("NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT", "SYNC after a channel was bound with id 0") => {
            bind_tsg(&tsg, &channel, 0).unwrap();
            subcontext(&tsg, &space, tsg::SUBCONTEXT_SYNC).map(|_| 0)
        }
        ("NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT", "ASYNC with all 64 VEIDs taken") => {
            let veids: Vec<u32> =
                (0..64).map(|_| subcontext(&tsg, &space, tsg::SUBCONTEXT_ASYNC).unwrap()).collect();
            assert!(veids.iter().copied().eq((1..64).chain([0])), "{veids:?}");
            subcontext(&tsg, &space, tsg::SUBCONTEXT_ASYNC).map(|_| 0)
        }
        ("NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT", "channels still bound") => {
            bind_tsg(&tsg, &channel, 0).unwrap();
            tsg::DELETE_SUBCONTEXT.send(&tsg, &mut tsg::DeleteSubcontext { veid: 0, reserved: 0 })
        }
        (_, "999 us") => timeslice(999),
        (_, "50001 us") => timeslice(50_001),
        (_, "scheduling control locked") => {
            bench.orin.lock_scheduling(true);
            timeslice(2000)
        }
        ("NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE", _) => {
            assert!(tsg::read_single_sm_error_state(&tsg, 15).is_ok());
            tsg::read_single_sm_error_state(&tsg, 16).map(|_| 0)
        }
        ("NVGPU_IOCTL_TSG_EVENT_ID_CTRL", "event_id 6") => {
            let mut args = tsg::EventIdCtrl { cmd: tsg::EVENT_CMD_ENABLE, event_id: 6, ..Default::default() };
            tsg::EVENT_ID_CTRL.send(&tsg, &mut args)
        }
        (_, "max_ways 17") => {
            let ways = |max_ways| {
                let mut args = tsg::L2MaxWaysEvictLast { max_ways, reserved: 0 };
                tsg::SET_L2_MAX_WAYS_EVICT_LAST.send(&tsg, &mut args)
            };
            bind_tsg(&tsg, &channel, 0).unwrap();
            object(&channel, 0xc7c0).unwrap();
            assert_eq!(ways(16), Ok(0));
            ways(17)
        }
        (_, "unknown flag") => {
            let promotion = |promotion_flag| {
                let mut args = tsg::SetL2SectorPromotion { promotion_flag, reserved: 0 };
                tsg::SET_L2_SECTOR_PROMOTION.send(&tsg, &mut args)
            };
            bind_tsg(&tsg, &channel, 0).unwrap();
            object(&channel, 0xc7c0).unwrap();
            assert_eq!(promotion(tsg::L2_SECTOR_PROMOTE_128B), Ok(0));
            promotion(3)
        }
        ("NVGPU_TSG_IOCTL_BIND_SCHEDULING_DOMAIN", condition) => {
            let reserved0 = i32::from(condition == "reserved nonzero");
            let mut args = tsg::BindSchedulingDomain {
                domain_fd: bench.ctrl.raw(),
                reserved0,
                ..tsg::BindSchedulingDomain::default()
            };
            tsg::BIND_SCHEDULING_DOMAIN.send(&tsg, &mut args)
        }
        ("NVGPU_TSG_IOCTL_GET_SHARE_TOKEN", condition) => {
            let share = |source_device_instance_id| {
                let mut args = tsg::GetShareToken {
                    source_device_instance_id,
                    target_device_instance_id: 1,
                    share_token: 0,
                };
                tsg::GET_SHARE_TOKEN.send(&tsg, &mut args)
            };
            if condition == "source id 0" {
                share(0)
            } else {
                (0..64).for_each(|_| assert_eq!(share(1), Ok(0)));
                share(1)
            }
        }
        _ => return Err(UNKNOWN),
    })
}
