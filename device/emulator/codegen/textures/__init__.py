"""The fetches of textures, as part of the runtime."""
