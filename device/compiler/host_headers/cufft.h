// Host code only, but for its types of numbers: device code may use these.
#pragma once
#include <cuComplex.h>

typedef float cufftReal;
typedef double cufftDoubleReal;
typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;
