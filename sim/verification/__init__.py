"""Verification rules: which drafts the target keeps, exactly, on explicit distributions. Nothing here simulates."""
