"""One thread followed through a launch: its accesses, its block's phases, the records."""
