// Host code only: device code must not use this header.
