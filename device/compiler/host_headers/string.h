// memcpy and memset are built in; the other functions are the host's.
