"""docs/webhooks.md names the events that an instance's own webhook gets."""

import re

from server.webhooks.deliveries import DELIVERED_EVENTS
from tests.support.processes import ROOT

PAGE = (ROOT / "docs/webhooks.md").read_text()


def test_the_page_names_every_delivered_event_and_no_other():
    sentence = re.findall(r"Events of an instance's own webhook: (.*?)\. `data", PAGE, re.DOTALL)[0]
    named: list[str] = []
    subject = ""
    for name in re.findall(r"`([a-z_.]+)`", sentence):
        first, _, last = name.partition(".")
        subject = first or subject
        named.append(f"{subject}.{last}")

    assert sorted(named) == sorted(DELIVERED_EVENTS)
