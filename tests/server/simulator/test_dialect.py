"""Every open question about the provider can be answered either way; all clients accept the default."""

from pathlib import Path
from typing import Any

import pytest

from server.simulator.dialect import BadDialect, Dialect, FirstPage, ListPorts, NameFilter, NotFound, Total, VerbBody
from server.simulator.options import SimulatorOptions
from tests.server.simulator.account import PREFIX, Account, creation, open_account


async def in_dialect(account: Account, **fields: Any) -> None:
    shown = await account.control("POST", "/dialect", **fields)
    assert {name: shown[name] for name in fields} == fields


async def names(account: Account, **query: str | int) -> list[str]:
    status, answer = await account.get("/gpu/instances", **query)
    assert status == 200, answer
    return [each["name"] for each in answer["instances"]]


async def send(account: Account, path: str, **body: object) -> tuple[int, str | None, bytes]:
    """(status, content type, body) as they are on the wire."""
    async with account.session.post(account.simulator.url + PREFIX + path, json=body) as answer:
        return answer.status, answer.headers.get("Content-Type"), await answer.read()


@pytest.mark.parametrize(
    ("first_page", "pages"),
    [
        (FirstPage.BOTH, {0: ["c", "b"], 1: ["c", "b"], 2: ["a"], 3: []}),
        (FirstPage.ZERO, {0: ["c", "b"], 1: ["a"], 2: []}),
        (FirstPage.ONE, {1: ["c", "b"], 2: ["a"], 3: []}),
    ],
)
async def test_pages_are_counted_from_the_first_page(account: Account, first_page: str, pages: dict[int, list[str]]):
    for name in "abc":
        await account.create(name=name)
    await in_dialect(account, first_page=first_page)

    seen = {number: await names(account, pageNum=number, pageSize=2) for number in pages}

    assert seen == pages
    assert await names(account, pageSize=2) == ["c", "b"]


async def test_page_0_is_refused_where_pages_begin_with_1(account: Account):
    await in_dialect(account, first_page="1")
    status, answer = await account.get("/gpu/instances", pageNum=0, pageSize=2)
    assert (status, answer["reason"]) == (400, "VALIDATOR_PARAM")


async def test_the_page_base_holds_for_every_list(account: Account):
    await in_dialect(account, first_page="0")
    for path, number_name, key in (
        ("/templates", "pageNum", "template"),
        ("/networks", "pageNum", "networks"),
        ("/networkstorages/list", "pageNo", "data"),
        ("/jobs", "pageNum", "jobs"),
        ("/image/prewarm", "page", "data"),
    ):
        status, answer = await account.get(path, **{number_name: 1, "pageSize": 100})
        assert (status, answer[key]) == (200, []), path


@pytest.mark.parametrize(("caps", "status", "count"), [(False, 400, None), (True, 200, 2)])
async def test_a_page_that_is_too_large_is_refused_or_shortened(account: Account, caps: bool, status: int, count: int):
    for name in "abc":
        await account.create(name=name)
    await in_dialect(account, max_page_size=2, caps_page_size=caps)

    answered, answer = await account.get("/gpu/instances", pageSize=3)

    assert answered == status
    assert len(answer["instances"]) == count if count else answer["reason"] == "VALIDATOR_PARAM"


@pytest.mark.parametrize(
    ("name_filter", "found"),
    [
        (NameFilter.SUBSTRING, ["my-trainer", "trainer-20", "trainer-2"]),
        (NameFilter.PREFIX, ["trainer-20", "trainer-2"]),
        (NameFilter.EXACT, []),
        (NameFilter.IGNORED, ["other", "my-trainer", "trainer-20", "trainer-2"]),
    ],
)
async def test_the_name_filter_selects_as_the_dialect_says(account: Account, name_filter: str, found: list[str]):
    for name in ("trainer-2", "trainer-20", "my-trainer", "other"):
        await account.create(name=name)
    await in_dialect(account, name_filter=name_filter)

    assert await names(account, name="Trainer") == found


async def test_an_exact_filter_finds_the_whole_name_only(account: Account):
    for name in ("trainer-2", "trainer-20"):
        await account.create(name=name)
    await in_dialect(account, name_filter="exact")
    assert await names(account, name="TRAINER-2") == ["trainer-2"]


