// Integers of 8 to 32 bits.
#include "corpus.cuh"

MAP2(add_sub_u32, u32, u32, u32, 4, o[0] = a + b; o[1] = a - b; o[2] = -a; o[3] = a + b + 12345u;)
MAP2(mul_lo_u32, u32, u32, u32, 3, o[0] = a * b; o[1] = a * 7u + b; o[2] = a * 0x9e3779b9u - b;)
MAP2(mul_hi_u32, u32, u32, u32, 2, o[0] = __umulhi(a, b); o[1] = __umulhi(a, 0x12345679u) + b;)
MAP2(mul_hi_s32, s32, s32, s32, 2, o[0] = __mulhi(a, b); o[1] = __mulhi(a, -1234567) + b;)
MAP2(mul24, u32, u32, u32, 2, o[0] = __umul24(a, b); o[1] = __mul24(a, b);)
MAP3(mad_u32, u32, u32, 4, o[0] = a * b + c; o[1] = a * b - c; o[2] = (a << 5) + c; o[3] = a * b + 1000003u;)
MAP2(divide_u32, u32, u32, u32, 2, u32 d = b ? b : 1; o[0] = a / d; o[1] = a % d;)
MAP2(divide_s32, s32, s32, s32, 2, s32 d = b == 0 || b == -1 ? 7 : b; o[0] = a / d; o[1] = a % d;)
MAP1(divide_by_constants, u32, u32, 6, o[0] = a / 7; o[1] = a % 1000; o[2] = (s32)a / 10; o[3] = (s32)a % 127;
     o[4] = a / 641; o[5] = (s32)a / -8;)
MAP2(minimum_maximum, s32, s32, s32, 8, o[0] = min(a, b); o[1] = max(a, b); o[2] = min((u32)a, (u32)b);
     o[3] = max((u32)a, (u32)b); o[4] = abs(a); o[5] = min(max(a, -100), 100); o[6] = max(a, -b);
     o[7] = min((u32)a, 77u);)
MAP2(shifts_32, u32, u32, u32, 8, o[0] = a << (b & 31); o[1] = a >> (b & 31); o[2] = (s32)a >> (b & 31);
     PTX2("shl.b32", o[3], a, b); PTX2("shr.u32", o[4], a, b); PTX2("shr.s32", o[5], a, b); o[6] = a << 13;
     o[7] = (s32)a >> 7;)
MAP3(funnel_shifts, u32, u32, 6, o[0] = __funnelshift_l(a, b, c); o[1] = __funnelshift_r(a, b, c);
     o[2] = __funnelshift_lc(a, b, c); o[3] = __funnelshift_rc(a, b, c); o[4] = __funnelshift_l(a, b, 11);
     o[5] = __funnelshift_r(a, a, c);)
MAP3(sums_of_differences, u32, u32, 4, o[0] = __usad(a, b, c); o[1] = __sad((s32)a, (s32)b, c);
     o[2] = a > b ? a - b : b - a; PTX3("vabsdiff.u32.u32.u32.add", o[3], a, b, c);)
MAP2(averages, u32, u32, u32, 4, o[0] = __uhadd(a, b); o[1] = __urhadd(a, b); o[2] = __hadd((s32)a, (s32)b);
     o[3] = __rhadd((s32)a, (s32)b);)
MAP2(saturating_s32, s32, s32, s32, 2, PTX2("add.sat.s32", o[0], a, b); PTX2("sub.sat.s32", o[1], a, b);)
MAP3(mad_hi_saturating, s32, s32, 2, PTX3("mad.hi.sat.s32", o[0], a, b, c); PTX3("mad.hi.s32", o[1], a, b, c);)
MAP3(dot_4_bytes, u32, u32, 4, PTX3("dp4a.s32.s32", o[0], a, b, c); PTX3("dp4a.u32.u32", o[1], a, b, c);
     PTX3("dp4a.s32.u32", o[2], a, b, c); PTX3("dp4a.u32.s32", o[3], a, b, c);)
MAP3(dot_2_halfwords, u32, u32, 6, PTX3("dp2a.lo.s32.s32", o[0], a, b, c); PTX3("dp2a.hi.s32.s32", o[1], a, b, c);
     PTX3("dp2a.lo.u32.u32", o[2], a, b, c); PTX3("dp2a.hi.u32.u32", o[3], a, b, c);
     PTX3("dp2a.lo.s32.u32", o[4], a, b, c); PTX3("dp2a.hi.u32.s32", o[5], a, b, c);)
MAP2(carry_chain, u64, u64, u32, 8, u32 al = a; u32 ah = a >> 32; u32 bl = b; u32 bh = b >> 32; asm(
     "add.cc.u32 %0, %4, %6; addc.cc.u32 %1, %5, %7; addc.cc.u32 %2, %4, %7; addc.u32 %3, %5, %6;"
     : "=r"(o[0]), "=r"(o[1]), "=r"(o[2]), "=r"(o[3]) : "r"(al), "r"(ah), "r"(bl), "r"(bh));
     u32 p; u32 q; u32 r; u32 s; asm(
     "sub.cc.u32 %0, %4, %6; subc.cc.u32 %1, %5, %7; subc.cc.u32 %2, %4, %7; subc.u32 %3, %5, %6;"
     : "=r"(p), "=r"(q), "=r"(r), "=r"(s) : "r"(al), "r"(ah), "r"(bl), "r"(bh));
     o[4] = p; o[5] = q; o[6] = r; o[7] = s;)
MAP2(narrow_bytes, s8, u8, s32, 6, o[0] = a + b; o[1] = a * b; o[2] = (s8)(a << 1); o[3] = (u8)(a - b);
     o[4] = a < (s8)b; o[5] = (a >> 2) ^ (b >> 3);)
MAP2(narrow_halfwords, s16, u16, s32, 6, o[0] = a + b; o[1] = a * (s16)b; o[2] = (s16)(a << 3); o[3] = (u16)(a - b);
     o[4] = max(a, (s16)b); o[5] = (s16)(a * b) >> 4;)

// Bytes and halfwords are stored as such.
KERNEL store_narrow(const u32* a, u8* bytes, s16* halfwords, u32 n)
{
    u32 i = INDEX;
    if (i < n) {
        bytes[i] = a[i] * 3;
        halfwords[i] = a[i] >> 5;
    }
}
