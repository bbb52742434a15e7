// printf is built in; files are the host's.
