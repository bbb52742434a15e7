"""The launches that the host code of a file makes, with the sizes that it gives them."""
