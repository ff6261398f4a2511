"""What nobody waits for is waited with for a moment, so that more is saved and published in one go."""

from haystream.events import LeaseFact
from haystream_service.worker.batch import Delivery
from haystream_service.worker.clock import Clock
from haystream_service.worker.folding import SPARE_OFFERS
from haystream_service.worker.mailbox import Mailbox

GATHER_SECONDS = 0.25
"""For so long, or `item_publish_seconds` if that is less, what analysts were handed waits for more to be saved and
published with. The store has known since the claim who has what."""
MOST_GATHERED = SPARE_OFFERS // 4
"""So many make it due at once: what is offered in the store must not run short."""


async def gather(deliveries: list[Delivery], mailbox: Mailbox[Delivery], clock: Clock, *, pace: float) -> None:
    """Add what comes within a moment, or `pace` seconds, where all that is there can wait so long; a verdict, say,
    ends that."""
    over = clock.monotonic() + min(GATHER_SECONDS, pace)
    while 0 < len(deliveries) < MOST_GATHERED and all(map(_can_wait, deliveries)):
        if (left := over - clock.monotonic()) <= 0:
            return
        await mailbox.until_due(left)
        if not (taken := mailbox.take()):
            return
        deliveries += taken


def _can_wait(delivery: Delivery) -> bool:
    """Whether nobody waits for the delivery: an item that was handed to somebody is not offered in any case."""
    return isinstance(delivery.event, LeaseFact) and not delivery.event.action.ends
