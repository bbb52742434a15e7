"""The meaning of a result: ceilings, placement under them, units and the glossary."""
