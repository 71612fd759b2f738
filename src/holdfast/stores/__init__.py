"""The stores: a folder for each, which holds all of it, and what they share.

`urls` says which folder a URL's scheme names; `_async.contract` (and its blocking twin) says what each
store has to do. A store knows itself and that contract, and nothing of the engine.
docs/adding-a-store.md tells how to add one.
"""
