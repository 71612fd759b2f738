"""The documentation as a site: `make docs` builds it out of docs/, without changing anything there."""
