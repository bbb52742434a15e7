"""Compilation of CUDA C++ to PTX and machine code: NVRTC, headers, the cache and the errors."""
