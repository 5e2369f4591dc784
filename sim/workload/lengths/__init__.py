"""Distributions of prompt and output lengths; one file per kind."""
