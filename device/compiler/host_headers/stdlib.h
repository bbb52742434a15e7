// malloc, free and abs are built in; exit, rand and others are for host code only.
#include <stddef.h>
#include <sys/types.h>
