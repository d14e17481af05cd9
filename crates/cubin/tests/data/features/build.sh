#!/bin/sh
# Rebuilds the cubins of this folder. Needs Python 3 with `venv`, and a network for the first run.
#
#     crates/cubin/tests/data/features/build.sh [FOLDER]
#
# FOLDER (default: /tmp) gets one virtual environment per version of the compiler, `nvrtc-VERSION`.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
compile=$here/../../../../../kernels/compile.py
folder=${1:-/tmp}

# VERSION PACKAGE...: makes the environment if it is missing.
environment() {
    venv=$folder/nvrtc-$1
    shift
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

# NAME: the first file of this name in the environment.
find_file() {
    find "$venv/lib" -name "$1" | grep -v alt | head -n 1
}

# SOURCE OUTPUT ARCHITECTURE [OPTION]...
nvrtc() {
    source=$1 output=$2 architecture=$3
    shift 3
    "$venv/bin/python" "$compile" --nvrtc "$(find_file 'libnvrtc.so*')" --source "$source" \
        --output "$output" --option="--gpu-architecture=$architecture" "$@"
}

# SOURCE OUTPUT ARCHITECTURE: compiles to an object and links it.
linked() {
    nvrtc "$1" "$2.object" "$3" --option=--relocatable-device-code=true
    "$venv/bin/python" "$here/link.py" "$(find_file 'libnvJitLink.so*')" "$2.object" "$2" "$3"
    rm "$2.object"
}

cd "$here"
for version in 12.2.140 12.6.85 12.9.86 13.0.88; do
    case $version in
    13.*) environment $version nvidia-cuda-nvrtc==$version nvidia-nvjitlink==$version ;;
    12.6.*) environment $version nvidia-cuda-nvrtc-cu12==$version nvidia-nvjitlink-cu12==$version \
        nvidia-cuda-nvcc-cu12==$version ;;
    12.9.*) environment $version nvidia-cuda-nvrtc-cu12==$version nvidia-cuda-nvcc-cu12==$version ;;
    *) environment $version nvidia-cuda-nvrtc-cu12==$version ;;
    esac
    for architecture in sm_80 sm_86 sm_87 sm_90; do
        nvrtc features.cu "features.$version.$architecture.cubin" $architecture
    done
    case $version in
    12.6.* | 13.*)
        for architecture in sm_87 sm_90; do
            linked features.cu "linked.$version.$architecture.cubin" $architecture
            nvrtc large.cu "large.$version.$architecture.cubin" $architecture
        done
        ;;
    esac
    case $version in
    12.6.*) "$(find_file ptxas)" --gpu-name sm_87 --output-file "required.$version.sm_87.cubin" required.ptx ;;
    12.9.*) "$(find_file ptxas)" --gpu-name sm_90 --output-file "required.$version.sm_90.cubin" required.ptx ;;
    esac
done
