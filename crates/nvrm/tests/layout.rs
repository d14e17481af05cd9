//! The raw interface against a table that was read off the driver's headers (release 580.142).

use std::collections::BTreeMap;

use gpu_hal::chip::ClassId;
use nvrm::Status;
use nvrm::abi::{STRUCTS, alloc, control, escape, uvm};
use serde_json::Value;

fn table() -> Value {
    serde_json::from_str(include_str!("nvrm-580.json")).unwrap()
}

#[test]
fn structs_are_laid_out_as_in_the_headers() {
    let table = table();
    let expected = table["structs"].as_object().unwrap();
    let mut seen = BTreeMap::new();
    for info in STRUCTS.iter().copied().flatten() {
        let row = &expected[info.name];
        assert_eq!(row["size"], info.size, "{}", info.name);
        let fields: Vec<Value> = info
            .fields
            .iter()
            .filter(|field| !field.implicit)
            .map(|field| serde_json::json!([field.name, field.offset, field.size]))
            .collect();
        assert_eq!(row["fields"], Value::from(fields), "{}", info.name);
        seen.insert(info.name, ());
    }
    let missing: Vec<_> = expected.keys().filter(|name| !seen.contains_key(name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn numbers_are_those_of_the_headers() {
    let table = table();
    for (name, number) in [
        ("NV_ESC_RM_ALLOC_MEMORY", escape::RM_ALLOC_MEMORY),
        ("NV_ESC_RM_FREE", escape::RM_FREE),
        ("NV_ESC_RM_CONTROL", escape::RM_CONTROL),
        ("NV_ESC_RM_ALLOC", escape::RM_ALLOC),
        ("NV_ESC_RM_MAP_MEMORY", escape::RM_MAP_MEMORY),
        ("NV_ESC_RM_UNMAP_MEMORY", escape::RM_UNMAP_MEMORY),
        ("NV_ESC_CARD_INFO", escape::CARD_INFO),
        ("NV_ESC_REGISTER_FD", escape::REGISTER_FD),
        ("NV_ESC_ALLOC_OS_EVENT", escape::ALLOC_OS_EVENT),
        ("NV_ESC_CHECK_VERSION_STR", escape::CHECK_VERSION_STR),
    ] {
        assert_eq!(table["escapes"][name], number, "{name}");
    }
    for (name, number) in [
        ("UVM_INITIALIZE", uvm::INITIALIZE),
        ("UVM_MM_INITIALIZE", uvm::MM_INITIALIZE),
        ("UVM_REGISTER_GPU", uvm::REGISTER_GPU),
        ("UVM_UNREGISTER_GPU", uvm::UNREGISTER_GPU),
        ("UVM_REGISTER_GPU_VASPACE", uvm::REGISTER_GPU_VASPACE),
        ("UVM_UNREGISTER_GPU_VASPACE", uvm::UNREGISTER_GPU_VASPACE),
        ("UVM_CREATE_EXTERNAL_RANGE", uvm::CREATE_EXTERNAL_RANGE),
        ("UVM_MAP_EXTERNAL_ALLOCATION", uvm::MAP_EXTERNAL_ALLOCATION),
        ("UVM_ENABLE_PEER_ACCESS", uvm::ENABLE_PEER_ACCESS),
        ("UVM_FREE", uvm::FREE),
        ("UVM_REGISTER_CHANNEL", uvm::REGISTER_CHANNEL),
        ("UVM_UNREGISTER_CHANNEL", uvm::UNREGISTER_CHANNEL),
    ] {
        assert_eq!(table["uvm"][name][0], number, "{name}");
    }
    assert_eq!(escape::request(escape::RM_ALLOC_MEMORY, 56), 0xc038_4627);
}

#[test]
fn classes_and_commands_have_the_numbers_of_the_headers() {
    let table = table();
    let class = |name: &str, number: u32| assert_eq!(table["classes"][name][0], number, "{name}");
    class(alloc::ROOT_CLIENT.name, alloc::ROOT_CLIENT.number);
    class(alloc::DEVICE.name, alloc::DEVICE.number);
    class(alloc::SUBDEVICE.name, alloc::SUBDEVICE.number);
    class(alloc::VA_SPACE.name, alloc::VA_SPACE.number);
    class(alloc::MEMORY_VIDEO.name, alloc::MEMORY_VIDEO.number);
    class(alloc::MEMORY_SYSTEM.name, alloc::MEMORY_SYSTEM.number);
    class(alloc::CHANNEL_GROUP.name, alloc::CHANNEL_GROUP.number);
    class(alloc::CONTEXT_SHARE.name, alloc::CONTEXT_SHARE.number);
    for chip in gpu_hal::chip::ALL {
        // Without a doorbell page the chip has another driver.
        let classes = chip.classes.value;
        let Some(usermode) = classes.usermode else { continue };
        let parameters = |of: ClassId, name: Option<&str>| {
            class(of.name, of.number);
            assert_eq!(table["classes"][of.name][1].as_str(), name, "{}", of.name);
        };
        parameters(classes.channel, Some("NV_CHANNEL_ALLOC_PARAMS"));
        parameters(classes.compute, Some("NV_GR_ALLOCATION_PARAMETERS"));
        parameters(classes.copy, Some("NVB0B5_ALLOCATION_PARAMETERS"));
        parameters(usermode.class, usermode.bar1.then_some("NV_HOPPER_USERMODE_A_PARAMS"));
    }
    class(alloc::DEBUGGER.name, alloc::DEBUGGER.number);
    class(alloc::EVENT.name, alloc::EVENT.number);
    let command = |name: &str, number: u32, bytes: usize| {
        let commands = table["controls"].as_object().unwrap();
        let row = commands.iter().find(|(full, _)| full.ends_with(name)).unwrap().1;
        assert_eq!((&row[0], &row[2]), (&Value::from(number), &Value::from(bytes)), "{name}");
    };
    macro_rules! commands {
        ($($name:ident: $parameters:ident;)*) => {
            $(command(control::$name.name, control::$name.number, size_of::<control::$parameters>());)*
        };
    }
    commands! {
        GPU_GET_ID_INFO_V2: IdInfo;
        GPU_GET_CLASSLIST_V2: ClassList;
        GPU_GET_GID_INFO: GidInfo;
        GPU_GET_NAME_STRING: NameString;
        GR_GET_INFO: GrInfo;
        FB_GET_INFO_V2: FbInfo;
        PERF_BOOST: PerfBoost;
        GPFIFO_GET_WORK_SUBMIT_TOKEN: WorkSubmitToken;
        GPFIFO_SCHEDULE: GpfifoSchedule;
        READ_MMU_FAULT_INFO: MmuFaults;
        READ_ALL_SM_ERROR_STATES: SmErrorStates;
        GR_GET_GLOBAL_SM_ORDER: SmOrder;
        CE_GET_ALL_CAPS: CeAllCaps;
        OS_UNIX_EXPORT_OBJECT_TO_FD: ExportObject;
        OS_UNIX_IMPORT_OBJECT_FROM_FD: ImportObject;
        GET_SURFACE_INFO: SurfaceInfo;
    }
}

#[test]
fn statuses_have_the_names_of_the_headers() {
    let table = table();
    for (name, number) in table["statuses"].as_object().unwrap() {
        let number = u32::try_from(number.as_u64().unwrap()).unwrap();
        assert_eq!(Status(number).name(), Some(name.as_str()));
    }
}
