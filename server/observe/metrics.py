"""All counters and histograms of a process. Gauges are read at each scrape (server/http/metrics.py).

docs/metrics.md explains each; a test compares the two. Labels are words of short lists: no ids, no names chosen by
callers, no addresses.
"""

import asyncio
from datetime import timedelta

from server.observe.counters import LONG_BOUNDS, Counter, Histogram

# Requests. `transport` is http, socket or stream; `kind` is query, mutation, subscription or none (nothing executed).
REQUESTS = Histogram("pilotlight_request_seconds", "Requests, until their answer began.", "transport", "kind", "status")
FIELDS = Counter("pilotlight_graphql_fields", "Root fields that were asked for.", "kind", "field")
FAULTS = Counter("pilotlight_graphql_errors", "Errors that callers were told, by code.", "code")

# Operations.
ACCEPTED = Counter("pilotlight_operations_accepted", "Operations that were accepted.", "kind")
OPERATIONS = Histogram(
    "pilotlight_operation_seconds", "Operations, from accepted to over.", "kind", "status", bounds=LONG_BOUNDS
)

# The ledger.
LEDGER_REPAIRS = Counter("pilotlight_ledger_repairs", "Entries of the ledger that reconcile had to correct.")

BUDGET_REFUSALS = Counter("pilotlight_budget_refusals", "Requests that a budget or a quota refused.")
BUDGET_ENDS = Counter("pilotlight_budget_ends", "Stops and deletes that a budget began.", "action")

# Recovery.
RECOVERY_ATTEMPTS = Counter("pilotlight_recovery_attempts", "Attempts to bring an instance back.", "trigger", "outcome")
RECOVERIES_GIVEN_UP = Counter("pilotlight_recoveries_given_up", "Recoveries that ended without success.", "code")
RELOCATIONS = Counter("pilotlight_relocations", "Machines that took the place of another one.")

# The market.
MARKET_POLLS = Counter("pilotlight_market_polls", "Lists of offers that were read from the provider.")
MARKET_CHANGES = Counter("pilotlight_market_changes", "Changes of price or stock that these lists showed.")
MARKET_ALERTS = Counter("pilotlight_market_alerts", "Alerts that fired.")

# The provider.
CALLS = Histogram("pilotlight_provider_call_seconds", "Calls to the provider, each try by itself.", "route", "outcome")
RETRIES = Counter("pilotlight_provider_retries", "Calls that were tried again.", "route")
CALL_WAITS = Histogram("pilotlight_provider_wait_seconds", "Waiting for leave to call the provider.", "priority")
MASS_DEGRADATIONS = Counter(
    "pilotlight_mass_degradations", "Rounds of probes in which most endpoints were unreachable, so that none counted."
)
MASS_DISAPPEARANCES = Counter(
    "pilotlight_mass_disappearances", "Answers with so few of our machines that they were not believed."
)
BREAKER_MOVES = Counter("pilotlight_provider_breaker_moves", "Circuits that opened or closed.", "to")

# Probes and webhooks.
PROBES = Histogram("pilotlight_probe_seconds", "Probes of endpoints.", "type", "outcome")
WATCH_LATENESS = Histogram("pilotlight_health_watch_late_seconds", "How late READY instances were probed.")
WEBHOOKS = Histogram("pilotlight_webhook_seconds", "Attempts to deliver a webhook.", "outcome")
DELIVERIES = Counter("pilotlight_webhook_deliveries", "Deliveries that ended.", "status")

# Subscriptions and the event log.
MESSAGES = Counter("pilotlight_messages_sent", "Messages handed to subscriptions.")
FELL_BEHIND = Counter("pilotlight_subscriptions_fell_behind", "Times a reader was too slow and had to catch up.")
MOVED = Counter("pilotlight_sequencer_moved", "Events that this process gave their place in the log.")

# The process.
LOOP_LAG = Histogram("pilotlight_event_loop_lag_seconds", "How late the event loop was.")
REDIS_FAILURES = Counter("pilotlight_redis_failures", "Look-ups that Redis did not answer.")
SPANS = Counter("pilotlight_spans", "Spans of traces that were handed to the exporter.")


LOOP_LAG_INTERVAL = timedelta(seconds=1)


async def measure_loop_lag() -> None:
    """Sleep in a loop and record how late each sleep ends."""
    loop = asyncio.get_running_loop()
    seconds = LOOP_LAG_INTERVAL.total_seconds()
    while True:
        due = loop.time() + seconds
        await asyncio.sleep(seconds)
        LOOP_LAG.observe(max(0.0, loop.time() - due))
