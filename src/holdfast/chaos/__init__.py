"""Chaos: real stores, real faults, and a history that is checked."""
