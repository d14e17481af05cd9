#!/bin/sh
# Rebuilds the fat binaries in this folder: fatbin.sh FATBINARY, the program `fatbinary` of the PyPI package
# nvidia-cuda-nvcc 13.5.37.
set -eu
cd "$(dirname "$0")"
"$1" --create=lz4.fatbin -64 --compress-all --compress-mode=speed --ident=tiny.cu --cmdline="-O3 -v" \
    --image3=kind=elf,sm=87,file=tiny.cubin --image3=kind=elf,sm=80,file=tiny.sm_80.cubin \
    --image3=kind=ptx,sm=80,file=tiny.ptx
"$1" --create=zstd.fatbin -64 --compress-all --compress-mode=size \
    --image3=kind=elf,sm=87,file=tiny.cubin --image3=kind=elf,sm=90,file=tiny.sm_90.cubin \
    --image3=kind=elf,sm=90a,file=tiny.sm_90a.cubin --image3=kind=ptx,sm=80,file=tiny.ptx \
    --image3=kind=ptx,sm=100f,file=tiny.ptx
"$1" --create=group.fatbin -64 --concat --compress-all \
    --image3=kind=elf,sm=87,file=tiny.cubin --image3=kind=elf,sm=80,file=tiny.sm_80.cubin
"$1" --create=object.fatbin -64 --device-c --compress-all --image3=kind=elf,sm=87,file=tiny.relocatable.cubin
"$1" --create=plain.fatbin -64 -g --compress-mode=none \
    --image3=kind=elf,sm=80,file=tiny.sm_80.cubin --image3=kind=ptx,sm=80,file=tiny.ptx
