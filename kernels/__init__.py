"""The kernels to launch: `.cu` files with one idea each, and their launches and references."""
