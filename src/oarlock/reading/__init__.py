"""Turning what people write into plain data and structs, with messages they can act on."""
