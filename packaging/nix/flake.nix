# Untested beyond its syntax: no build of it has run yet.
# Use: nix run 'github:nvgpu-rs/nvgpu-rs?dir=packaging/nix' -- doctor
{
  description = "Run CUDA kernels on the Jetson Orin's GPU without CUDA";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      each = nixpkgs.lib.genAttrs [
        "aarch64-linux"
        "x86_64-linux"
      ];
    in
    {
      packages = each (
        system:
        let
          pkgs = nixpkgs.legacyPackages.${system};
        in
        {
          default = pkgs.rustPlatform.buildRustPackage {
            pname = "orin";
            version = (builtins.fromTOML (builtins.readFile ../../Cargo.toml)).workspace.package.version;
            src = ../..;
            cargoLock.lockFile = ../../Cargo.lock;
            nativeBuildInputs = [ pkgs.installShellFiles ];
            cargoBuildFlags = [
              "--package=orin-tool"
              "--package=orin-libcuda"
              "--package=orin-libcudart"
              "--package=orin-libcublas"
              "--package=tegra-hcq-capi"
            ];
            # The tests take minutes and start programs; the project's own continuous integration runs them.
            doCheck = false;
            postInstall = ''
              mkdir -p $out/lib/orin/cuda $out/include $out/lib/pkgconfig
              mv $out/lib/libcuda.so $out/lib/orin/cuda/libcuda.so.1
              cp $out/lib/libcudart.so $out/lib/orin/cuda/libcudart.so.12
              mv $out/lib/libcudart.so $out/lib/orin/cuda/libcudart.so.13
              cp $out/lib/libcublas.so $out/lib/orin/cuda/libcublas.so.12
              mv $out/lib/libcublas.so $out/lib/orin/cuda/libcublas.so.13
              mv $out/lib/libtegra_hcq_capi.so $out/lib/libtegra_hcq.so.1
              ln -s libtegra_hcq.so.1 $out/lib/libtegra_hcq.so
              rm -f $out/lib/*.a
              install -m 644 crates/tegra-hcq-capi/include/tegra_hcq.h $out/include
              $out/bin/orin man > orin.1
              installManPage orin.1
              for shell in bash fish zsh; do
                $out/bin/orin completions $shell > orin.$shell
              done
              installShellCompletion orin.{bash,fish,zsh}
            '';
            meta = {
              homepage = "https://github.com/nvgpu-rs/nvgpu-rs";
              license = with nixpkgs.lib.licenses; [
                mit
                asl20
              ];
              mainProgram = "orin";
              platforms = nixpkgs.lib.platforms.linux;
            };
          };
        }
      );
    };
}
