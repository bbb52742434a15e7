// Host code only, but for the types that it brings: device code may use these.
#pragma once
#include <stdint.h>
