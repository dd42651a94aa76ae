"""Every setting changes what the server does: which tests show it, and those that no other file has."""

import ast
import asyncio
import json
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from server.cli.main import main
from server.clock import now
from server.config import Settings
from server.enums import InstanceStatus
from server.errors import NovitaError, RateLimited
from server.instances import transitions
from server.instances.drafts import Port
from server.queue.kinds import Reconcile
from server.ssrf import PrivateAddresses
from tests.support.api import Api
from tests.support.api_server import serving
from tests.support.log_config import kept_log_config
from tests.support.machines import make_running, missing_for
from tests.support.otel_collector import collector
from tests.support.waiting import until
from tests.support.world import LIST, World

S = InstanceStatus
TESTS = Path(__file__).parents[1]
SHORT, LONG = timedelta(microseconds=1), timedelta(hours=1)

# Test by the settings that it shows.
TESTS_OF_SETTINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "flows/test_commands.py": {
        "test_the_simulator_alone_remembers_its_world": ("simulator_dialect",),
        "test_doctor_says_when_the_signing_key_is_not_the_one_of_the_secrets": ("webhook_signing_key",),
    },
    "flows/test_readiness.py": {
        "test_a_stopping_process_is_not_ready_and_still_serves_while_it_drains": ("drain_time",),
    },
    "flows/test_real.py": {
        "test_up_with_a_key_says_what_is_billed_and_keeps_to_its_account": (
            "novita_api_base_url",
            "novita_api_key",
        ),
    },
    "flows/test_refusals.py": {
        "test_a_database_that_is_not_there": ("database_url",),
        "test_an_open_door_without_a_token": ("host",),
    },
    "flows/test_trace.py": {
        "test_a_collector_that_is_away_costs_nothing_but_the_traces": ("otel_exporter_otlp_endpoint",),
    },
    "flows/test_up.py": {
        "test_a_stop_ends_every_process_and_a_second_start_keeps_data_and_token": ("pilotlight_home",),
        "test_a_first_start_makes_its_own_database_and_says_where_everything_is": ("port",),
        "test_it_stops_in_time_though_the_provider_never_answers": ("shutdown_timeout",),
    },
    "flows/test_waiting_start.py": {
        "test_waiting_ends_with_the_signal_and_with_the_setting": ("database_start_timeout",),
    },
    "ha/test_pgbouncer.py": {
        "test_an_instance_becomes_ready_with_api_and_worker_behind_it": ("database_direct_url",),
    },
    "schema/mutations/test_queue_full.py": {
        "test_a_create_has_a_place_and_one_too_many_is_refused": ("max_pending_creates",),
    },
    "schema/mutations/test_tokens.py": {
        "test_a_project_has_so_many_valid_tokens_and_no_more": ("tokens_per_project",),
    },
    "schema/queries/test_ssh.py": {
        "test_a_token_that_asks_too_often_is_refused_and_its_neighbour_is_not": ("live_reads_per_token",),
    },
    "server/cli/test_loop_thread.py": {
        "test_jobs_are_run_under_one_lease_while_the_main_loop_is_blocked": ("job_lease",),
    },
    "server/graphql/documents/test_documents.py": {
        "test_introspection_can_be_turned_off_and_typenames_stay": ("introspection",),
        "test_each_limit_is_reported_with_its_setting": (
            "query_max_aliases",
            "query_max_characters",
            "query_max_depth",
            "query_max_directives",
            "query_max_fields",
            "query_max_root_fields",
            "query_max_tokens",
        ),
        "test_suggestions_for_variables_can_be_turned_off_with_them": ("suggestions",),
    },
    "server/graphql/documents/test_persisted.py": {
        "test_given_documents_are_known_from_the_start_and_others_may_still_come": ("persisted_documents",),
        "test_with_an_allow_list_nothing_else_is_answered": ("persisted_only",),
    },
    "server/graphql/live/test_connections.py": {
        "test_all_tokens_of_a_project_share_its_sockets_and_operations": (
            "operations_per_project",
            "sockets_per_project",
        ),
        "test_a_socket_and_a_token_have_so_many_operations_and_no_more": (
            "operations_per_socket",
            "operations_per_token",
        ),
        "test_a_client_without_connection_init_is_closed_with_the_protocols_code": ("socket_init_timeout",),
        "test_a_message_has_so_many_bytes_and_no_more": ("socket_message_bytes",),
        "test_a_client_that_answers_no_ping_is_closed_with_a_code_for_reconnecting": ("socket_ping_interval",),
        "test_a_token_that_ends_takes_its_sockets_along_and_no_others": ("socket_token_check",),
        "test_a_process_has_so_many_sockets_and_refuses_the_handshake_of_more": ("sockets_per_process",),
        "test_a_token_has_so_many_sockets_and_no_more": ("sockets_per_token",),
    },
    "server/graphql/transports/test_browser_safety.py": {
        "test_names_can_be_allowed_for_a_proxy_on_the_same_machine": ("allowed_hosts",),
        "test_a_page_of_an_allowed_origin_may_ask_and_read": ("allowed_origins",),
        "test_a_token_over_its_rate_gets_retry_after_and_others_are_served": ("request_rate_limit",),
    },
    "server/graphql/transports/test_hostile_clients.py": {
        "test_a_query_that_takes_too_long_is_ended_and_a_change_is_carried_through": ("query_timeout",),
        "test_a_body_that_trickles_is_cut_off": ("request_body_timeout",),
        "test_a_request_head_that_does_not_arrive_times_out": ("request_header_timeout",),
        "test_a_client_that_stops_reading_a_response_is_cut_off": ("response_timeout",),
    },
    "server/graphql/transports/test_http_requests.py": {
        "test_what_costs_too_much_is_refused_with_the_numbers": ("query_max_cost",),
    },
    "server/graphql/transports/test_strangers.py": {
        "test_strangers_of_one_address_are_limited_and_callers_are_not_counted": ("strangers_per_address",),
        "test_wrong_tokens_are_limited_per_address_before_a_query_is_spent": ("wrong_token_limit",),
    },
    "server/http/test_health.py": {
        "test_lost_redis_is_shown_until_it_is_back": ("redis_url",),
    },
    "server/http/test_metrics.py": {
        "test_on_a_public_address_metrics_need_a_token_of_the_servers_own_project": ("worker_port",),
    },
    "server/http/test_proxies.py": {
        "test_each_client_behind_a_proxy_has_its_own_wrong_tokens": ("trusted_proxies",),
    },
    "server/instances/test_availability.py": {
        "test_the_lowest_price_of_all_regions_is_the_default": ("default_regions",),
    },
    "server/instances/test_env.py": {
        "test_keys_are_introduced_and_replaced_without_losing_a_value": ("encryption_key",),
    },
    "server/instances/test_estimates.py": {
        "test_a_success_is_recorded_and_used_for_the_next_estimate": ("estimated_ready_time",),
    },
    "server/jobs/test_clean_up.py": {
        "test_thousands_of_deleted_instances_leave_only_their_rows": (
            "deleted_retention",
            "event_retention",
            "idempotency_retention",
            "job_retention",
        ),
    },
    "server/jobs/test_create_instance.py": {
        "test_grace_covers_the_time_a_call_waits_for_the_rate_limit": (
            "create_grace",
            "request_deadline",
        ),
        "test_a_provider_that_never_answers_a_create_ends_the_operation": ("provider_max_wait",),
        "test_create_with_a_lost_response_is_found_and_adopted": ("request_timeout",),
    },
    "server/jobs/test_monitor_instance.py": {
        "test_endpoints_that_never_answer_fail_the_health_check_and_say_which": ("health_check_max_wait",),
        "test_instance_that_never_runs_fails_after_the_maximum_wait": ("instance_max_wait",),
    },
    "server/jobs/test_send_webhook.py": {
        "test_missing_response_is_an_attempt_with_its_reason": ("webhook_timeout",),
    },
    "server/jobs/test_watch_health.py": {
        "test_thresholds_of_the_settings_apply_without_own_ones": (
            "health_check_failure_threshold",
            "health_check_success_threshold",
        ),
        "test_interval_of_zero_in_the_settings_leaves_instances_with_their_own_watched": ("health_check_interval",),
        "test_many_instances_get_several_jobs_and_each_is_probed_once": ("health_watch_concurrency",),
    },
    "server/lifetimes/test_end.py": {
        "test_failed_stop_is_repeated_and_told_once_an_hour": ("lifetime_retry",),
    },
    "server/lifetimes/test_idle.py": {
        "test_reading_waits_for_its_share_of_the_calls": ("metrics_share",),
    },
    "server/spend/test_budgets.py": {
        "test_a_budget_counts_machines_for_the_horizon_of_the_setting": ("budget_horizon",),
    },
    "server/test_settings.py": {
        "test_private_webhooks_are_refused_unless_allowed": ("allow_private_webhooks",),
        "test_a_balance_that_lasts_for_less_than_the_setting_is_reported": ("balance_warn",),
        "test_connections_have_the_timeouts_of_the_settings": (
            "database_idle_timeout",
            "database_lock_timeout",
            "database_timeout",
        ),
        "test_a_pool_has_as_many_connections_as_the_setting_says": ("database_pool_size",),
        "test_caches_are_used_for_as_long_as_their_settings_say": (
            "fleet_cache_ttl",
            "product_cache_ttl",
            "template_cache_ttl",
        ),
        "test_a_view_of_a_machine_is_used_for_as_long_as_the_settings_say": (
            "instance_cache_ttl",
            "instance_state_cache_ttl",
        ),
        "test_a_create_without_a_limit_gets_the_servers": ("default_max_duration",),
        "test_a_machine_is_gone_once_it_is_missing_for_the_grace": ("gone_grace",),
        "test_an_unhealthy_endpoint_is_probed_again_as_the_settings_say": (
            "health_check_delay",
            "health_check_retries",
        ),
        "test_an_instance_is_polled_at_the_latest_after_the_interval": ("instance_poll_interval",),
        "test_a_command_logs_as_the_settings_say": (
            "log_format",
            "log_level",
        ),
        "test_the_breaker_opens_and_recovers_as_the_settings_say": (
            "breaker_recovery",
            "breaker_threshold",
        ),
        "test_a_probe_waits_for_as_long_as_the_setting_says": ("health_check_timeout",),
        "test_live_reads_of_a_project_are_limited_by_the_setting": ("live_reads_per_project",),
        "test_a_job_is_tried_as_often_as_the_setting_says": ("max_retry_attempts",),
        "test_calls_above_the_limit_of_the_setting_wait": ("novita_rate_limit",),
        "test_traces_have_the_name_of_the_settings": ("otel_service_name",),
        "test_recurring_comparisons_are_scheduled_at_their_intervals": ("reconcile_interval", "bill_interval"),
    },
    "server/test_settings_of_processes.py": {
        "test_as_many_jobs_run_at_once_as_the_setting_says": ("max_concurrent_jobs",),
        "test_a_job_without_notification_waits_for_the_poll_interval": ("job_poll_interval",),
        "test_the_tokens_of_a_project_share_the_rate_of_the_setting": ("request_rate_limit_per_project",),
        "test_a_body_has_as_many_bytes_as_the_setting_says": ("request_body_limit",),
        "test_reads_wait_for_the_replica_of_the_settings": (
            "database_read_patience",
            "database_read_url",
        ),
        "test_the_simulator_is_as_fast_as_the_setting_says": ("simulator_speed",),
    },
    "schema/test_audit.py": {
        "test_old_records_are_deleted_after_their_retention": ("audit_retention",),
    },
    "server/login/test_login.py": {
        "test_a_person_logs_in_with_the_role_of_the_best_group": (
            "oidc_client_id",
            "oidc_client_secret",
            "oidc_groups",
            "oidc_issuer",
            "session_lifetime",
        ),
        "test_the_login_begins_with_pkce_state_and_nonce_and_never_leads_elsewhere": ("oidc_scopes", "public_url"),
    },
    "server/login/test_forged.py": {
        "test_a_right_token_logs_in_and_its_code_is_redeemed_with_the_verifier": ("oidc_groups_claim",),
    },
    "server/market/test_tape.py": {
        "test_hot_and_cold_segments_are_polled_as_often_as_the_settings_say": ("market_hot", "market_cold"),
        "test_calls_of_all_processes_stay_within_the_limit_of_a_minute": ("market_calls",),
        "test_old_changes_are_deleted_but_not_the_one_that_is_still_true": ("market_retention",),
    },
    "server/mcp/test_tools.py": {
        "test_instances_without_an_end_are_created_if_the_setting_says_so": ("mcp_require_lifetime",),
    },
    "web/test_building.py": {
        "test_up_builds_the_pages_of_its_clone_if_the_setting_says_so": ("build_pages",),
    },
}


