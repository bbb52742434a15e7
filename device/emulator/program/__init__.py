"""A kernel decoded by the instruction table and prepared for execution."""
