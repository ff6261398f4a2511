"""The paper's own experiments (section 5), run anew: numbers as JSON, figures like the paper's."""
