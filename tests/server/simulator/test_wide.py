"""Templates, registry auths, storages, networks, jobs, prewarms and metrics."""

from tests.server.simulator.account import START, Account, creation


async def test_templates_are_listed_under_a_singular_key_with_their_page(account: Account):
    status, answer = await account.get("/templates", pageSize=2, pageNum=0)

    assert status == 200
    assert (answer["pageSize"], answer["pageNum"], answer["total"]) == (2, 1, 6)
    assert [each["name"] for each in answer["template"]] == ["jupyter", "vllm"]
    assert answer["template"][0] == {
        "Id": "107672",
        "user": "9141320498493177",
        "name": "jupyter",
        "readme": "",
        "logo": "",
        "type": "instance",
        "channel": "official",
        "image": "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime",
        "imageAuth": "",
        "startCommand": "jupyter lab --ip=0.0.0.0 --allow-root",
        "entrypoint": "",
        "rootfsSize": 60,
        "volumes": [],
        "ports": [{"type": "http", "ports": [8888, 6006]}, {"type": "tcp", "ports": [22]}],
        "envs": [{"key": "JUPYTER_TOKEN", "value": ""}],
        "tools": [],
        "minCudaVersion": "",
        "createTime": str(int(START)),
    }


async def test_channels_may_be_repeated_or_joined_by_commas(account: Account):
    async def names(query: str) -> list[str]:
        async with account.session.get(f"{account.simulator.url}/gpu-instance/openapi/v1/templates?{query}") as answer:
            return [each["name"] for each in (await answer.json())["template"]]

    assert await names("channel=official") == ["jupyter", "vllm"]
    assert len(await names("channel=official&channel=private")) == 6
    assert await names("channel=official,community") == ["jupyter", "vllm"]
    assert await names("name=BROKEN") == ["broken-no-image", "broken-ports"]


async def test_some_templates_are_broken_on_purpose_and_one_uses_a_registry_auth(account: Account):
    _, listed = await account.get("/templates", pageSize=100)
    _, auths = await account.get("/repository/auths")

    by_name = {each["name"]: each for each in listed["template"]}
    assert by_name["broken-no-image"]["image"] == ""
    assert by_name["broken-ports"]["ports"] == [
        {"type": "tcp", "ports": [70000, 0]},
        {"type": "http", "ports": [2222, 8080, 8080]},
    ]
    assert by_name["private-trainer"]["imageAuth"] == auths["data"][0]["id"]


async def test_a_template_lives_from_create_to_a_400_when_it_is_gone(account: Account):
    template = {"name": "mine", "type": "instance", "channel": "private", "image": "ubuntu", "rootfsSize": 20}
    status, made = await account.post("/template/create", template={**template, "envs": [{"key": "A", "value": "1"}]})
    assert (status, made) == (200, {"templateId": "107678"})

    assert await account.post("/template/update", template={"Id": 107678, "name": "renamed"}) == (200, made)
    _, shown = await account.get("/template", templateId="107678")
    assert (shown["template"]["name"], shown["template"]["image"]) == ("renamed", "ubuntu")
    assert shown["template"]["envs"] == [{"key": "A", "value": "1"}]

    assert await account.post("/template/delete", templateId="107678") == (200, made)
    missing = (400, {"code": 400, "reason": "TEMPLATE_NOT_FOUND", "message": "template not found", "metadata": {}})
    assert await account.get("/template", templateId="107678") == missing
    assert await account.post("/template/delete", templateId="107678") == missing


async def test_a_saved_registry_auth_has_no_id_in_the_answer_and_names_may_repeat(account: Account):
    for _ in range(2):
        saved = await account.post("/repository/auth/save", name="r.test", username="u", password="p")
        assert saved == (200, {})
    _, listed = await account.get("/repository/auths")
    first, second = (each for each in listed["data"] if each["name"] == "r.test")
    assert first["id"] != second["id"]

    instance_id = await account.create(imageAuthId=first["id"])
    assert (await account.instance(instance_id))["imageAuthId"] == first["id"]
    status, answer = await account.post("/repository/auth/delete", id=first["id"])
    assert (status, answer["reason"]) == (400, "IMAGE_AUTH_IN_USE")
    assert await account.post("/repository/auth/delete", id=second["id"]) == (200, {})
    assert (await account.post("/repository/auth/delete", id=second["id"]))[0] == 404


