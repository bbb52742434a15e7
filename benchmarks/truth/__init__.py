"""Times and counters of many launches: measured on an H200 and modelled by the emulated one."""
