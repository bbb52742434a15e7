// memcpy and memset are built in; the other functions are for host code only.
