"""What is launched: `.cu` files, one idea each, and what each needs to be launched and checked."""
