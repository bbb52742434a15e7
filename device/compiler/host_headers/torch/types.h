// Host code only, but for the types of numbers, which device code may use.
#pragma once
#include <ATen/ATen.h>
