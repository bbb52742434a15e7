// y = a x + y in double precision.
extern "C" __global__ void daxpy(double a, const double *x, double *y, size_t n)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}