@pytest.mark.parametrize(
    ("total", "shown"), [(Total.NUMBER, 3), (Total.TEXT, "3"), (Total.OF_PAGE, 2), (Total.MISSING, None)]
)
async def test_the_total_has_the_form_of_the_dialect(account: Account, total: str, shown: object):
    for name in "abc":
        await account.create(name=name)
    await in_dialect(account, total=total)

    _, answer = await account.get("/gpu/instances", pageSize=2)

    assert answer.get("total") == shown
    assert ("total" in answer) is (total != Total.MISSING)


@pytest.mark.parametrize(
    ("verb_body", "status", "body"),
    [
        (VerbBody.OBJECT, 200, b"{}"),
        (VerbBody.ENVELOPE, 200, b'{"code":0,"message":"success","data":null}'),
        (VerbBody.OK, 200, b"OK"),
        (VerbBody.NULL, 200, b"null"),
        (VerbBody.EMPTY, 200, b""),
        (VerbBody.NO_CONTENT, 204, b""),
    ],
)
async def test_every_verb_answers_with_the_body_of_the_dialect(
    account: Account, verb_body: str, status: int, body: bytes
):
    instance_id = await account.running()
    await in_dialect(account, verb_body=verb_body)
    answers = []

    async def verb(name: str, wait: float = 12, **fields: object) -> None:
        answers.append((await send(account, f"/gpu/instance/{name}", instanceId=instance_id, **fields))[::2])
        account.time.passed += wait

    await verb("edit", expandRootDisk=1)
    await verb("restart")
    await verb("upgrade", imageUrl="ubuntu:24.04")
    await verb("migrate")
    await verb("stop")
    await verb("start")
    await verb("delete", wait=0)

    assert answers == [(status, body)] * 7
    assert (await account.instance(instance_id))["status"] == "toRemove"


async def test_a_204_has_neither_body_nor_content_type(account: Account):
    instance_id = await account.create()
    await account.faults({"kind": "error", "status": 204, "times": 1})

    assert await send(account, "/gpu/instance/start", instanceId=instance_id) == (204, None, b"")
    # The connection is still usable: nothing was sent behind the headers.
    assert (await account.instance(instance_id))["name"] == "trainer-1"


@pytest.mark.parametrize(
    ("list_ports", "shown"),
    [
        (ListPorts.NO_ENDPOINTS, [{"port": 8888, "type": "http"}, {"port": 22, "type": "tcp"}]),
        (ListPorts.NONE, None),
    ],
)
async def test_the_list_may_say_less_about_ports_than_a_get(account: Account, list_ports: str, shown: object):
    instance_id = await account.running()
    await in_dialect(account, list_ports=list_ports)

    _, listed = await account.get("/gpu/instances")

    assert listed["instances"][0].get("portMappings") == shown
    assert listed["instances"][0]["connectComponentJupyter"]["address"] == ""
    assert all(each["endpoint"] for each in (await account.instance(instance_id))["portMappings"])


async def test_an_edit_becomes_visible_late_and_repeated_growth_adds_up(account: Account):
    instance_id = await account.running()
    await in_dialect(account, edit_delay=5)
    for _ in range(2):
        await account.post("/gpu/instance/edit", instanceId=instance_id, expandRootDisk=10)
    await account.post("/gpu/instance/edit", instanceId=instance_id, ports=[{"port": 80, "type": "http"}])

    account.time.passed += 4.9
    before = await account.instance(instance_id)
    account.time.passed += 0.2
    after = await account.instance(instance_id)

    assert (before["rootfsSize"], [each["port"] for each in before["portMappings"]]) == (60, [8888, 22])
    assert (after["rootfsSize"], [each["port"] for each in after["portMappings"]]) == (80, [80])


async def test_growth_that_is_not_visible_yet_counts_towards_the_limit(account: Account):
    instance_id = await account.running(rootfsSize=6000)
    await in_dialect(account, edit_delay=5)
    first, _ = await account.post("/gpu/instance/edit", instanceId=instance_id, expandRootDisk=100)
    second, _ = await account.post("/gpu/instance/edit", instanceId=instance_id, expandRootDisk=100)
    assert (first, second) == (200, 400)


async def test_a_stop_does_not_undo_an_accepted_edit(account: Account):
    instance_id = await account.running()
    await in_dialect(account, edit_delay=5)
    await account.post("/gpu/instance/edit", instanceId=instance_id, expandRootDisk=10)
    await account.post("/gpu/instance/stop", instanceId=instance_id)

    account.time.passed += 12

    shown = await account.instance(instance_id)
    assert (shown["status"], shown["rootfsSize"]) == ("exited", 70)


