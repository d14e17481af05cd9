//! Commands and launch descriptors of another implementation, bit for bit.
//!
//! `golden/commands.json` holds words that tinygrad's NVIDIA back end produced without a GPU. Every
//! vector is encoded and compared with its words, and its words are decoded and compared with its
//! inputs. Where that implementation is known to be wrong, the difference itself is asserted.

use std::collections::BTreeSet;

use crate::support::{Command, decode, encode};
use ampere_cmd::command::{
    AcquireCondition, CopyRelease, LinearCopy, Payload, PcasAction, SemaphoreAcquire, SemaphoreRelease,
    SmLayout, local_memory_size,
};
use ampere_cmd::gpfifo::{Entry, Level, Segment};
use ampere_cmd::host_c76f::SemAddrLo;
use ampere_cmd::qmd::{Field, QmdV3_0, v3_0};
use ampere_cmd::{Encoder, Error, Method, MethodStream, Subchannel};
use serde_json::Value;

/// Memory semaphores with a 64-bit payload at an address that is a multiple of 4 only: on hardware
/// they raise the SEMAPHORE interrupt (GA100 dev_pbdma), so the encoder refuses them.
const MISALIGNED: [&str; 2] = ["write-002", "write-003"];

/// Kinds whose launch descriptors give constant buffers 16 times their size: the field
/// CONSTANT_BUFFER_SIZE_SHIFTED4 counts units of 16 bytes, and that implementation writes bytes.
const UNSHIFTED_SIZES: [&str; 5] = ["program_qmd", "exec", "exec_signal", "exec_chain", "exec_call"];

/// Fields of class 0xc6c0 that class 0xc7c0 does not have with exactly these bits, and what 0xc7c0
/// has there instead.
const OTHER_FIELDS: [(&str, &str); 4] = [
    ("qmd_field-047", "no field: the bits are unassigned"),
    ("qmd_field-274", "four OCCUPANCY fields of 8 bits"),
    ("qmd_field-285", "the same name with more bits"),
    ("qmd_field-286", "the same name with more bits"),
];

struct Vector {
    id: String,
    kind: String,
    input: Value,
    output: Value,
}

fn vectors() -> Vec<Vector> {
    let file: Value = serde_json::from_str(include_str!("golden/commands.json")).unwrap();
    let vectors: Vec<Vector> = file["vectors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|vector| Vector {
            id: vector["id"].as_str().unwrap().to_owned(),
            kind: vector["kind"].as_str().unwrap().to_owned(),
            input: vector["in"].clone(),
            output: vector["out"].clone(),
        })
        .collect();
    assert_eq!(vectors.len() as u64, file["vector_count"].as_u64().unwrap());
    vectors
}

fn of_kind(kinds: &[&str]) -> Vec<Vector> {
    let found: Vec<Vector> =
        vectors().into_iter().filter(|vector| kinds.contains(&vector.kind.as_str())).collect();
    for kind in kinds {
        assert!(found.iter().any(|vector| vector.kind == *kind), "no vector of kind {kind}");
    }
    found
}

/// A number, plain or as hexadecimal text.
fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap(),
        other => other.as_u64().unwrap(),
    }
}

fn word(value: &Value) -> u32 {
    u32::try_from(number(value)).unwrap()
}

fn words(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(word).collect()
}

/// A pair of address and value.
fn pair(value: &Value) -> (u64, u64) {
    (number(&value[0]), number(&value[1]))
}

fn wait((va, value): (u64, u64)) -> Command {
    Command::Acquire(SemaphoreAcquire {
        va,
        payload: Payload::Bits64(value),
        condition: AcquireCondition::CircularGreaterOrEqual,
        switch_tsg: false,
    })
}

fn signal((va, value): (u64, u64)) -> [Command; 2] {
    let payload = Payload::Bits64(value);
    let release = SemaphoreRelease { va, payload, wait_for_idle: true, timestamp: true };
    [Command::Release(release), Command::Interrupt]
}

fn signal_copy((va, value): (u64, u64)) -> Command {
    let payload = u32::try_from(value).unwrap();
    Command::CopyRelease(CopyRelease { va, payload, timestamp: true })
}

