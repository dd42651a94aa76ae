from tests.server.webhooks.receiver import receiver
from tests.world import world

__all__ = ["receiver", "world"]
