// Host code only, but for the types of numbers of cufft.h.
#pragma once
#include <cufft.h>