fn poll_bit(input: &Value) -> Command {
    let (value, mask) = (word(&input["value"]), word(&input["mask"]));
    let (condition, payload) =
        if value == 0 { (AcquireCondition::AnyClear, !mask) } else { (AcquireCondition::AnySet, value) };
    Command::Acquire(SemaphoreAcquire {
        va: number(&input["addr"]),
        payload: Payload::Bits32(payload),
        condition,
        switch_tsg: false,
    })
}

fn write(input: &Value) -> Command {
    let value = number(&input["value"]);
    let payload = if input["b64"].as_bool().unwrap() {
        Payload::Bits64(value)
    } else {
        Payload::Bits32(u32::try_from(value).unwrap())
    };
    let va = number(&input["addr"]);
    Command::Release(SemaphoreRelease { va, payload, wait_for_idle: true, timestamp: false })
}

fn setup(input: &Value) -> Vec<Command> {
    let mut commands = Vec::new();
    let mut given = |key: &str, command: fn(u64) -> Command| {
        if let Some(value) = input.get(key) {
            commands.push(command(number(value)));
        }
    };
    given("compute_class", |class| Command::SetObject(Subchannel::COMPUTE, class as u32));
    given("copy_class", |class| Command::SetObject(Subchannel::COPY, class as u32));
    given("local_mem_window", Command::LocalWindow);
    given("shared_mem_window", Command::SharedWindow);
    given("local_mem", Command::LocalMemory);
    given("local_mem_tpc_bytes", |bytes| Command::LocalMemorySize(bytes, 0xff));
    commands
}

fn copy(input: &Value) -> Command {
    Command::Copy(LinearCopy {
        source: number(&input["src"]),
        destination: number(&input["dst"]),
        bytes: number(&input["size"]),
    })
}

fn launch(qmd_va: &Value) -> Command {
    Command::Launch(number(qmd_va), PcasAction::PrefetchSchedule)
}

/// The commands that a vector asks for, `None` for the kinds that are not pushbuffers of commands.
fn commands(vector: &Vector) -> Option<Vec<Command>> {
    let input = &vector.input;
    let at = || number(&input["addr"]);
    let commands = match vector.kind.as_str() {
        "wait" => vec![wait((at(), number(&input["value"])))],
        "signal_compute" => signal((at(), number(&input["value"]))).to_vec(),
        "timestamp_compute" => signal((at(), 0)).to_vec(),
        "signal_copy" => vec![signal_copy((at(), number(&input["value"])))],
        "timestamp_copy" => vec![signal_copy((at(), 0))],
        "write" => vec![write(input)],
        "poll_bit" => vec![poll_bit(input)],
        "memory_barrier" => {
            let repeat = input.get("repeat").map_or(1, number);
            (0..repeat).map(|_| Command::InvalidateShaderCaches).collect()
        }
        "setup" => setup(input),
        "copy" => vec![copy(input)],
        "copy_sequence" => vec![
            wait(pair(&input["wait"])),
            Command::SetObject(Subchannel::COPY, word(&input["setup_copy_class"])),
            copy(input),
            signal_copy(pair(&input["signal"])),
        ],
        "bringup_compute" => {
            let mut commands = setup(input);
            commands.extend(signal(pair(&input["signal"])));
            commands
        }
        "bringup_copy" => vec![
            wait(pair(&input["wait"])),
            Command::SetObject(Subchannel::COPY, word(&input["copy_class"])),
            signal_copy(pair(&input["signal"])),
        ],
        "local_memory_resize" => {
            let (size, _) = local_memory(input);
            let mut commands = vec![
                wait(pair(&input["wait"])),
                Command::LocalMemory(number(&input["area_va"])),
                Command::LocalMemorySize(size, 0xff),
            ];
            commands.extend(signal(pair(&input["signal"])));
            commands
        }
        "exec" => vec![launch(&input["qmd_va"])],
        "exec_chain" => vec![launch(&input["launches"][0]["qmd_va"])],
        "exec_signal" => {
            // The first two go into the descriptor.
            let signals = input["signals"].as_array().unwrap().iter().skip(2);
            let mut commands = vec![launch(&input["qmd_va"])];
            commands.extend(signals.flat_map(|value| signal(pair(value))));
            commands
        }
        "exec_call" => {
            vec![wait(pair(&input["wait"])), Command::InvalidateShaderCaches, launch(&input["qmd_va"])]
        }
        _ => return None,
    };
    Some(commands)
}

