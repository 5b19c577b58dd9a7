"""Compares what producers say they published with what consumers say they received."""
