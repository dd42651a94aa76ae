"""The index returns exactly what a scan of all instances returns."""

from hypothesis import given, settings
from hypothesis import strategies as st

from server.simulator.instance_index import InstanceIndex
from server.simulator.models import Instance

# Few letters, so that pieces of names repeat and overlap.
NAMES = st.text("ab-", max_size=24)
STATUSES = st.sampled_from(["pulling", "running", "exited"])


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(NAMES, STATUSES, st.booleans()), max_size=40),
    needle=st.text("abAB-", max_size=14),
    status=st.sampled_from(["", "pulling", "running", "exited"]),
    start=st.integers(0, 12),
    size=st.integers(1, 12),
)
def test_any_filter_and_page_is_what_a_plain_walk_gives(
    rows: list[tuple[str, str, bool]], needle: str, status: str, start: int, size: int
):
    index = InstanceIndex()
    kept: list[Instance] = []
    for seq, (name, state, stays) in enumerate(rows):
        instance = make(seq, name)
        index.add(instance)
        before, instance.status = instance.status, state
        index.move(instance, before)
        if stays:
            kept.append(instance)
        else:
            index.remove(instance)

    page, total = index.page(start, size, name=needle, status=status)

    expected = [each for each in reversed(kept) if needle.lower() in each.name.lower() and status in ("", each.status)]
    assert total == len(expected)
    assert [each.seq for each in page] == [each.seq for each in expected[start : start + size]]
    assert len(index) == len(kept)


def test_an_instance_that_is_listed_late_takes_its_place_by_age():
    index = InstanceIndex()
    for seq in (1, 3, 2):
        index.add(make(seq, f"instance-{seq}"))

    page, _ = index.page(0, 10)
    found, _ = index.page(0, 10, name="instance-2")

    assert [each.seq for each in page] == [3, 2, 1]
    assert [each.seq for each in found] == [2]


def make(seq: int, name: str) -> Instance:
    return Instance(
        id=str(seq),
        seq=seq,
        name=name,
        kind="gpu",
        product_id="p",
        product_name="P",
        cluster_id="c",
        cluster_name="C",
        cpu_num=1,
        memory=1,
        gpu_num=1,
        rootfs_size=10,
        max_rootfs=10,
        image_url="i",
        image_auth_id="",
        command="",
        entrypoint="",
        billing_mode="onDemand",
        price=1,
        created_at=0,
    )
