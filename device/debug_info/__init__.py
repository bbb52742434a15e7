"""Debug information in compiled code: kernels, their parameters, and the layouts of variables."""
