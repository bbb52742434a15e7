// printf is built in; files are for host code only.
