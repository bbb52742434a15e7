// An array of structures, 28 bytes each: a step of motion with gravity.
struct Particle {
    float x, y, z, vx, vy, vz, mass;
};

__global__ void particles(Particle *all, int n, float dt)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Particle &me = all[i];
    me.vz -= 9.81f * dt;
    me.x += me.vx * dt;
    me.y += me.vy * dt;
    me.z += me.vz * dt;
}
