// Bits, fields, bytes and the packed operations on bytes and halfwords.
#include "corpus.cuh"

MAP3(logic, u32, u32, 8, o[0] = a & b; o[1] = a | b; o[2] = a ^ b; o[3] = ~a; o[4] = (a & b) | (~a & c);
     o[5] = a ^ b ^ c; o[6] = (a & b) | (a & c) | (b & c); o[7] = (a | 0xff00u) & ~c;)

// Every fifth of the 256 functions of three bits.
#define TABLE(n) asm("lop3.b32 %0, %1, %2, %3, " #n ";" : "=r"(o[n / 5]) : "r"(a), "r"(b), "r"(c));
MAP3(lop3_tables, u32, u32, 52,
     TABLE(0) TABLE(5) TABLE(10) TABLE(15) TABLE(20) TABLE(25) TABLE(30) TABLE(35) TABLE(40) TABLE(45) TABLE(50)
     TABLE(55) TABLE(60) TABLE(65) TABLE(70) TABLE(75) TABLE(80) TABLE(85) TABLE(90) TABLE(95) TABLE(100)
     TABLE(105) TABLE(110) TABLE(115) TABLE(120) TABLE(125) TABLE(130) TABLE(135) TABLE(140) TABLE(145) TABLE(150)
     TABLE(155) TABLE(160) TABLE(165) TABLE(170) TABLE(175) TABLE(180) TABLE(185) TABLE(190) TABLE(195) TABLE(200)
     TABLE(205) TABLE(210) TABLE(215) TABLE(220) TABLE(225) TABLE(230) TABLE(235) TABLE(240) TABLE(245) TABLE(250)
     TABLE(255))

MAP1(count_bits, u32, u32, 8, o[0] = __popc(a); o[1] = __clz(a); o[2] = __ffs(a); o[3] = __brev(a);
     asm("bfind.u32 %0, %1;" : "=r"(o[4]) : "r"(a)); asm("bfind.s32 %0, %1;" : "=r"(o[5]) : "r"(a));
     asm("bfind.shiftamt.u32 %0, %1;" : "=r"(o[6]) : "r"(a)); asm("bfind.shiftamt.s32 %0, %1;" : "=r"(o[7]) : "r"(a));)
MAP3(extract_field, u32, u32, 4, u32 p = b & 255; u32 l = c & 255; PTX3("bfe.u32", o[0], a, p, l);
     PTX3("bfe.s32", o[1], a, p, l); o[2] = (a >> 5) & 0x7ff; o[3] = (s32)(a << 9) >> 17;)
MAP3(insert_field, u32, u32, 2, u32 p = c & 255; u32 l = (c >> 8) & 255;
     asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(o[0]) : "r"(a), "r"(b), "r"(p), "r"(l));
     asm("bfi.b32 %0, %1, %2, 7, 12;" : "=r"(o[1]) : "r"(a), "r"(b));)
MAP2(bit_masks, u32, u32, u32, 2, PTX2("bmsk.clamp.b32", o[0], a, b); PTX2("bmsk.wrap.b32", o[1], a, b);)
MAP2(sign_extensions, u32, u32, u32, 4, PTX2("szext.clamp.s32", o[0], a, b); PTX2("szext.wrap.s32", o[1], a, b);
     PTX2("szext.clamp.u32", o[2], a, b); PTX2("szext.wrap.u32", o[3], a, b);)
MAP3(permute_bytes, u32, u32, 9, o[0] = __byte_perm(a, b, c); o[1] = __byte_perm(a, b, 0x5410);
     o[2] = __byte_perm(a, b, 0x0123); PTX3("prmt.b32.f4e", o[3], a, b, c); PTX3("prmt.b32.b4e", o[4], a, b, c);
     PTX3("prmt.b32.rc8", o[5], a, b, c); PTX3("prmt.b32.ecl", o[6], a, b, c); PTX3("prmt.b32.ecr", o[7], a, b, c);
     PTX3("prmt.b32.rc16", o[8], a, b, c);)

MAP2(packed_sums, u32, u32, u32, 5, o[0] = __vadd2(a, b); o[1] = __vadd4(a, b); o[2] = __vsub2(a, b);
     o[3] = __vsub4(a, b); o[4] = __vaddss2(a, b);)
MAP2(packed_extremes, u32, u32, u32, 6, o[0] = __vmaxs2(a, b); o[1] = __vminu4(a, b); o[2] = __vmaxs4(a, b);
     o[3] = __vminu2(a, b); o[4] = __vabs4(a); o[5] = __vavgu4(a, b);)
MAP2(packed_comparisons, u32, u32, u32, 4, o[0] = __vcmpgts4(a, b); o[1] = __vcmpeq2(a, b); o[2] = __vcmpltu4(a, b);
     o[3] = __vsetges2(a, b);)
MAP3(packed_differences, u32, u32, 5, o[0] = __vabsdiffu4(a, b); o[1] = __vsadu4(a, b); o[2] = __vsads4(a, b);
     PTX3("vabsdiff4.u32.u32.u32.add", o[3], a, b, c); PTX3("vabsdiff.s32.s32.s32.add", o[4], a, b, c);)

// Words to nibbles and bytes that hold what they can.
MAP3(pack_saturating, s32, u32, 6, PTX2("cvt.pack.sat.s16.s32", o[0], a, b); PTX2("cvt.pack.sat.u16.s32", o[1], a, b);
     PTX3("cvt.pack.sat.s8.s32.b32", o[2], a, b, c); PTX3("cvt.pack.sat.u8.s32.b32", o[3], a, b, c);
     PTX3("cvt.pack.sat.s4.s32.b32", o[4], a, b, c);
     PTX3("cvt.pack.sat.u4.s32.b32", o[5], a, b, c);)
