"""How many tokens to draft for the next step; one file per rule."""
