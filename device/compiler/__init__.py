"""CUDA C++ into PTX and machine code: NVRTC, the headers it may read, its cache and its errors."""
