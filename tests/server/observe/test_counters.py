"""Counters and histograms that stay small whatever is counted."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from server.observe.counters import OTHER, SERIES_MAX, Counter, Histogram


@pytest.fixture
def counter() -> Iterator[Counter]:
    made = Counter(f"test_{uuid4().hex}", "For this test.", "kind", "code")
    yield made
    REGISTRY.unregister(made)


@pytest.fixture
def histogram() -> Iterator[Histogram]:
    made = Histogram(f"test_{uuid4().hex}", "For this test.", "kind", bounds=(0.1, 1.0))
    yield made
    REGISTRY.unregister(made)


def test_words_without_end_end_in_one_series(counter: Counter):
    for number in range(SERIES_MAX * 3):
        counter.add("kind", str(number))

    assert counter.of("kind", "0") == 1
    assert counter.of(OTHER, OTHER) == SERIES_MAX * 2
    [family] = counter.collect()
    assert len(family.samples) == SERIES_MAX + 1


def test_what_is_known_is_counted_by_name_even_when_there_are_too_many(counter: Counter):
    for number in range(SERIES_MAX * 2):
        counter.add("kind", str(number))
    counter.add("kind", "0", by=5)

    assert counter.of("kind", "0") == 6


def test_a_histogram_counts_up_to_each_bound(histogram: Histogram):
    for seconds in (0.05, 0.1, 0.5, 100.0):
        histogram.observe(seconds, "one")

    [family] = histogram.collect()
    assert histogram.count("one") == 4
    found = {(each.name.removeprefix(family.name), each.labels.get("le")): each.value for each in family.samples}
    assert found == {
        ("_bucket", "0.1"): 2,
        ("_bucket", "1.0"): 3,
        ("_bucket", "+Inf"): 4,
        ("_count", None): 4,
        ("_sum", None): 100.65,
    }


def test_labels_with_quotes_and_line_ends_can_be_read_again(counter: Counter):
    counter.add('a "quoted"\nword', "\\")

    body = generate_latest(REGISTRY).decode()
    [family] = [each for each in text_string_to_metric_families(body) if each.documentation == "For this test."]
    assert family.samples[0].labels == {"kind": 'a "quoted"\nword', "code": "\\"}
