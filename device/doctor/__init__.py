"""What this machine has, what works on it, and what to do about the rest."""
