"""What the API and the documentation say about a stop is what one place says."""

import re

from server.lifetimes.stop_effects import DELETE_KEEPS, KEPT_DAYS, STOP_KEEPS
from tests.support.processes import ROOT


def test_the_api_and_the_documentation_say_what_a_stop_and_a_delete_keep():
    _, _, values = (ROOT / "schema/schema.graphql").read_text().partition("enum LifetimeAction ")
    described = " ".join(values[:600].split())
    assert STOP_KEEPS in described
    assert DELETE_KEEPS in described
    page = " ".join((ROOT / "docs/lifetimes.md").read_text().split())
    assert re.findall(r"names (\d+) days", page) == [str(KEPT_DAYS)]
    assert DELETE_KEEPS in page
