"""A module for each store that can be simulated, with `plan` and `VARIANTS`: docs/simulator.md."""
