// malloc, free and abs are built in; exit, rand and the like are the host's.
#include <stddef.h>
#include <sys/types.h>
