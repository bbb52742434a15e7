"""The datasheets: one TOML file per GPU, in which every figure has a source."""
