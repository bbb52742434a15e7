#pragma once
// The types of the host's C library on Linux that device code uses.
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned long ulong;
