"""What tests need of each world: `aio` for those that are written, `threads` for their twins."""
