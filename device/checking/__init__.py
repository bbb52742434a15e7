"""The checks of a launch in the emulator, and the records of their findings."""
