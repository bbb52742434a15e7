"""One TOML file a GPU; each figure carries its source."""
