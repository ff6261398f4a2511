"""The models: what a participant's variable means and how an edge's probability depends on it.

What a query may say of them (`settings`, `ranges`) and what edges have in common (`common`) are plain values, which
whoever computes nothing imports, too; `registry` has the models themselves. To add one, write its file and give it
a line in `settings` and one in `registry` (docs/extending.md).
"""

from collections.abc import Mapping

from haystream.events import ModelName, Prior
from haystream.models.settings import MODEL_SETTINGS

DEFAULT_PRIORS: Mapping[ModelName, Prior] = {name: model.defaults for name, model in MODEL_SETTINGS.items()}
"""What a query gets that names its model and nothing else."""
