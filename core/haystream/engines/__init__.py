"""The engines: `reference` (the paper's lemmas as printed, dense) and `local` (the linear form, sparse)."""
