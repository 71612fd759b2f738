"""Measurements of Holdfast beside raw floors and other libraries. See README.md."""
