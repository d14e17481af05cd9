//! The same work in C, on one thread.

use std::process::Command;

use crate::corpus::SAXPY;

/// A program that prints the seconds of each function, the best of some runs.
const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void)
{ struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
__attribute__((noinline)) void saxpy(float a, const float *restrict x, float *restrict y, unsigned n)
{ for (unsigned i = 0; i < n; i++) y[i] = a * x[i] + y[i]; }
__attribute__((noinline)) void matmul(const float *restrict a, const float *restrict b, float *restrict c, unsigned n)
{ for (unsigned i = 0; i < n; i++) { for (unsigned j = 0; j < n; j++) c[i * n + j] = 0;
  for (unsigned k = 0; k < n; k++) for (unsigned j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * b[k * n + j]; } }
__attribute__((noinline)) void mandelbrot(unsigned *out, unsigned w, unsigned h,
  float x0, float y0, float step, unsigned limit)
{ for (unsigned py = 0; py < h; py++) for (unsigned px = 0; px < w; px++) {
  float cx = x0 + px * step, cy = y0 + py * step, x = 0, y = 0; unsigned n = 0;
  while (n < limit && x * x + y * y <= 4.0f) { float t = x * x - y * y + cx; y = 2 * x * y + cy; x = t; n++; }
  out[py * w + px] = n; } }
#define MEASURE(name, call) { double best = 1e9; for (int r = 0; r < 50; r++) { double t = now(); call; t = now() - t; \
  if (t < best) best = t; } printf("%s %.9f\n", name, best); }
int main(void)
{ float *x = malloc(4 << 20), *y = malloc(4 << 20), *z = malloc(4 << 20); unsigned *o = malloc(4 << 20);
  for (unsigned i = 0; i < 1 << 20; i++) x[i] = y[i] = i * 1e-6f;
  MEASURE("saxpy", saxpy(1e-4f, x, y, SAXPY)); MEASURE("matmul_tiled", matmul(x, y, z, 128));
  MEASURE("mandelbrot", mandelbrot(o, 128, 128, -2.0f, -1.25f, 0.02f, 200));
  return z[5] + o[7] > 1e30f; }
"#;

/// Returns the seconds of each kernel in C; none without a compiler.
pub(crate) fn times() -> Vec<(String, f64)> {
    let folder = std::env::temp_dir().join(format!("tiers-{}", std::process::id()));
    let (source, program) = (folder.join("rival.c"), folder.join("rival"));
    let output = || -> std::io::Result<String> {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(&source, SOURCE)?;
        let size = format!("-DSAXPY={SAXPY}");
        Command::new("cc").args(["-O3", "-march=native", &size, "-o"]).args([&program, &source]).status()?;
        let output = Command::new(&program).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let lines = output().unwrap_or_else(|error| {
        eprintln!("no comparison with C: {error}");
        String::new()
    });
    let _ = std::fs::remove_dir_all(&folder);
    let row = |line: &str| {
        let (name, seconds) = line.split_once(' ')?;
        Some((name.to_owned(), seconds.parse().ok()?))
    };
    lines.lines().filter_map(row).collect()
}
