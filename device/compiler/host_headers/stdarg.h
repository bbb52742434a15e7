// Device functions take no variable arguments, and va_list is built in.