def test_every_setting_has_a_test_that_shows_what_it_does():
    listed = [name for tests in TESTS_OF_SETTINGS.values() for names in tests.values() for name in names]
    assert sorted(listed) == sorted(Settings.model_fields)


@pytest.mark.parametrize("file", sorted(TESTS_OF_SETTINGS))
def test_the_tests_of_settings_exist(file: str):
    tree = ast.parse((TESTS / file).read_text())
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert TESTS_OF_SETTINGS[file].keys() <= functions


def another(api: Api, **settings: Any) -> Any:
    """A second server on the same database and provider, with other settings."""
    return serving(api.server.runtime.database_url, api.server.simulator, **settings)


@pytest.mark.parametrize(("ttl", "is_read_again"), [(SHORT, True), (LONG, False)])
async def test_caches_are_used_for_as_long_as_their_settings_say(api: Api, ttl: timedelta, is_read_again: bool):
    names = ("product_cache_ttl", "template_cache_ttl", "fleet_cache_ttl")
    async with another(api, **dict.fromkeys(names, ttl)) as server:
        catalog, reader = server.runtime.catalog, server.runtime.provider_reader
        calls = api.world.simulator.world.calls
        for _ in range(2):
            calls.clear()
            await catalog.products(None, "spot")
            await catalog.template("107672")
            await reader.machines()

    for route in ("GET /products", "GET /template", LIST):
        assert (calls[route] > 0) is is_read_again, route


