"""The command line: options, output and kernels as sub-commands, shared by the commands."""
