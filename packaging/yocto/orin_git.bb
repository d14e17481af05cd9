# Untested: no build of it has run yet. For a layer on meta-tegra with Rust 1.88 or newer. The crates that Cargo.lock
# names come from a file that `bitbake -c update_crates orin` writes beside this one.
SUMMARY = "Run CUDA kernels on the Jetson Orin's GPU without CUDA"
HOMEPAGE = "https://github.com/nvgpu-rs/nvgpu-rs"
LICENSE = "MIT | Apache-2.0"
LIC_FILES_CHKSUM = "file://LICENSE-MIT;md5=882e5895c314c4225763b3e66eaaba80 \
                    file://LICENSE-APACHE;md5=22a53954e4e0ec258dfce4391e905dac"

SRC_URI = "git://github.com/nvgpu-rs/nvgpu-rs.git;protocol=https;branch=main"
SRCREV = "${AUTOREV}"
PV = "0.1.0+git"
S = "${WORKDIR}/git"

inherit cargo cargo-update-recipe-crates bash-completion
require ${BPN}-crates.inc

CARGO_BUILD_FLAGS:append = " --package orin-tool --package orin-libcuda --package orin-libcudart --package orin-libcublas --package tegra-hcq-capi"

# ${B} has the programs and libraries of cargo's folder for the target.
do_install() {
    built=${B}/target/${CARGO_TARGET_SUBDIR}
    install -D -m 0755 $built/orin ${D}${bindir}/orin
    # Not in ${libdir}: NVIDIA's libcuda.so.1 stays the one that programs find. `orin cuda` looks here.
    install -D -m 0755 $built/libcuda.so ${D}${libdir}/orin/cuda/libcuda.so.1
    install -D -m 0755 $built/libcudart.so ${D}${libdir}/orin/cuda/libcudart.so.12
    install -D -m 0755 $built/libcudart.so ${D}${libdir}/orin/cuda/libcudart.so.13
    install -D -m 0755 $built/libcublas.so ${D}${libdir}/orin/cuda/libcublas.so.12
    install -D -m 0755 $built/libcublas.so ${D}${libdir}/orin/cuda/libcublas.so.13
    install -D -m 0755 $built/libtegra_hcq_capi.so ${D}${libdir}/libtegra_hcq.so.1
    ln -s libtegra_hcq.so.1 ${D}${libdir}/libtegra_hcq.so
    install -D -m 0644 ${S}/crates/tegra-hcq-capi/include/tegra_hcq.h ${D}${includedir}/tegra_hcq.h
}

PACKAGE_BEFORE_PN = "libtegra-hcq"
FILES:libtegra-hcq = "${libdir}/libtegra_hcq.so.1"
FILES:${PN} += "${libdir}/orin/cuda/*"
# No program may get these libraries as a dependency.
PRIVATE_LIBS = "libcuda.so.1 libcudart.so.12 libcudart.so.13 libcublas.so.12 libcublas.so.13"
INSANE_SKIP:${PN} += "libdir"
