"""Rules that stand in for an analyst: what a message says decides whether it is relevant.

A mail archive holds no verdicts. The demo and experiments need a known truth, and take it from such a rule.
"""

import re

from haystream_service.importers.contents import parsed, part_text, subject

MONEY_OR_FINANCE = re.compile(r"\b(money|finance)\b", re.IGNORECASE)


def money_or_finance(message: bytes) -> bool:
    """The paper's rule for mail: relevant if the subject or the body has the word "money" or "finance".

    Upper and lower case are the same; parts of longer words ("financed", "moneys") do not count. The body is
    every text part that is no attachment, decoded; of HTML what is to be seen.
    """
    mail = parsed(message)
    return any(MONEY_OR_FINANCE.search(text) for text in (subject(mail), *map(part_text, mail.walk())))
