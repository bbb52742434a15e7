// For host code alone: nothing in device code may use it.
