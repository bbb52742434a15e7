"""A launch checked for mistakes, and the records of what was found."""
