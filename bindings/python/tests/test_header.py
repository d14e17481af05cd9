"""`_ffi.py` and the version against the sources of the C library."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

import tegra_hcq
from tegra_hcq import _arguments, _errors, _ffi, _log, _matmul, _profile

HEADER = (ROOT / "crates/tegra-hcq-capi/include/tegra_hcq.h").read_text()
CODE = re.sub(r"/\*.*?\*/|//[^\n]*", "", HEADER, flags=re.S)

STRUCTS = {
    "properties": _ffi.Properties,
    "dim3": _ffi.Dim3,
    "fault": _ffi.Fault,
    "arg": _ffi.Arg,
    "span": _ffi.Span,
    "kernel_attributes": _ffi.KernelAttributes,
    "product": _ffi.Product,
    "queue_options": _ffi.QueueOptions,
}

ENUMS = {
    "purpose": tegra_hcq.Purpose,
    "fault_kind": tegra_hcq.FaultKind,
    "work": tegra_hcq.Work,
    "output_stream": tegra_hcq.OutputStream,
}


def functions() -> dict[str, tuple[str, list[str]]]:
    """Result and parameters of each function that the library exports."""
    code = re.sub(r"static inline[^{]*\{.*?\n?\}", "", CODE, flags=re.S)
    found = re.findall(r"^(\w[\w ]*?[ *]+)(tegra_hcq_\w+)\(([^;{]*)\);", code, flags=re.M)
    result = {}
    for kind, name, parameters in found:
        listed = [" ".join(part.split()) for part in parameters.split(",")]
        result[name] = (kind.strip(), [] if listed in (["void"], [""]) else listed)
    return result


def fields(struct: str) -> list[tuple[str, str, int]]:
    """Type, name and length (1 without brackets) of each field."""
    body = re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", CODE, flags=re.S)
    assert body, struct
    found = re.findall(r"([\w ]+?[ *]+)(\w+)(?:\[(\d+)\])?;", body.group(1))
    return [(kind.strip(), name, int(length or 1)) for kind, name, length in found]


def ctype(kind: str) -> tuple[str, int]:
    """Class and size of a C type: a name that C type and ctypes type share."""
    if "*" in kind:
        return "pointer", 8
    if "callback" in kind:
        return "pointer", 8
    if "dim3" in kind:
        return "dim3", 12
    if kind == "float":
        return kind, 4
    name = kind.replace("struct ", "").replace("const ", "").split()[0]
    sizes = {"uint8_t": 1, "uint32_t": 4, "int32_t": 4, "uint64_t": 8, "size_t": 8, "bool": 1, "tegra_hcq_status": 4}
    return "signed" if name in ("int32_t", "tegra_hcq_status") else "unsigned", sizes[name]


def declared(kind: type) -> tuple[str, int]:
    """As `ctype`, of a ctypes type."""
    size = ctypes.sizeof(kind)
    if kind is _ffi.Dim3:
        return "dim3", size
    if kind in (ctypes.c_void_p, ctypes.c_char_p) or issubclass(kind, (ctypes._Pointer, ctypes._CFuncPtr)):
        return "pointer", size
    if kind is ctypes.c_float:
        return "float", size
    return "signed" if kind is ctypes.c_int32 else "unsigned", size


def test_every_function_is_declared_with_its_types() -> None:
    header = functions()
    assert len(header) > 70
    assert set(_ffi.PROTOTYPES) == set(header)
    for name, (result, parameters) in header.items():
        declared_result, declared_arguments = _ffi.PROTOTYPES[name]
        assert declared(declared_result) == ctype(result), name
        assert [declared(kind) for kind in declared_arguments] == [ctype(kind) for kind in parameters], name


def test_every_struct_has_the_fields_of_the_header() -> None:
    assert set(re.findall(r"typedef struct tegra_hcq_(\w+) \{", CODE)) == set(STRUCTS)
    for name, struct in STRUCTS.items():
        found = fields(f"tegra_hcq_{name}")
        assert [field for _, field, _ in found] == [entry[0] for entry in struct._fields_], name
        for (kind, field, length), entry in zip(found, struct._fields_, strict=True):
            base, size = ctype(kind)
            given = entry[1]
            if issubclass(given, ctypes.Array):
                assert given._length_ == length
                given = given._type_
            assert declared(given) == (base, size), f"{name}.{field}"


def test_structs_have_the_layout_of_the_compiler(tmp_path: Path) -> None:
    lines = ['#include "tegra_hcq.h"', "#include <stdio.h>", "int main(void) {"]
    expected = []
    for name, struct in STRUCTS.items():
        full = f"tegra_hcq_{name}"
        lines.append(f'printf("%zu\\n", sizeof({full}));')
        expected.append(ctypes.sizeof(struct))
        for entry in struct._fields_:
            lines.append(f'printf("%zu\\n", offsetof({full}, {entry[0]}));')
            expected.append(getattr(struct, entry[0]).offset)
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("\n".join([*lines, "return 0; }"]))
    include = ROOT / "crates/tegra-hcq-capi/include"
    try:
        subprocess.run(["cc", "-std=c11", "-I", include, source, "-o", program], check=True)
    except FileNotFoundError:
        pytest.skip("no C compiler")
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert [int(line) for line in output.split()] == expected


def constants(enum: str) -> dict[str, int]:
    """Names and numbers of an enum of the header."""
    prefix = f"TEGRA_HCQ_{enum.upper()}_"
    return {name: int(value) for name, value in re.findall(rf"{prefix}(\w+) = (\d+)", CODE)}


def test_enums_have_the_numbers_of_the_header() -> None:
    for name, enum in ENUMS.items():
        assert {member.name: member.value for member in enum} == constants(name), name
    arguments = {"BUFFER": _ffi.ARG_BUFFER, "VALUE": _ffi.ARG_VALUE, "BYTES": _ffi.ARG_BYTES}
    assert constants("arg_kind") == arguments
    elements = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}
    assert {elements[name]: number for name, number in constants("element").items()} == _matmul._ELEMENTS
    assert constants("form") == {"ROWS": 0, "COLUMNS": 1}
    assert constants("precision") == {name.upper(): at for at, name in enumerate(_matmul._PRECISIONS)}
    statuses = {name: number for name, number in constants("status").items() if number}
    assert statuses.pop("INTERRUPTED") == _ffi._INTERRUPTED, "the handler's exception is raised, not one of ours"
    assert set(_errors._CLASSES) == set(statuses.values())
    for name, number in statuses.items():
        words = {"FAULT": "GpuFault", "TIMEOUT": "GpuTimeout", "COMPILATION": "CompileError"}
        words |= {"DEVICE": "DeviceError", "INTERNAL": "InternalError"}
        expected = words.get(name, "".join(part.title() for part in name.split("_")))
        assert _errors._CLASSES[number].__name__ == expected


def test_the_abi_is_that_of_header_and_library() -> None:
    assert re.search(r"#define TEGRA_HCQ_ABI (\d+)", HEADER).group(1) == str(_ffi.ABI)
    assert _ffi.lib().tegra_hcq_abi() == _ffi.ABI


def test_the_version_is_the_workspace_s() -> None:
    manifest = (ROOT / "Cargo.toml").read_text()
    version = re.search(r'\[workspace\.package\].*?^version = "([^"]+)"', manifest, flags=re.S | re.M).group(1)
    assert tegra_hcq.__version__ == version
    assert tegra_hcq.library_version() == version


def test_a_library_of_another_abi_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def library(code: str) -> str:
        source, path = tmp_path / "other.c", tmp_path / f"lib{len(list(tmp_path.iterdir()))}.so"
        source.write_text(code)
        try:
            subprocess.run(["cc", "-shared", "-fPIC", source, "-o", path], check=True)
        except FileNotFoundError:
            pytest.skip("no C compiler")
        monkeypatch.setenv(_ffi.LIBRARY_VARIABLE, str(path))
        return str(path)

    library("unsigned tegra_hcq_abi(void) { return 99; }")
    with pytest.raises(tegra_hcq.DeviceError, match="has ABI 99, and this package needs ABI 1"):
        _ffi._load()
    library("int nothing;")
    with pytest.raises(tegra_hcq.DeviceError, match="is not libtegra_hcq"):
        _ffi._load()


def test_a_missing_library_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_ffi.LIBRARY_VARIABLE, "/nowhere/libtegra_hcq.so")
    with pytest.raises(tegra_hcq.LibraryMissing, match=r"(?s)nowhere.*TEGRA_HCQ_LIBRARY"):
        _ffi._load()


def test_the_page_of_variables_names_ours() -> None:
    page = (ROOT / "docs/environment.md").read_text()
    for name in (_ffi.LIBRARY_VARIABLE, "TEGRA_HCQ_TEST_DEVICE", "TEGRA_HCQ_WHEEL_LIBRARY", "TEGRA_HCQ_WHEEL_PLATFORM"):
        assert f"`{name}`" in page, name


def test_every_public_item_is_described() -> None:
    missing = []
    for name in tegra_hcq.__all__:
        item = getattr(tegra_hcq, name)
        if not isinstance(item, type):
            continue
        if not item.__doc__:
            missing.append(name)
        for member, value in vars(item).items():
            documented = isinstance(value, property) or (callable(value) and not isinstance(value, type))
            if documented and not member.startswith("_") and not value.__doc__:
                missing.append(f"{name}.{member}")
    assert not missing
    assert _log.enable_logging.__doc__ and _log.disable_logging.__doc__ and tegra_hcq.library_version.__doc__
    assert tegra_hcq.matmul.__doc__
    assert _arguments.Dim and _profile.Work.__doc__
