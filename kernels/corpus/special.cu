// The unit for special functions, and the functions of the mathematical library built on it.
#include "corpus.cuh"

#define APPROX(text) asm(text " %0, %1;" : "=f"(o[0]) : "f"(a))
MAP1(rcp_approx, float, float, 1, APPROX("rcp.approx.f32");)
MAP1(rcp_approx_ftz, float, float, 1, APPROX("rcp.approx.ftz.f32");)
MAP1(rsqrt_approx, float, float, 1, APPROX("rsqrt.approx.f32");)
MAP1(rsqrt_approx_ftz, float, float, 1, APPROX("rsqrt.approx.ftz.f32");)
MAP1(sqrt_approx, float, float, 1, APPROX("sqrt.approx.f32");)
MAP1(ex2_approx, float, float, 1, APPROX("ex2.approx.f32");)
MAP1(ex2_approx_ftz, float, float, 1, APPROX("ex2.approx.ftz.f32");)
MAP1(lg2_approx, float, float, 1, APPROX("lg2.approx.f32");)
MAP1(lg2_approx_ftz, float, float, 1, APPROX("lg2.approx.ftz.f32");)
MAP1(sin_approx, float, float, 1, APPROX("sin.approx.f32");)
MAP1(cos_approx, float, float, 1, APPROX("cos.approx.f32");)
MAP1(tanh_approx, float, float, 1, APPROX("tanh.approx.f32");)
MAP2(div_approx, float, float, float, 1, asm("div.approx.f32 %0, %1, %2;" : "=f"(o[0]) : "f"(a), "f"(b));)
MAP2(div_full, float, float, float, 1, asm("div.full.f32 %0, %1, %2;" : "=f"(o[0]) : "f"(a), "f"(b));)

MAP1(exp_f32, float, float, 2, o[0] = expf(a); o[1] = exp2f(a);)
MAP1(log_f32, float, float, 2, o[0] = logf(a); o[1] = log2f(a);)
MAP1(sine_f32, float, float, 2, o[0] = sinf(a); o[1] = cosf(a);)
MAP1(tangent_f32, float, float, 2, o[0] = tanhf(a); o[1] = atanf(a);)
MAP2(power_f32, float, float, float, 1, o[0] = powf(a, b);)
MAP1(error_f32, float, float, 2, o[0] = cbrtf(a); o[1] = erff(a);)

MAP1(exp_f64, double, double, 1, o[0] = exp(a);)
MAP1(log_f64, double, double, 1, o[0] = log(a);)
MAP1(sine_f64, double, double, 1, o[0] = sin(a);)
