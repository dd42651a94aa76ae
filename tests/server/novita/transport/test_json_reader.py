"""Decoding a response without trusting it."""

from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.novita.models import (
    Cluster,
    CpuProduct,
    InstanceMetrics,
    Job,
    Network,
    NetworkStorage,
    Prewarm,
    PrewarmQuota,
    Product,
    RegistryAuth,
    RemoteInstance,
    Template,
    find_cluster,
)
from server.novita.transport.json_reader import InvalidResponse, JsonReader

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("raw", "number"),
    [
        (7, 7),
        ("7", 7),
        ("-1", -1),
        ("35000.0", 35000),
        (35000.0, 35000),
        (0, 0),
        ("", None),
        (None, None),
        ("seven", None),
        (1.5, None),
        ("1.5", None),
        (True, None),
        ([], None),
        ("٣", None),
        ("9" * 19, None),
        ("9" * 5000, None),
        (1e300, None),
    ],
)
def test_a_number_comes_as_a_number_or_as_a_string(raw: object, number: int | None):
    assert JsonReader({"n": raw}).integer("n") == number


def test_unset_is_missing_null_empty_or_senseless():
    fields = JsonReader({"null": None, "empty": "", "list": [], "object": {}})
    for name in ("missing", "null", "empty", "list", "object"):
        assert fields.optional_text(name) is None
        assert fields.text(name) == ""
        assert fields.time(name) is None
        assert fields.flag(name, default=True)


def test_a_time_is_unix_seconds_and_0_and_minus_1_are_none():
    fields = JsonReader({"t": "1760000000", "zero": "0", "never": "-1", "far": str(2**62)})
    assert fields.time("t") == datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC)
    assert [fields.time(name) for name in ("zero", "never", "far")] == [None, None, None]


def test_a_list_that_is_null_is_empty_and_a_lone_object_is_a_list_of_one():
    fields = JsonReader({"null": None, "one": {"a": 1}, "bad": [1], "worse": "x"})
    assert fields.objects("null") == []
    assert [each.integer("a") for each in fields.objects("one")] == [1]
    for name in ("bad", "worse"):
        with pytest.raises(InvalidResponse):
            fields.objects(name)


def test_a_list_answer_without_its_key_is_unreadable_unless_it_counts_zero():
    with pytest.raises(InvalidResponse):
        JsonReader({}).items("instances")
    with pytest.raises(InvalidResponse):
        JsonReader({"total": 3}).items("instances")
    assert JsonReader({"total": "0"}).items("instances") == []
    assert JsonReader({"instances": None}).items("instances") == []


def test_the_repr_of_an_answer_shows_names_only():
    assert repr(JsonReader({"password": "hunter22"})) == "<Fields ['password']>"


def test_an_instance_of_the_documents_is_read_whole():
    instance = RemoteInstance.read(
        JsonReader(
            {
                "id": "3560b7fec915bbf9",
                "name": "trainer-1",
                "clusterId": "us-ca-6",
                "clusterName": "US-CA-06 (California)",
                "status": "hibernating",
                "cpuNum": "16",
                "memory": "62",
                "gpuNum": "1",
                "portMappings": [
                    {"port": 8888, "type": "http", "endpoint": "https://x-8888.example.test"},
                    {"port": "22", "type": "tcp", "endpoint": ""},
                ],
                "statusError": {"state": "PullFailed", "message": "no such image"},
                "spotStatus": "notified",
                "spotReclaimTime": "1760000000",
                "instancePrice": "17500",
                "billingMode": "",
                "node": [{"maxRootfsSize": 1}],
                "jobs": [{"type": "saveImage"}],
                "volumeMounts": [{"type": "network", "size": 100, "id": "b1", "mountPath": "/network"}],
                "sshCommand": "ssh -p 1 root@h",
                "sshPassword": "hunter22",
                "aFieldOfTomorrow": {"x": [1]},
            }
        )
    )
    assert (instance.status, instance.region, instance.cluster_id) == ("hibernating", "US-CA-06", "us-ca-6")
    assert (instance.gpu_count, instance.cpu_count, instance.memory_gb) == (1, 16, 62)
    assert [(e.port, e.type, e.address) for e in instance.endpoints] == [
        (8888, "http", "https://x-8888.example.test"),
        (22, "tcp", None),
    ]
    assert instance.status_error is not None
    assert instance.status_error.message == "no such image"
    assert instance.spot_reclaim_at == datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC)
    assert (instance.price_e5, instance.billing_mode, instance.jobs) == (17500, None, ("saveImage",))
    assert instance.volumes[0].size_gb == 100
    assert instance.ssh is not None
    assert instance.ssh.password is not None
    assert instance.ssh.password.get_secret_value() == "hunter22"
    assert instance.ssh.is_running
    assert "hunter22" not in repr(instance)


