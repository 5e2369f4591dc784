"""draft_length."""
