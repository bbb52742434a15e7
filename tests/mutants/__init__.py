"""Single faults planted in the house, and which of them its tests find: `make mutants`."""