async def test_a_network_storage_grows_is_mounted_and_can_then_not_be_deleted(account: Account):
    _, storage = await account.post("/networkstorage/create", clusterId="us-ca-6", storageName="data", storageSize=100)
    storage_id = storage["storageId"]
    expected = {
        "storageId": storage_id,
        "storageName": "data",
        "storageSize": 100,
        "clusterId": "us-ca-6",
        "clusterName": "US-CA-06 (California)",
        "price": "7",
    }
    assert storage == expected
    assert await account.get("/networkstorages/list", pageNo=1) == (200, {"data": [expected], "total": 1})
    assert (await account.get("/networkstorages/list", pageNo=2))[1] == {"data": [], "total": 1}
    assert (await account.get("/networkstorages/list", pageNum=2))[1]["data"] == [expected]

    instance_id = await account.create(networkStorages=[{"Id": storage_id, "mountPoint": "/data"}])
    assert (await account.instance(instance_id))["volumeMounts"] == [
        {"type": "network", "size": "100", "id": storage_id, "mountPath": "/data"}
    ]

    shrunk = await account.post("/networkstorage/update", storageId=storage_id, storageName="d", storageSize=50)
    too_large = await account.post("/networkstorage/update", storageId=storage_id, storageName="d", storageSize=10241)
    in_use = await account.post("/networkstorage/delete", storageId=storage_id)
    elsewhere = await account.post("/networkstorage/create", clusterId="oc-au-1", storageName="d", storageSize=10)
    assert [(status, answer["reason"]) for status, answer in (shrunk, too_large, in_use, elsewhere)] == [
        (400, "VALIDATOR_PARAM"),
        (400, "NETWORK_STORAGE_TOO_LARGE"),
        (400, "NETWORK_STORAGE_IN_USE"),
        (400, "CUR_CLUSTER_NETWORK_STORAGE_NOT_SUPPORT"),
    ]

    await account.post("/gpu/instance/delete", instanceId=instance_id)
    account.time.passed += 10
    assert await account.post("/networkstorage/delete", storageId=storage_id) == (200, {})


async def test_a_network_is_found_by_name_because_create_answers_without_an_id(account: Account):
    assert await account.post("/network/create", clusterId="us-ca-6", name="vpc") == (200, {})

    _, listed = await account.get("/networks", name="vpc")
    network = listed["networks"][0]
    assert listed["total"] == "1"
    assert set(network) == {"Id", "user", "name", "state", "segment", "clusterId", "Addresses", "createTime"}
    assert network["state"] == {"state": "creating", "error": ""}
    account.time.passed += 3
    instance_id = await account.create(networkId=network["Id"])

    _, shown = await account.get("/network", networkId=network["Id"])
    assert shown["network"][0]["state"]["state"] == "ready"
    address = (await account.instance(instance_id))["network"]
    assert shown["network"][0]["Addresses"] == [{"Id": instance_id, "Ip": address["ip"]}]
    assert address["id"] == network["Id"]

    assert await account.post("/network/update", networkId=network["Id"], name="renamed") == (200, {})
    status, answer = await account.post("/network/delete", networkId=network["Id"])
    assert (status, answer["reason"]) == (400, "DEPENDENT_RESOURCE_STATE")
    await account.post("/gpu/instance/delete", instanceId=instance_id)
    account.time.passed += 10
    assert await account.post("/network/delete", networkId=network["Id"]) == (200, {})
    status, answer = await account.get("/network", networkId=network["Id"])
    assert (status, answer["message"]) == (400, "network not found")


async def test_saving_an_image_is_a_job_of_a_stopped_instance(account: Account):
    instance_id = await account.running()
    assert (await account.post("/job/save/image", instanceId=instance_id, image="r.test/i:1"))[0] == 400
    await account.post("/gpu/instance/stop", instanceId=instance_id)
    account.time.passed += 3

    _, saved = await account.post("/job/save/image", instanceId=instance_id, image="r.test/i:1")
    _, listed = await account.get("/jobs")
    job = listed["jobs"][0]
    assert (listed["total"], set(job)) == (
        1,
        {"Id", "user", "type", "envs", "state", "logAddress", "createdAt", "instanceId"},
    )
    assert (job["Id"], job["type"], job["instanceId"]) == (saved["jobId"], "saveImage", instance_id)
    assert job["state"] == {"state": "pulling", "error": "", "errorMessage": "", "message": ""}
    account.time.passed += 2
    assert (await account.get("/jobs", state="running"))[1]["total"] == 1
    account.time.passed += 4
    assert (await account.get("/jobs", state="success", type="saveImage"))[1]["total"] == 1
    assert (await account.instance(instance_id))["jobs"] == []