/// Bytes per TPC and of the whole area. Bytes per thread are rounded up to 32 beforehand.
fn local_memory(input: &Value) -> (u64, u64) {
    let layout = SmLayout {
        warps_per_sm: word(&input["max_warps_per_sm"]),
        sm_per_tpc: word(&input["sm_per_tpc"]),
        tpc_count: word(&input["tpc_per_gpc"]) * word(&input["gpcs"]),
    };
    let bytes_per_thread = word(&input["bytes_per_thread_requested"]).next_multiple_of(32);
    let size = local_memory_size(bytes_per_thread, layout).unwrap();
    (size.bytes_per_tpc, size.area_bytes)
}

#[test]
fn every_kind_is_tested() {
    let kinds: BTreeSet<String> = vectors().into_iter().map(|vector| vector.kind).collect();
    let elsewhere =
        ["gpfifo", "gpfifo_ring", "method", "program_qmd", "qmd_cbuf_addr", "qmd_field", "qmd_multi"];
    for kind in kinds {
        let vector = of_kind(&[kind.as_str()]).remove(0);
        assert!(commands(&vector).is_some() != elsewhere.contains(&kind.as_str()), "{kind}");
    }
}

#[test]
fn pushbuffers_of_commands() {
    for vector in vectors() {
        let Some(commands) = commands(&vector) else { continue };
        let golden = words(&vector.output["words"]);
        assert_eq!(decode(&golden), commands, "{}", vector.id);
        if MISALIGNED.contains(&vector.id.as_str()) {
            let [Command::Release(release)] = commands[..] else { panic!("{} is one release", vector.id) };
            let refused = Error::Misaligned { what: "semaphore", va: release.va, alignment: 8 };
            assert_eq!(encode(&commands), Err(refused), "{}", vector.id);
            let aligned = Command::Release(SemaphoreRelease { va: release.va - 4, ..release });
            let mut encoded = encode(&[aligned]).unwrap();
            encoded[1] += 4;
            assert_eq!(encoded, golden, "{}", vector.id);
            continue;
        }
        assert_eq!(encode(&commands).unwrap(), golden, "{}", vector.id);
    }
}

#[test]
fn local_memory_sizes() {
    for vector in of_kind(&["local_memory_resize"]) {
        assert_eq!(local_memory(&vector.input).1, number(&vector.output["area_size"]), "{}", vector.id);
    }
}

/// Products that do not fit 64 bits are refused, not wrapped.
#[test]
fn local_memory_sizes_do_not_overflow() {
    let layout = |warps_per_sm, sm_per_tpc, tpc_count| SmLayout { warps_per_sm, sm_per_tpc, tpc_count };
    let most = u32::MAX;
    for layout in [layout(most, most, 1), layout(1 << 28, 1, 1), layout(48, 2, most), layout(most, 1, most)] {
        let refused = Error::LocalMemory { bytes_per_thread: most, layout };
        assert_eq!(local_memory_size(most, layout), Err(refused), "{layout:?}");
    }
    let size = local_memory_size(most, layout(48, 2, 8)).unwrap();
    assert_eq!(size.bytes_per_tpc, (1 << 37) * 96);
    assert_eq!(size.area_bytes, (1 << 37) * 96 * 8);
}

#[test]
fn raw_methods() {
    for vector in of_kind(&["method"]) {
        let subchannel = Subchannel::new(word(&vector.input["subchannel"]) as u8).unwrap();
        let address = word(&vector.input["method"]);
        let data = words(&vector.input["data"]);
        let golden = words(&vector.output["words"]);
        let mut encoder = Encoder::new(Vec::new());
        let step: fn(u32) -> u32 = match vector.input["mode"].as_str().unwrap() {
            "increment" => {
                encoder.methods(subchannel, address, &data).unwrap();
                |index| index * 4
            }
            "non_increment" => {
                encoder.non_incrementing(subchannel, address, &data).unwrap();
                |_| 0
            }
            "increment_once" => {
                encoder.increment_once(subchannel, address, &data).unwrap();
                |index| index.min(1) * 4
            }
            mode => panic!("{}: mode {mode}", vector.id),
        };
        assert_eq!(encoder.into_sink(), golden, "{}", vector.id);

        let mut stream = MethodStream::new();
        let writes: Vec<_> = golden.iter().filter_map(|word| stream.push(*word).unwrap()).collect();
        assert_eq!((writes.len(), stream.owed()), (data.len(), 0), "{}", vector.id);
        for (index, (write, data)) in (0u32..).zip(writes.iter().zip(data)) {
            let place = (write.subchannel, write.address, write.data);
            assert_eq!(place, (subchannel, address + step(index), data), "{}", vector.id);
        }
    }
}

