"""Writing packed folders, and keeping them in the user's cache."""
