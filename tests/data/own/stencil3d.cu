// Heat flow: the seven-point stencil on the inside of a box.
__global__ void stencil3d(const float *in, float *out, int nx, int ny, int nz, float c)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x == 0 || y == 0 || z == 0 || x >= nx - 1 || y >= ny - 1 || z >= nz - 1)
        return;
    int at = (z * ny + y) * nx + x;
    float here = in[at];
    float around = in[at - 1] + in[at + 1] + in[at - nx] + in[at + nx]
                 + in[at - nx * ny] + in[at + nx * ny];
    out[at] = here + c * (around - 6.0f * here);
}