#[test]
fn ring_entries() {
    const RING: u64 = 0x14_0000_0000;
    for vector in of_kind(&["gpfifo", "gpfifo_ring", "bringup_compute", "bringup_copy"]) {
        let golden = number(&vector.output["entry"]);
        let (va, words) = match vector.kind.as_str() {
            "gpfifo" => (number(&vector.input["pushbuffer_va"]), word(&vector.input["words"])),
            "gpfifo_ring" => {
                // Each submission takes 16-byte aligned room for its words.
                let words = word(&vector.input["words"]);
                let room = (u64::from(words) * 4).next_multiple_of(16);
                (RING + number(&vector.input["submission"]) * room, words)
            }
            "bringup_compute" => (RING, vector.output["words"].as_array().unwrap().len() as u32),
            _ => (RING + 0x40, vector.output["words"].as_array().unwrap().len() as u32),
        };
        let segment = Segment::new(va, words).with_level(Level::Subroutine);
        assert_eq!(Entry::from(segment).encode(), Ok(golden), "{}", vector.id);
        assert_eq!(Entry::decode(golden), Ok(Entry::Segment(segment)), "{}", vector.id);
        if vector.kind == "gpfifo" {
            let doorbell = number(&vector.output["doorbell"]["offset"]);
            assert_eq!(doorbell, u64::from(ampere_cmd::usermode_c561::Doorbell::ADDRESS), "{}", vector.id);
        }
    }
}

/// A field by the name that the vectors use: elements of arrays end in `_` and their index, and one
/// field still has its older name.
fn field(name: &str) -> Field<v3_0::Layout> {
    let name = name.replace("NON_BLOCKING_INTR_TYPE", "TRAP_TYPE");
    let element = name.rsplit_once('_').and_then(|(array, index)| {
        QmdV3_0::field(array, index.parse().ok()?).filter(|field| field.info().is_array())
    });
    element.or_else(|| QmdV3_0::field(&name, 0)).unwrap_or_else(|| panic!("no field {name}"))
}

/// All words from those that are not zero.
fn sparse(value: &Value) -> QmdV3_0 {
    let mut all = [0; 64];
    for (index, value) in value.as_object().unwrap() {
        all[index.parse::<usize>().unwrap()] = word(value);
    }
    QmdV3_0::from_words(all)
}

fn written(writes: &Value) -> QmdV3_0 {
    let mut qmd = QmdV3_0::new();
    for write in writes.as_array().unwrap() {
        qmd.set(field(write[0].as_str().unwrap()), number(&write[1])).unwrap();
    }
    qmd
}

#[test]
fn single_qmd_fields() {
    for vector in of_kind(&["qmd_field"]) {
        let golden = sparse(&vector.output["qmd_words"]);
        let value = number(&vector.input["value"]);
        let bits = (word(&vector.input["hi"]), word(&vector.input["lo"]));
        let other = OTHER_FIELDS.iter().find(|(id, _)| *id == vector.id);
        assert_eq!(other.is_some(), vector.input.get("name_in_c7c0_table") == Some(&Value::Null));
        match other {
            None => {
                let name = vector.input.get("name_in_c7c0_table").unwrap_or(&vector.input["field"]);
                let field = field(name.as_str().unwrap());
                assert_eq!(field.bits(), bits, "{}", vector.id);
                let mut qmd = QmdV3_0::new();
                qmd.set(field, value).unwrap();
                assert_eq!(qmd, golden, "{}", vector.id);
                assert_eq!(golden.get(field), value, "{}", vector.id);
                let others = golden.set_fields().filter(|(other, _)| other.bits() != bits);
                assert_eq!(others.count(), 0, "{}", vector.id);
            }
            Some((_, "no field: the bits are unassigned")) => {
                assert!(golden.set_fields().next().is_none());
                assert!(golden.unassigned_bits_set().eq(bits.1..=bits.0));
            }
            Some((_, "four OCCUPANCY fields of 8 bits")) => {
                let fields: Vec<_> = golden.set_fields().collect();
                assert!(fields.iter().all(|(field, _)| field.info().name.starts_with("OCCUPANCY_")));
                let joined =
                    fields.iter().fold(0, |all, (field, value)| all | value << (field.bits().1 - bits.1));
                assert_eq!((fields.len(), joined), (4, value));
            }
            Some(_) => {
                let field = field(vector.input["field"].as_str().unwrap());
                assert!(field.bits().0 > bits.0 && field.bits().1 == bits.1);
                assert_eq!(golden.get(field), value);
            }
        }
    }
}

