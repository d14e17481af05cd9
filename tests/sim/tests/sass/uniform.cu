// An indexed branch that all threads of a warp take to the same place: BRXU.
extern "C" __global__ void uniform_branch(unsigned* out, unsigned op)
{
    unsigned x = threadIdx.x;
    asm volatile("{\n"
                 "targets: .branchtargets one, two, three, four;\n"
                 "brx.idx.uni %1, targets;\n"
                 "one: add.u32 %0, %0, 1; bra.uni done;\n"
                 "two: mul.lo.u32 %0, %0, 3; bra.uni done;\n"
                 "three: not.b32 %0, %0; bra.uni done;\n"
                 "four: brev.b32 %0, %0;\n"
                 "done:\n"
                 "}" : "+r"(x) : "r"(op));
    out[threadIdx.x] = x;
}
