"""A kernel resolved against the instruction table and prepared for execution."""
