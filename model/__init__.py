"""A model of Redlock with fencing tokens, searched exhaustively for small sizes. See README.md."""
