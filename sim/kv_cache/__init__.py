"""The paged KV pool as counts of blocks."""
