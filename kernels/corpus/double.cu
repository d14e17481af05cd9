// Double precision: what IEEE 754 defines to the last bit, in every rounding mode.
#include "corpus.cuh"

MAP2(f64_add, double, double, double, 4, o[0] = __dadd_rn(a, b); o[1] = __dadd_rz(a, b); o[2] = __dadd_rd(a, b);
     o[3] = __dadd_ru(a, b);)
MAP2(f64_mul, double, double, double, 4, o[0] = __dmul_rn(a, b); o[1] = __dmul_rz(a, b); o[2] = __dmul_rd(a, b);
     o[3] = __dmul_ru(a, b);)
MAP3(f64_fma, double, double, 5, o[0] = __fma_rn(a, b, c); o[1] = __fma_rz(a, b, c); o[2] = __fma_rd(a, b, c);
     o[3] = __fma_ru(a, b, c); o[4] = __fma_rn(-a, b, fabs(c));)
MAP2(f64_divide, double, double, double, 2, o[0] = a / b; o[1] = __ddiv_rz(a, b);)
MAP1(f64_square_root, double, double, 2, o[0] = sqrt(a); o[1] = __dsqrt_ru(a);)
MAP1(f64_reciprocal, double, double, 2, o[0] = 1.0 / a; o[1] = __drcp_rd(a);)
MAP2(f64_extremes, double, double, double, 3, o[0] = fmin(a, b); o[1] = fmax(a, b); o[2] = copysign(a, b);)
MAP2(f64_compare, double, double, u32, 1, u32 r = 0; r |= (a < b) << 0; r |= (a <= b) << 1; r |= (a == b) << 2;
     r |= (a != b) << 3; r |= (a >= b) << 4; r |= (a > b) << 5; r |= !(a < b) << 6; r |= !(a >= b) << 7;
     r |= isnan(a) << 8; r |= isinf(b) << 9; r |= (fabs(a) < fabs(b)) << 10; o[0] = r;)
MAP1(f64_integral, double, double, 5, o[0] = floor(a); o[1] = ceil(a); o[2] = trunc(a); o[3] = rint(a);
     o[4] = round(a);)
MAP2(f64_words, double, double, u32, 4, o[0] = __double2hiint(a); o[1] = __double2loint(b);
     double d = __hiloint2double(__double2hiint(b), __double2loint(a)); o[2] = d > 0.0; o[3] = d != d;)

// The sum of a row, in order.
KERNEL f64_dot_rows(const double* a, const double* b, double* out, u32 rows, u32 columns)
{
    u32 row = INDEX;
    if (row >= rows)
        return;
    double sum = 0.0;
    for (u32 k = 0; k < columns; k++)
        sum = fma(a[row * columns + k], b[k], sum);
    out[row] = sum;
}
