// Softmax of each row of a matrix, a block a row: the largest, the sum, the quotients.
#include <cuda_fp16.h>

__device__ float across(float value, bool largest)
{
    __shared__ float parts[32];
    for (int offset = 16; offset > 0; offset /= 2) {
        float other = __shfl_xor_sync(0xffffffff, value, offset);
        value = largest ? fmaxf(value, other) : value + other;
    }
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp)
        value = largest ? fmaxf(value, parts[warp]) : value + parts[warp];
    __syncthreads();
    return value;
}

__global__ void softmax(const __half *in, float *out, int columns)
{
    const __half *row = in + (size_t)blockIdx.x * columns;
    float largest = -65504.0f, sum = 0.0f;  // the lowest __half
#pragma unroll 1
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        largest = fmaxf(largest, __half2float(row[i]));
    largest = across(largest, true);
#pragma unroll 1
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        sum += expf(__half2float(row[i]) - largest);
    sum = across(sum, false);
#pragma unroll 1
    for (int i = threadIdx.x; i < columns; i += blockDim.x)
        out[(size_t)blockIdx.x * columns + i] = expf(__half2float(row[i]) - largest) / sum;
}