async def test_extra_ports_stand_beside_the_requested_ones(account: Account):
    await in_dialect(account, extra_ports="2222/tcp+9999/http")

    instance_id = await account.running(ports="80/http")

    shown = (await account.instance(instance_id))["portMappings"]
    assert [(each["port"], each["type"], bool(each["endpoint"])) for each in shown] == [
        (80, "http", True),
        (2222, "tcp", True),
        (9999, "http", True),
    ]
    await account.post("/gpu/instance/edit", instanceId=instance_id, ports=[{"port": 81, "type": "http"}])
    account.time.passed += 3
    shown = (await account.instance(instance_id))["portMappings"]
    assert [(each["port"], bool(each["endpoint"])) for each in shown] == [(81, True), (2222, True), (9999, True)]


async def test_http_endpoints_may_lack_their_scheme(account: Account):
    instance_id = await account.running(ports="80/http")
    with_scheme = (await account.instance(instance_id))["portMappings"][0]["endpoint"]
    await in_dialect(account, endpoints_have_scheme=False)
    without = (await account.instance(instance_id))["portMappings"][0]["endpoint"]
    assert with_scheme == f"http://{without}"


async def test_a_new_instance_is_listed_late_and_may_be_missing_by_id_as_well(account: Account):
    await in_dialect(account, list_delay=5)
    first = await account.create(name="first")
    await in_dialect(account, list_delay_hides_from_get=True)
    second = await account.create(name="second")

    assert await names(account) == []
    assert (await account.get("/gpu/instance", instanceId=first))[0] == 200
    assert (await account.get("/gpu/instance", instanceId=second))[0] == 404
    account.time.passed += 5.1
    assert await names(account) == ["second", "first"]
    assert (await account.get("/gpu/instance", instanceId=second))[0] == 200


async def test_unique_names_are_enforced_until_the_first_is_gone(account: Account):
    await in_dialect(account, unique_names=True, deletes_at_once=True)
    instance_id = await account.create(name="one")

    status, answer = await account.post("/gpu/instance/create", **creation(name="one"))

    assert (status, answer["reason"]) == (409, "CONFLICT")
    await account.post("/gpu/instance/delete", instanceId=instance_id)
    await account.create(name="one")


async def test_a_delete_at_once_leaves_nothing_and_frees_the_stock(account: Account):
    def free() -> int:
        return account.simulator.world.catalog.free("4090.16c62g", "us-ca-6")

    before = free()
    instance_id = await account.running()
    await in_dialect(account, deletes_at_once=True)

    assert await send(account, "/gpu/instance/delete", instanceId=instance_id) == (200, "application/json", b"{}")

    assert (await account.get("/gpu/instance", instanceId=instance_id))[0] == 404
    assert (await names(account), free()) == ([], before)


@pytest.mark.parametrize(("seconds", "status"), [(0, 404), (60, 200)])
async def test_removed_is_shown_as_long_as_the_dialect_says(account: Account, seconds: int, status: int):
    await in_dialect(account, removed_shown=seconds)
    instance_id = await account.running()
    await account.post("/gpu/instance/delete", instanceId=instance_id)
    account.time.passed += 30
    assert (await account.get("/gpu/instance", instanceId=instance_id))[0] == status


async def test_a_failed_pull_ends_as_the_dialect_says(account: Account):
    await in_dialect(
        account, failed_pull_status="removed", failed_pull_state="imagePull", failed_pull_message="no {image}"
    )
    instance_id = await account.create(imageUrl="nothing:1")
    await account.control("POST", f"/instances/{instance_id}/fail-pull")

    assert (await account.statuses_until(instance_id, "removed"))[-2:] == ["pulling", "removed"]

    assert (await account.instance(instance_id))["statusError"] == {"state": "imagePull", "message": "no nothing:1"}
    account.time.passed += 5
    assert (await account.get("/gpu/instance", instanceId=instance_id))[0] == 404


async def test_not_found_may_be_the_page_of_a_gateway(account: Account):
    await in_dialect(account, not_found=NotFound.HTML)
    async with account.session.get(f"{account.simulator.url}{PREFIX}/gpu/instance?instanceId=none") as answer:
        seen = answer.status, answer.content_type, await answer.text()
    page = "<html><head><title>404 Not Found</title></head><body><h1>404 Not Found</h1></body></html>"
    assert seen == (404, "text/html", page)


