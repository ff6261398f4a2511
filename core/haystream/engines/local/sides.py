"""The right-hand sides that share the matrix Λ: two, or three.

Side MEAN is b = Σ w_e d_e β̃_e, whose solution is the adjusted mean at the prior's common mean. Side REMAINING is h
= Σ L_e (1 − ρ_e) β̃_e, whose quadratic form is the part of the variance of what remains that the participants
carry. Where a common mean is learned there is side COMMON, o = Σ w_e β̃_e: what of a move of that mean the data
take back from each participant. All are sums over edges of a coefficient times β̃_e, and change with an edge's data
in the same way."""

MEAN, REMAINING, COMMON = 0, 1, 2
"""Indexes of the sides; the last is there only for a model with a common mean."""
