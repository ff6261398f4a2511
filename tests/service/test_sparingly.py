"""Logs while a server is away."""

import logging

from haystream_service.sparingly import FIRST_OF_A_KIND, STRETCH_SECONDS, Sparingly


def test_what_comes_again_and_again_is_shown_a_few_times_a_minute_and_counted() -> None:
    now = [0.0]
    sparingly = Sparingly(lambda: now[0])
    shown: list[str] = []

    def log(name: str, level: int, text: str, *args: object) -> None:
        record = logging.LogRecord(name, level, __file__, 1, text, args, None)
        if sparingly.filter(record):
            shown.append(record.getMessage())

    for number in range(100):
        log("aiokafka", logging.WARNING, "cannot reach node %d", number)
    log("aiokafka", logging.WARNING, "another thing")
    log("other", logging.WARNING, "cannot reach node %d", 7)
    assert shown == [
        *(f"cannot reach node {n}" for n in range(FIRST_OF_A_KIND)),
        "another thing",
        "cannot reach node 7",
    ]
    now[0] += STRETCH_SECONDS + 1
    log("aiokafka", logging.WARNING, "cannot reach node %d", 8)
    log("aiokafka", logging.WARNING, "another thing")
    assert shown[-2:] == [f"cannot reach node 8 ({100 - FIRST_OF_A_KIND} more of the kind since)", "another thing"]
    for _ in range(2 * FIRST_OF_A_KIND):
        log("worker", logging.CRITICAL, "the end")
    assert shown.count("the end") == 2 * FIRST_OF_A_KIND
