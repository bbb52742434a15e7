"""Arguments of user kernels: texts and values of Python, parsed and bound to parameters."""
