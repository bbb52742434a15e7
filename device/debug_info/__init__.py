"""What the compiler's debugging information says of kernels, their parameters and variables."""