@pytest.mark.parametrize(("ttl", "reads"), [(SHORT, 2), (LONG, 1)])
async def test_a_view_of_a_machine_is_used_for_as_long_as_the_settings_say(api: Api, ttl: timedelta, reads: int):
    (machine,) = await make_running(api.world, 1)
    old = dict.fromkeys(("observed_at", "updated_at", "created_at", "status_since"), now() - LONG)
    row = await api.world.put(S.STOPPING, novita_id=machine, novita_status="toStop", **old)
    async with (
        another(api, instance_cache_ttl=ttl, instance_state_cache_ttl=ttl) as server,
        api.world.database.write() as session,
    ):
        await transitions.lock(session, row.id)  # so nothing is written, and the row stays as old as it is
        before = api.world.calls()
        for _ in range(2):
            await server.runtime.provider_reader.read(row)
        made = api.world.calls() - before

    assert made == reads


@pytest.mark.parametrize(
    ("allowed", "codes"), [(PrivateAddresses.OFF, ["INVALID_WEBHOOK_URL"]), (PrivateAddresses.LOOPBACK, [])]
)
async def test_private_webhooks_are_refused_unless_allowed(api: Api, allowed: PrivateAddresses, codes: list[str]):
    async with another(api, allow_private_webhooks=allowed) as server:
        payload = await replace(api, server=server).create(webhookUrl="http://127.0.0.1:9/hook")

    assert [error["code"] for error in payload["errors"]] == codes


