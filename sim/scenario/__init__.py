"""What a user may write, how it is read and checked, and how it becomes live objects."""
