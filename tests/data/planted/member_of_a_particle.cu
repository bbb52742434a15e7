// Particles as structures in global memory: the loop over three coordinates takes one step more,
// from the positions to the velocities, and from these to the mass.
//
// launch: --grid 2 --block 32 --arg inout:f32[448]
// beyond compute-sanitizer: the address is inside the structure
struct Particle {
  float position[3], velocity[3];
  float mass;
  __device__ void move(float time) {
#ifdef FIXED
    for (int k = 0; k < 3; ++k)
#else
    for (int k = 0; k <= 3; ++k)
#endif
      position[k] += time * velocity[k];  // BUG memcheck: out of bounds
  }
};
__global__ void step(Particle* particles) {
  particles[blockIdx.x * blockDim.x + threadIdx.x].move(0.5f);
}