@pytest.mark.parametrize(("default", "shown"), [(None, None), (timedelta(hours=2), {"maxDuration": 7200})])
async def test_a_create_without_a_limit_gets_the_servers(api: Api, default: timedelta | None, shown: object):
    async with another(api, default_max_duration=default) as server:
        other = replace(api, server=server)
        created = await other.create()
        answer = await other.ask(
            "query ($id: ID!) { instance(id: $id) { lifetime { maxDuration } } }", id=created["instance"]["id"]
        )

    assert answer.data["instance"]["lifetime"] == shown


async def test_connections_have_the_timeouts_of_the_settings(api: Api):
    settings = {"database_timeout": 7, "database_lock_timeout": 3, "database_idle_timeout": 4}
    query = (
        "SELECT current_setting('lock_timeout'), current_setting('idle_in_transaction_session_timeout'),"
        " current_setting('statement_timeout')"
    )
    async with (
        another(api, **{name: timedelta(seconds=each) for name, each in settings.items()}) as server,
        server.runtime.database.read() as session,
    ):
        found = await session.execute(text(query))
        assert tuple(found.one()) == ("3s", "4s", "14s")


async def test_a_pool_has_as_many_connections_as_the_setting_says(api: Api):
    async with another(api, database_pool_size=2) as server:
        database = server.runtime.database

        async def backend() -> int:
            async with database.read() as session:
                found = await session.execute(text("SELECT pg_backend_pid(), pg_sleep(0.05)"))
                return found.one()[0]

        used = set(await asyncio.gather(*(backend() for _ in range(8))))
        assert len(used) <= 2


