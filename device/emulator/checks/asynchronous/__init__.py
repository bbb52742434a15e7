"""What `check` finds of asynchronous copies and products."""