async def test_a_gateway_may_send_404_for_what_exists(account: Account):
    instance_id = await account.create()
    await account.faults({"kind": "badGateway", "status": 404, "times": 1, "routes": "GET /gpu/instance"})
    async with account.session.get(f"{account.simulator.url}{PREFIX}/gpu/instance?instanceId={instance_id}") as answer:
        seen = answer.status, answer.content_type
    assert seen == (404, "text/html")
    assert (await account.instance(instance_id))["name"] == "trainer-1"


async def test_an_invalid_state_change_has_the_status_and_reason_of_the_dialect(account: Account):
    instance_id = await account.create()
    await in_dialect(account, invalid_state_status=409, invalid_state_reason="INVALID_STATE")

    status, answer = await account.post("/gpu/instance/start", instanceId=instance_id)

    assert (status, answer["code"], answer["reason"]) == (409, 409, "INVALID_STATE")
    assert answer["message"] == "invalid state change"


async def test_retry_after_comes_with_429_and_503_and_a_fault_can_name_another(account: Account):
    await in_dialect(account, retry_after="9")
    await account.faults(
        {"kind": "error", "status": 503, "times": 1},
        {"kind": "badGateway", "status": 503, "times": 1},
        {"kind": "rateLimit", "times": 1},
        {"kind": "rateLimit", "times": 1, "retryAfter": "2"},
        {"kind": "error", "status": 500, "times": 1},
    )
    seen: list[tuple[int, str | None]] = []
    for _ in range(5):
        async with account.session.get(account.simulator.url + PREFIX + "/clusters") as answer:
            seen.append((answer.status, answer.headers.get("Retry-After")))
    assert seen == [(503, "9"), (503, "9"), (429, "9"), (429, "2"), (500, None)]


async def test_more_calls_than_the_rate_limit_are_refused(account: Account):
    await in_dialect(account, rate_limit=1)
    statuses = {(await account.get("/clusters"))[0] for _ in range(4)}
    assert 429 in statuses  # even if a minute begins between two of them


async def test_passwords_of_registry_auths_may_be_masked(account: Account):
    await account.post("/repository/auth/save", name="r", username="u", password="secret")
    await in_dialect(account, masks_auth_passwords=True)
    _, answer = await account.get("/repository/auths")
    assert [(each["username"], each["password"]) for each in answer["data"] if each["name"] == "r"] == [("u", "******")]


async def test_the_control_api_changes_some_fields_and_goes_back_to_the_start(account: Account):
    await in_dialect(account, first_page="0")
    await in_dialect(account, total="missing")
    assert (await account.control("GET", "/dialect"))["first_page"] == "0"

    refused = await account.control("POST", "/dialect", first_page="2", pages=1)

    assert refused["message"] == "first_page: Input should be 'both', '0' or '1'; pages: Unexpected keyword argument"
    assert (await account.control("GET", "/dialect"))["first_page"] == "0"
    assert await account.control("DELETE", "/dialect") == Dialect().to_json()


async def test_a_simulator_starts_with_the_dialect_of_its_options(tmp_path: Path):
    dialect = Dialect.parse("first_page=0, name_filter = prefix,edit_delay=1.5, caps_page_size=true, extra_ports=9/tcp")
    assert dialect == Dialect(
        first_page=FirstPage.ZERO,
        name_filter=NameFilter.PREFIX,
        edit_delay=1.5,
        caps_page_size=True,
        extra_ports="9/tcp",
    )
    async with open_account(SimulatorOptions(dialect=dialect)) as account:
        assert (await account.control("GET", "/dialect"))["first_page"] == "0"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pages=0", "pages: Unexpected keyword argument"),
        ("first_page", "first_page: Input should be 'both', '0' or '1'"),
        ("extra_ports=80", "extra_ports: must look like 9999/http+2222/tcp, not '80'"),
        ("max_page_size=many", "max_page_size: Input should be a valid integer, unable to parse string as an integer"),
    ],
)
def test_what_is_no_dialect_is_refused_by_field(text: str, problem: str):
    with pytest.raises(BadDialect) as found:
        Dialect.parse(text)
    assert str(found.value) == problem
