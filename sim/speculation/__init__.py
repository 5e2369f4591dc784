"""Speculation methods: what drafts, and what that costs; one file per method."""
