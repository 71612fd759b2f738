"""Holdfast inside of frameworks: a module for each, on the public face, imported only by its users."""