def product(**fields: object) -> Product | None:
    return Product.read(JsonReader({"id": "4090.16c62g", "name": "RTX 4090 24GB", "price": "35000", **fields}))


def test_a_products_prices_are_integers_of_a_hundred_thousandth_of_a_dollar():
    found = product(
        spotPrice="17500",
        billingMethods=["onDemand", "spot"],
        regions=["US-CA-06 (California)", "EU-GB-01"],
        monthlyPrice=[{"price": "23000000", "month": 1}],
    )
    assert found is not None
    assert (found.price_per_gpu_hour_e5, found.spot_price_per_gpu_hour_e5) == (35000, 17500)
    assert found.regions == ("US-CA-06", "EU-GB-01")
    assert found.monthly_prices[0].price_per_gpu_e5 == 23000000
    assert found.vram_gb == 24


@pytest.mark.parametrize("spot", ["0", "", None, 0, "-5"])
def test_a_spot_price_of_nothing_is_no_spot_price(spot: object):
    found = product(spotPrice=spot, billingMethods=["onDemand", "spot"])
    assert found is not None
    assert found.spot_price_per_gpu_hour_e5 is None


def test_a_spot_price_without_the_spot_billing_method_is_not_believed():
    found = product(spotPrice="17500", billingMethods=["onDemand"])
    assert found is not None
    assert found.spot_price_per_gpu_hour_e5 is None


def test_a_product_without_a_price_is_left_out_rather_than_being_the_cheapest():
    assert product(price="") is None


def test_a_region_is_found_by_code_name_or_id_in_the_providers_own_list_only():
    clusters = [
        Cluster.read(JsonReader({"id": "us-ca-6", "name": "US-CA-06 (California)"})),
        Cluster.read(JsonReader({"id": "cn-hongkong-1", "name": "CN-HK-01"})),
    ]
    for region in ("CN-HK-01", "cn-hk-01", "cn-hongkong-1"):
        found = find_cluster(clusters, region)
        assert found is not None
        assert found.id == "cn-hongkong-1"
    assert find_cluster(clusters, "US-CA-06 (California)") is clusters[0]
    assert clusters[0].place == "California"
    assert find_cluster(clusters, "US-CA") is None
    assert find_cluster(clusters, "cn-hk-1") is None


READERS = [
    Cluster.read,
    CpuProduct.read,
    InstanceMetrics.read,
    Job.read,
    Network.read,
    NetworkStorage.read,
    Prewarm.read,
    PrewarmQuota.read,
    Product.read,
    RegistryAuth.read,
    RemoteInstance.read,
    Template.read,
]
KNOWN = """
id Id name status price billingMethods regions monthlyPrice portMappings envs tools volumeMounts volumes ports
statusError jobs state network Addresses connectComponentSSH createdAt endTime cpuUtilization gpuUtilization template
instancePrice spotReclaimTime storageId productIds availableGpuType
"""
NAMES = st.sampled_from(KNOWN.split())


@given(raw=st.dictionaries(NAMES, ANYTHING, max_size=12), reader=st.sampled_from(READERS))
def test_fields_of_any_type_are_read_or_called_unreadable(raw: dict[str, object], reader: object):
    assert callable(reader)
    with suppress(InvalidResponse):
        repr(reader(JsonReader(raw)))
