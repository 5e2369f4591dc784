"""What runs leave behind, and the numbers taken from it, with vLLM's names and definitions."""
