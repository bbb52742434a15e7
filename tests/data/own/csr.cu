// Sparse matrix in compressed rows times a vector: a thread a row.
__global__ void csr(const int *__restrict__ start, const int *__restrict__ column,
                    const float *__restrict__ value, const float *__restrict__ x,
                    float *__restrict__ y, int rows)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0.0f;
#pragma unroll 1
    for (int at = start[row]; at < start[row + 1]; ++at)
        sum += value[at] * x[column[at]];
    y[row] = sum;
}
