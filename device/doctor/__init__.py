"""The state of this machine: what it has, what works, and advice about the rest."""
