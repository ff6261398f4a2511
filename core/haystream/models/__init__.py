"""The models: what a participant's variable means and how an edge's probability depends on it."""