async def test_a_save_can_be_broken_off_and_a_migration_cannot(account: Account):
    instance_id = await account.running()
    _, migration = await account.post("/gpu/instance/migrate", instanceId=instance_id)
    status, answer = await account.post("/job/break", jobId=migration["jobId"])
    assert (status, answer["reason"]) == (400, "MIGRATION_JOB_NOT_BREAKABLE")
    await account.statuses_until(instance_id, "running")
    await account.post("/gpu/instance/stop", instanceId=instance_id)
    account.time.passed += 3
    _, saved = await account.post("/job/save/image", instanceId=instance_id, image="r.test/i:1")

    assert await account.post("/job/break", jobId=saved["jobId"]) == (200, saved)

    _, listed = await account.get("/jobs", jobId=saved["jobId"])
    assert listed["jobs"][0]["state"]["state"] == "break"
    assert (await account.post("/gpu/instance/start", instanceId=instance_id))[0] == 200


async def test_a_prewarm_runs_through_capitalised_states(account: Account):
    _, made = await account.post(
        "/image/prewarm", imageUrl="r.test/team/app:2", clusterId="us-ca-6", productIds=["4090.16c62g"], note="n"
    )
    _, listed = await account.get("/image/prewarm", page=1)
    assert (listed["total"], listed["data"][0]["id"], listed["data"][0]["state"]) == (1, made["id"], "Pending")
    assert listed["data"][0]["imageName"] == "app"
    account.time.passed += 2
    assert (await account.get("/image/prewarm", state="Running"))[1]["total"] == 1
    account.time.passed += 6
    assert (await account.get("/image/prewarm", state="Succeeded", name="app"))[1]["total"] == 1
    assert (await account.get("/image/prewarm", page=2))[1] == {"data": [], "total": 1}

    assert (await account.get("/image/prewarm/quota"))[1] == {"total": 1, "limit": 100, "perImageSize": 100}
    _, edited = await account.post("/image/prewarm/edit", id=made["id"], note="other")
    assert edited["note"] == "other"
    assert await account.post("/image/prewarm/delete", ids=[made["id"]]) == (200, {})
    assert (await account.post("/image/prewarm/delete", ids=[made["id"]]))[0] == 404


async def test_metrics_live_under_another_prefix_and_cover_the_running_time_only(account: Account):
    instance_id = await account.running(gpuNum=2)
    started = int((await account.instance(instance_id))["lastStartedAt"])
    account.time.passed += 180  # the last minute is not known yet
    url = account.simulator.url + "/openapi/v1/metrics/gpu/instance"

    async with account.session.get(url, params={"instanceId": instance_id, "startTime": int(START)}) as answer:
        metrics = await answer.json()
    async with account.session.get(url, params={"instanceId": instance_id, "interval": 5}) as answer:
        assert answer.status == 400

    assert set(metrics) == {
        "cpuUtilization",
        "memUtilization",
        "rootDiskUtilization",
        "gpuUtilization",
        "gpuMemUtilization",
    }
    points = metrics["cpuUtilization"]
    assert 7 <= len(points) <= 9
    assert all(isinstance(each["timestamp"], str) and isinstance(each["value"], float) for each in points)
    assert all(int(each["timestamp"]) >= started for each in points)
    assert [gpu["gpuId"] for gpu in metrics["gpuUtilization"]["gpuIds"]] == ["0", "1"]
    assert len(metrics["gpuUtilization"]["avg"]) == len(points)


async def test_without_balance_creates_and_starts_are_refused(account: Account):
    instance_id = await account.running()
    await account.post("/gpu/instance/stop", instanceId=instance_id)
    account.time.passed += 12
    url = account.simulator.url + "/openapi/v1/billing/balance/detail"
    async with account.session.get(url) as answer:
        assert (await answer.json())["availableBalance"] == "1000000"
    await account.control("POST", "/balance", available=0)
    await account.control("POST", "/dialect", no_balance_status=403)

    created, refusal = await account.post("/gpu/instance/create", **creation())
    started, _ = await account.post("/gpu/instance/start", instanceId=instance_id)

    assert (created, refusal["reason"], started) == (403, "BALANCE_NOT_ENOUGH", 403)
    assert (await account.control("GET", "/state"))["instancesMade"] == 1
