#pragma once
// What the host's C library defines there, on Linux, of the kind that device code uses.
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned long ulong;
