"""PTX text, parsed into instructions."""
