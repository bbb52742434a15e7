"""Mutation testing: plants single faults and reports those that no test finds (`make mutants`)."""
