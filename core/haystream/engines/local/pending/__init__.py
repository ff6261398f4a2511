"""Pending screenings: items that somebody has been handed, and nobody has judged. They move variances alone."""
