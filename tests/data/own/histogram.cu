// How often each byte occurs: counted in shared memory, then added up in global memory.
constexpr int BINS = 256;

extern "C" __global__ void histogram(const unsigned char *bytes, unsigned int *bins, int n)
{
    __shared__ unsigned int mine[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        mine[bin] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(&mine[bytes[i]], 1u);
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        if (mine[bin])
            atomicAdd(&bins[bin], mine[bin]);
}
