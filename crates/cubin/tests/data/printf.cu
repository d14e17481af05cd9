// Needs the run time of CUDA.
extern "C" __global__ void hello(int n)
{
    printf("%d\n", n);
}