async def test_recurring_comparisons_are_scheduled_at_their_intervals(api: Api):
    intervals = {"reconcile_interval": timedelta(seconds=777), "bill_interval": timedelta(seconds=7777)}
    async with another(api, **intervals) as server:
        server.runtime.work()
        query = "SELECT kind, next_at - now() AS time FROM job_schedule WHERE kind IN ('RECONCILE', 'CHECK_BILL')"
        await until(lambda: api.world.value(f"SELECT count(*) = 2 FROM ({query}) AS scheduled"))
        left = {row["kind"]: row["time"] for row in await api.world.rows(query)}
        assert timedelta(seconds=600) < left["RECONCILE"] <= timedelta(seconds=777)
        assert timedelta(seconds=7600) < left["CHECK_BILL"] <= timedelta(seconds=7777)


async def test_an_instance_is_polled_at_the_latest_after_the_interval(world: World):
    await world.configure(instance_poll_interval=timedelta(seconds=3), instance_max_wait=timedelta(days=1))
    world.simulator.world.set_speed(0.001)
    accepted = await world.create("slow")
    await world.work_until_status(accepted.instance.id, S.STARTING)
    for table, column in (("instance", "status_since"), ("operation", "created_at"), ("attempt", "created_at")):
        await world.execute(f"UPDATE {table} SET {column} = {column} - interval '1 hour'")

    await world.hurry()
    await world.work_once()

    query = "SELECT run_at - clock_timestamp() FROM job WHERE kind = 'MONITOR_INSTANCE'"
    assert timedelta(seconds=0) < await world.value(query) <= timedelta(seconds=3)


async def test_an_unhealthy_endpoint_is_probed_again_as_the_settings_say(world: World):
    await world.configure(health_check_retries=2, health_check_delay=timedelta(milliseconds=10))
    accepted = await world.create("web", ports=(Port(80, "http"),))
    await world.work_until_status(accepted.instance.id, S.HEALTH_CHECKING)
    (machine,) = world.machines()
    world.simulator.world.endpoint_modes[machine.id, 80] = "503"

    async def attempts() -> int:
        return await world.value("SELECT coalesce(max(attempts), 0) FROM probe_result")

    async def is_tried_three_times() -> bool:
        return await attempts() == 3

    await world.work_until(is_tried_three_times)
    for _ in range(3):
        await world.hurry()
        await world.work_once()
    assert await attempts() == 3


@pytest.mark.parametrize(("grace", "status"), [(timedelta(hours=1), S.READY), (timedelta(seconds=30), S.FAILED)])
async def test_a_machine_is_gone_once_it_is_missing_for_the_grace(world: World, grace: timedelta, status: S):
    await world.configure(gone_grace=grace)
    row = await world.put(S.READY, novita_id="no-such-machine", novita_status="running")
    for _ in range(2):
        await world.enqueue(Reconcile())
        await world.work_once()
        await missing_for(world, 60)

    assert (await world.instance(row.id))["status"] == status


@pytest.mark.parametrize(("warn", "events"), [(timedelta(hours=1), 0), (timedelta(hours=3), 1)])
async def test_a_balance_that_lasts_for_less_than_the_setting_is_reported(world: World, warn: timedelta, events: int):
    await world.configure(balance_warn=warn)
    world.simulator.world.put("account", "balance", {"available": 20_000})  # 2 USD
    (machine,) = await make_running(world, 1)
    await world.put(S.READY, novita_id=machine, novita_status="running", price_per_hour_e5=100_000)

    await world.enqueue(Reconcile())
    await world.work_once()

    found = "SELECT (SELECT count(*) FROM outbox WHERE {0}) + (SELECT count(*) FROM event WHERE {0})"
    assert await world.value(found.format("type = 'balance.low'")) == events