#[test]
fn several_qmd_fields() {
    for vector in of_kind(&["qmd_multi"]) {
        let golden = QmdV3_0::from_slice(&words(&vector.output["qmd"])).unwrap();
        assert_eq!(written(&vector.input["writes"]), golden, "{}", vector.id);
        // The last write to a field is what it holds.
        let mut seen = BTreeSet::new();
        for write in vector.input["writes"].as_array().unwrap().iter().rev() {
            let field = field(write[0].as_str().unwrap());
            if seen.insert(field.bits()) {
                assert_eq!(golden.get(field), number(&write[1]), "{} {field:?}", vector.id);
            }
        }
        assert!(golden.set_fields().all(|(field, _)| seen.contains(&field.bits())), "{}", vector.id);
    }
}

fn set_constant_buffer(qmd: &mut QmdV3_0, index: u32, va: u64) {
    qmd.set(v3_0::CONSTANT_BUFFER_ADDR_LOWER.at(index).unwrap(), va as u32).unwrap();
    qmd.set(v3_0::CONSTANT_BUFFER_ADDR_UPPER.at(index).unwrap(), va >> 32).unwrap();
}

#[test]
fn constant_buffer_addresses() {
    for vector in of_kind(&["qmd_cbuf_addr"]) {
        let (index, va) = (word(&vector.input["index"]), number(&vector.input["addr"]));
        let golden = sparse(&vector.output["qmd_words"]);
        let mut qmd = QmdV3_0::new();
        set_constant_buffer(&mut qmd, index, va);
        assert_eq!(qmd, golden, "{}", vector.id);
        let lower = golden.get(v3_0::CONSTANT_BUFFER_ADDR_LOWER.at(index).unwrap());
        let upper = golden.get(v3_0::CONSTANT_BUFFER_ADDR_UPPER.at(index).unwrap());
        assert_eq!(upper << 32 | lower, va, "{}", vector.id);
    }
}

/// Fields that the launch adds to the template.
fn set_launch(qmd: &mut QmdV3_0, input: &Value) {
    let fields = [
        v3_0::CTA_RASTER_WIDTH,
        v3_0::CTA_RASTER_HEIGHT,
        v3_0::CTA_RASTER_DEPTH,
        v3_0::CTA_THREAD_DIMENSION0,
        v3_0::CTA_THREAD_DIMENSION1,
        v3_0::CTA_THREAD_DIMENSION2,
    ];
    let sizes = ["grid", "block"].into_iter().flat_map(|key| input[key].as_array().unwrap());
    for (field, size) in fields.into_iter().zip(sizes) {
        qmd.set(field, number(size)).unwrap();
    }
    set_constant_buffer(qmd, 0, number(&input["kernargs_va"]));
}

fn set_release(qmd: &mut QmdV3_0, slot: usize, (va, value): (u64, u64)) {
    let [enable, lower, upper, payload_lower, payload_upper] = match slot {
        0 => [
            v3_0::RELEASE0_ENABLE,
            v3_0::RELEASE0_ADDRESS_LOWER,
            v3_0::RELEASE0_ADDRESS_UPPER,
            v3_0::RELEASE0_PAYLOAD_LOWER,
            v3_0::RELEASE0_PAYLOAD_UPPER,
        ],
        _ => [
            v3_0::RELEASE1_ENABLE,
            v3_0::RELEASE1_ADDRESS_LOWER,
            v3_0::RELEASE1_ADDRESS_UPPER,
            v3_0::RELEASE1_PAYLOAD_LOWER,
            v3_0::RELEASE1_PAYLOAD_UPPER,
        ],
    };
    qmd.set(enable, true).unwrap();
    qmd.set(lower, va as u32).unwrap();
    qmd.set(upper, va >> 32).unwrap();
    qmd.set(payload_lower, value as u32).unwrap();
    qmd.set(payload_upper, value >> 32).unwrap();
}

