// One step of the motion of particles, which are stored in two ways.

struct Particle {
  float x, y, z, vx, vy, vz, mass;
};

__global__ void structures(Particle* all, int n, float dt) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    all[i].x += all[i].vx * dt;
    all[i].y += all[i].vy * dt;
    all[i].z += all[i].vz * dt;
  }
}

__global__ void arrays(float* position, const float* velocity, int n, float dt) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    for (int axis = 0; axis < 3; axis++) {
      position[axis * n + i] += velocity[axis * n + i] * dt;
    }
  }
}