@pytest.mark.parametrize(("level", "logged"), [("warning", ["settings.unknown"]), ("error", [])])
def test_a_command_logs_as_the_settings_say(
    level: str, logged: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    for name, value in {"LOG_LEVEL": level, "LOG_FORMAT": "json", "JOB_LEESE": "5s"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["pilotlight", "doctor"])
    with kept_log_config(), pytest.raises(SystemExit):
        main()

    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == logged
    for line in lines:
        assert (line["name"], line["did_you_mean"]) == ("JOB_LEESE", "JOB_LEASE")


async def test_the_breaker_opens_and_recovers_as_the_settings_say(api: Api):
    query = "{ serverInfo { provider { breaker retryAt } } }"
    settings = {"breaker_threshold": 2, "breaker_recovery": LONG, "request_deadline": SHORT}  # so nothing is retried
    async with another(api, **settings) as server:
        api.world.outage()
        shown: list[dict[str, Any]] = []
        for _ in range(2):
            with pytest.raises(NovitaError):
                await server.runtime.novita.clusters()
            answer = await server.ask(query, token=api.token)
            shown.append(answer.data["serverInfo"]["provider"])

    assert [each["breaker"] for each in shown] == ["CLOSED", "OPEN"]
    assert timedelta(minutes=50) < datetime.fromisoformat(shown[1]["retryAt"]) - now() <= LONG


@pytest.mark.parametrize(("limit", "least", "most"), [(10, 0, 3), (0, 30, 30)])
async def test_calls_above_the_limit_of_the_setting_wait(api: Api, limit: int, least: int, most: int):
    async with another(api, novita_rate_limit=limit, request_deadline=timedelta(milliseconds=200)) as server:
        calls = (server.runtime.novita.clusters() for _ in range(30))
        ends = await asyncio.gather(*calls, return_exceptions=True)

    refused = [end for end in ends if isinstance(end, BaseException)]
    assert all(isinstance(each, RateLimited) for each in refused), refused
    assert least <= len(ends) - len(refused) <= most


async def test_live_reads_of_a_project_are_limited_by_the_setting(api: Api):
    other, _ = await api.world.new_token()
    async with another(api, live_reads_per_token=0, live_reads_per_project=4) as server:  # half of them at once
        document = "mutation { syncFleet { errors { code } } }"
        answers = [await server.ask(document, token=token) for token in (api.token, other, api.token)]

    assert [answer.body.get("errors") is None for answer in answers] == [True, True, False]
    assert answers[2].error["code"] == "RATE_LIMITED"


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_job_is_tried_as_often_as_the_setting_says(api: Api, attempts: int):
    await api.create()
    await api.world.execute("""UPDATE instance SET env = '{"NAME": 5}'""")  # which the handler can't read
    async with another(api, max_retry_attempts=attempts) as server:
        server.runtime.work()
        query = "SELECT attempts FROM job_history WHERE kind = 'CREATE_INSTANCE' AND status = 'FAILED'"
        await until(lambda: api.world.value(query))
        assert await api.world.value(query) == attempts


async def test_a_probe_waits_for_as_long_as_the_setting_says(world: World):
    await world.configure(health_check_timeout=timedelta(milliseconds=50))
    accepted = await world.create("web", ports=(Port(80, "http"),))
    await world.work_until_status(accepted.instance.id, S.HEALTH_CHECKING)
    (machine,) = world.machines()
    world.simulator.world.endpoint_modes[machine.id, 80] = "hang"

    await world.work_until(lambda: world.value("SELECT bool_or(error_kind = 'TIMEOUT') FROM probe_result"))

    assert 50 <= await world.value("SELECT latency_ms FROM probe_result") < 5000


async def test_traces_have_the_name_of_the_settings(api: Api):
    async with collector() as collecting:
        settings = {"otel_exporter_otlp_endpoint": collecting.url, "otel_service_name": "mine"}
        async with another(api, **settings) as server:
            await server.ask("{ viewer { role } }", token=api.token)
    assert {span.service for span in collecting.spans} == {"mine"}
