"""A real GPU through PyCUDA: properties, memory, launches and times."""