/// Launch descriptors as the vector asks for, and as its producer wrote them.
fn descriptors(vector: &Vector) -> Vec<(QmdV3_0, QmdV3_0)> {
    let (input, output) = (&vector.input, &vector.output);
    let golden = |value| QmdV3_0::from_slice(&words(value)).unwrap();
    if vector.kind == "program_qmd" {
        return vec![(written(&input["writes"]), golden(&output["qmd"]))];
    }
    let template = written(&input["base_qmd_writes"]);
    if vector.kind != "exec_chain" {
        let mut qmd = template;
        set_launch(&mut qmd, input);
        let signals = match vector.kind.as_str() {
            "exec_signal" => input["signals"].as_array().unwrap().iter().map(pair).take(2).collect(),
            "exec_call" => vec![pair(&input["signal"])],
            _ => Vec::new(),
        };
        for (slot, signal) in signals.into_iter().enumerate() {
            set_release(&mut qmd, slot, signal);
        }
        return vec![(qmd, golden(&output["qmd"]))];
    }
    let launches = input["launches"].as_array().unwrap();
    let mut pairs = Vec::new();
    for (index, launch) in launches.iter().enumerate() {
        let mut qmd = template;
        set_launch(&mut qmd, launch);
        match launches.get(index + 1) {
            Some(next) => {
                qmd.set(v3_0::DEPENDENT_QMD0_POINTER, number(&next["qmd_va"]) >> 8).unwrap();
                qmd.set(v3_0::DEPENDENT_QMD0_ACTION, v3_0::DEPENDENT_QMD0_ACTION_QMD_SCHEDULE).unwrap();
                qmd.set(v3_0::DEPENDENT_QMD0_PREFETCH, true).unwrap();
                qmd.set(v3_0::DEPENDENT_QMD0_ENABLE, true).unwrap();
            }
            None => set_release(&mut qmd, 0, pair(&input["final_signal"])),
        }
        pairs.push((qmd, golden(&output["qmds"][index])));
    }
    pairs
}

#[test]
fn launch_descriptors() {
    let vectors = of_kind(&UNSHIFTED_SIZES);
    assert_eq!(vectors.len(), 46);
    for vector in vectors {
        for (qmd, golden) in descriptors(&vector) {
            assert_eq!(qmd, golden, "{}", vector.id);
            assert_eq!(golden.unassigned_bits_set().count(), 0, "{}", vector.id);
            let kilobytes = golden.get(v3_0::SHARED_MEMORY_SIZE) / 1024;
            let code = golden.get(v3_0::MIN_SM_CONFIG_SHARED_MEM_SIZE) as u32;
            let config = ampere_cmd::qmd::shared_memory_config_kib(code).unwrap();
            assert!(u64::from(config) >= kilobytes, "{}", vector.id);
        }
    }
}

#[test]
fn constant_buffers_are_sixteen_times_too_large_and_nothing_else() {
    for vector in of_kind(&UNSHIFTED_SIZES) {
        let buffers = vector.input["constant_buffers"].as_object().unwrap();
        for (_, golden) in descriptors(&vector) {
            let mut right = golden;
            for (index, buffer) in buffers {
                let size = v3_0::CONSTANT_BUFFER_SIZE_SHIFTED4.at(index.parse().unwrap()).unwrap();
                let bytes = number(&buffer["size_field_as_written"]);
                assert_eq!(golden.get(size), bytes, "{}", vector.id);
                right.set(size, bytes / 16).unwrap();
            }
            let differing: Vec<_> = QmdV3_0::fields()
                .filter(|field| right.get(*field) != golden.get(*field))
                .inspect(|field| assert_eq!(golden.get(*field), right.get(*field) * 16, "{}", vector.id))
                .map(|field| field.info().name)
                .collect();
            assert_eq!(differing, vec!["CONSTANT_BUFFER_SIZE_SHIFTED4"; buffers.len()], "{}", vector.id);
        }
    }
}

#[test]
fn both_forms_of_the_interrupt_mean_the_same() {
    let mut encoder = Encoder::new(Vec::new());
    encoder.non_stall_interrupt().unwrap();
    let short = encoder.into_sink();
    assert_eq!(short, [0x8000_0008]);
    assert_eq!(decode(&short), decode(&[0x2001_0008, 0]));
    assert_eq!(SemAddrLo::ADDRESS, 0x5c);
}
