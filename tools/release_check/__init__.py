"""The trial of a package before it is released: `make package`."""
