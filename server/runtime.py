"""The parts of a process: created, started and closed in order."""

import asyncio
from collections.abc import Collection, Hashable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Self

from pydantic import SecretStr

from server import __version__
from server.account.objects import Account
from server.audit.log import AuditLog
from server.auth.projects import Projects
from server.auth.tokens import Tokens
from server.auth.wrong_tokens import WrongTokens
from server.cache.redis import RedisBackend
from server.cache.registry import Caches
from server.catalog.catalog import Catalog
from server.config import Settings
from server.db.database import Database
from server.db.dry_run import DryRun
from server.db.notify import Notifier
from server.db.seals import Seals
from server.db.timeouts import Timeouts
from server.encryption import Cipher
from server.errors import StartupProblem
from server.events.cursors import Cursors
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from server.instances.commands.create_rows import CreateBatcher
from server.instances.create_line import CreateLine
from server.instances.provider.live_reads import LiveReads
from server.instances.provider.poller import InstancePoller
from server.instances.provider.reader import ProviderReader
from server.instances.queries.log import LogReader
from server.jobs.registry import JobServices, all_handlers, check_handled
from server.lifetimes.heartbeat import Heartbeats
from server.market.follow import follow_market
from server.market.listing import TapeListings
from server.novita.client import NovitaClient
from server.novita.transport.retry import RetryPolicy
from server.observe import tracing
from server.observe.metrics import measure_loop_lag
from server.probes.probe import Prober
from server.provider.budget import SharedBudget
from server.provider.guard import ProviderGuard
from server.provider.turns import CallTurns
from server.queue.control import make_ids_due_now
from server.queue.handler import Handler
from server.queue.kinds import (
    CheckBill,
    CheckBudgets,
    CheckHealth,
    CleanUp,
    PollMarket,
    ProbeWatched,
    Reconcile,
    SendProjectWebhook,
    SendWebhook,
    UpdateEstimates,
    WatchHealth,
    Work,
)
from server.queue.schedule import Recurring
from server.queue.worker import Worker
from server.server_info import ServerInfo
from server.ssrf import PrivateAddresses, raise_socket_limits
from server.webhooks.feed import WebhookFeed
from server.webhooks.sender import Sender
from server.webhooks.signing import find_key

CLEAN_UP_INTERVAL = timedelta(minutes=10)
WATCH_INTERVAL = timedelta(seconds=15)
ESTIMATES_INTERVAL = timedelta(seconds=15)
BUDGETS_INTERVAL = timedelta(seconds=30)  # short beside the time by which a budget ends machines early
# Kinds that mostly wait for other servers.
SLOW_KINDS: tuple[type[Work], ...] = (CheckHealth, ProbeWatched, SendWebhook, SendProjectWebhook)


class Runtime:
    """What every process has; API processes also start the tail, worker processes the workers."""

    def __init__(
        self,
        settings: Settings,
        *,
        database_url: str,
        novita_url: str,
        novita_key: SecretStr,
        beside: "Runtime | None" = None,
    ) -> None:
        """`beside`: the one of the same process that serves the API, in another thread. It reports for both."""
        self.settings = settings
        self._beside = beside
        self.database_url = database_url
        direct_url, read_url = settings.database_direct_url, settings.database_read_url
        self.database = Database(
            database_url,
            direct_url=None if direct_url is None else direct_url.get_secret_value(),
            read_url=None if read_url is None else read_url.get_secret_value(),
            replica_timeout=settings.database_read_patience,
            pool_size=settings.database_pool_size,
            timeouts=Timeouts(
                settings.database_timeout, settings.database_lock_timeout, settings.database_idle_timeout
            ),
        )
        self.dry_run = DryRun(self.database)
        self.create_line = CreateLine(
            self.database, rate_limit=settings.novita_rate_limit, pending_max=settings.max_pending_creates
        )
        self.creates = CreateBatcher(self.database, self.create_line)
        self.heartbeats = Heartbeats(self.database)
        self.notifier = Notifier(self.database)
        self.sequencer = Sequencer(self.database, self.notifier)
        self.novita = NovitaClient(
            base_url=novita_url,
            api_key=novita_key,
            request_timeout=settings.request_timeout,
            rate_limit_per_minute=settings.novita_rate_limit,
            budget=SharedBudget(self.database, settings.novita_rate_limit) if settings.novita_rate_limit else None,
            breaker_threshold=settings.breaker_threshold,
            breaker_recovery=settings.breaker_recovery,
            retry=RetryPolicy(deadline=settings.request_deadline),
            breaker=None if beside is None else beside.novita.breaker,
        )
        self.provider = ProviderGuard(self.database, self.novita, base_url=novita_url, key=novita_key)
        self.novita.guard(self.provider)
        self.caches = Caches(RedisBackend(settings.redis_url) if settings.redis_url is not None else None)
        self.catalog = Catalog(
            self.novita,
            product_ttl=settings.product_cache_ttl,
            template_ttl=settings.template_cache_ttl,
            stale_for=settings.provider_max_wait,  # as long as an accepted create waits for the provider
            caches=self.caches,
            tape=TapeListings(self.database, max_age=settings.product_cache_ttl),
        )
        live_reads = LiveReads(
            per_token=settings.live_reads_per_token,
            per_project=settings.live_reads_per_project,
            calls_per_minute=settings.novita_rate_limit,
        )
        self.account = Account(self.database, self.novita, self.catalog, live_reads)
        self.poller = InstancePoller(
            self.novita, calls_per_minute=settings.novita_rate_limit, wake=self._make_jobs_due_now
        )
        self.provider_reader = ProviderReader(
            self.database,
            self.novita,
            self.poller,
            self.caches,
            instance_ttl=settings.instance_cache_ttl,
            state_ttl=settings.instance_state_cache_ttl,
            fleet_ttl=settings.fleet_cache_ttl,
            gone_grace=settings.gone_grace,
            live_reads=live_reads,
        )
        self.log_reader = LogReader(self._probed_addresses)
        self.database.on_invalidate = self.provider_reader.forget
        self.webhook_key = find_key(settings.webhook_signing_key, settings.pilotlight_home)
        self.cipher = Cipher.of(settings.encryption_key)
        self.wrong_tokens = WrongTokens(settings.wrong_token_limit)
        self.tokens = Tokens(
            self.database,
            self.notifier,
            wrong_tokens=self.wrong_tokens,
            is_loopback=settings.is_loopback,
        )
        self.projects = Projects(self.database)
        self.tail = Tail(self.database, self.notifier)
        self.seals = Seals(self.database)
        self.cursors = Cursors(self.seals)
        self.audit = AuditLog(self.database, self.seals)
        self.server_info = ServerInfo(
            settings, self.database, self.tail, self.novita.breaker, self.provider, novita_url=novita_url
        )
        self.is_draining = False
        self.follows_events = False
        self._workers: list[Worker] = []
        self.workers_of_process: list[Worker] = [] if beside is None else beside.workers_of_process
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self.settings.otel_exporter_otlp_endpoint is not None and self._beside is None:
            service = self.settings.otel_service_name
            tracing.begin(self.settings.otel_exporter_otlp_endpoint, service=service, version=__version__)
            self._stack.push_async_callback(tracing.end)
        measuring = asyncio.create_task(measure_loop_lag(), name="event loop lag")
        self._stack.callback(measuring.cancel)
        self._stack.push_async_callback(self.database.close)
        self._stack.push_async_callback(self.tokens.close)
        self._stack.push_async_callback(self.caches.close)
        await self._stack.enter_async_context(self.novita)
        self._stack.push_async_callback(self.provider.close)
        self._stack.push_async_callback(self.log_reader.close)
        try:
            # Before anything is started that works with the provider.
            await self.provider.confirm()
        except StartupProblem:
            await self._stack.aclose()
            raise
        self._stack.push_async_callback(self.poller.close)
        self.notifier.start()
        self._stack.push_async_callback(self.notifier.stop)
        following = follow_market(self.database, self.notifier, self.catalog.forget_products)
        self._stack.callback(asyncio.create_task(following, name="market").cancel)
        # Every process may become the sequencer, so the log continues as long as one process of any kind runs.
        if self._beside is None:
            self.sequencer.start()
            self._stack.push_async_callback(self.sequencer.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _make_jobs_due_now(self, clients: Collection[Hashable]) -> None:
        """The jobs among the clients of the poller: there is news of their machines."""
        async with self.database.write() as session:
            await make_ids_due_now(session, [client for client in clients if isinstance(client, int)])

    def warm_catalog(self) -> None:
        """Read regions and products in the background, so that the first request does not wait for them."""
        warming = asyncio.create_task(self.catalog.warm(), name="warm the catalog")
        self._stack.callback(warming.cancel)

    def follow_events(self) -> None:
        """For processes that serve subscriptions."""
        self.follows_events = True
        self.tail.start()
        self._stack.push_async_callback(self.tail.stop)

    def work(self) -> None:
        """For processes that run jobs."""
        prober = Prober(private_addresses=self._probed_addresses)
        self._stack.push_async_callback(prober.close)
        sender = Sender(
            timeout=self.settings.webhook_timeout,
            key=self.webhook_key,
            private_addresses=self.settings.allow_private_webhooks,
        )
        self._stack.push_async_callback(sender.close)
        services = JobServices(
            database=self.database,
            novita=self.novita,
            catalog=self.catalog,
            prober=prober,
            sender=sender,
            settings=self.settings,
            poller=self.poller,
        )
        feed = WebhookFeed(self.database, self.notifier)
        feed.start()
        self._stack.push_async_callback(feed.stop)
        handlers = all_handlers(services)
        check_handled(handlers)
        # Slow kinds have a worker of their own: a thousand waiting jobs must not block the others.
        raise_socket_limits()
        slow_handlers = {work.kind: handlers.pop(work.kind) for work in SLOW_KINDS}
        self._start_worker(slow_handlers, concurrency=sum(work.concurrency or 0 for work in SLOW_KINDS))
        recurring = [
            Recurring(CleanUp(), every=CLEAN_UP_INTERVAL),
            Recurring(Reconcile(), every=self.settings.reconcile_interval),
            Recurring(WatchHealth(), every=WATCH_INTERVAL),
            Recurring(UpdateEstimates(), every=ESTIMATES_INTERVAL),
            Recurring(CheckBudgets(), every=BUDGETS_INTERVAL),
            Recurring(PollMarket(), every=min(self.settings.market_hot, self.settings.market_cold)),
            Recurring(CheckBill(), every=self.settings.bill_interval),
        ]
        self._start_worker(handlers, concurrency=self.settings.max_concurrent_jobs, recurring=recurring)

    def _probed_addresses(self) -> PrivateAddresses:
        """Only a simulator's machines serve on loopback."""
        return PrivateAddresses.LOOPBACK if self.provider.is_simulator else PrivateAddresses.OFF

    def _start_worker(
        self, handlers: dict[str, Handler], *, concurrency: int, recurring: Sequence[Recurring] = ()
    ) -> None:
        worker = Worker(
            self.database,
            self.notifier,
            handlers,
            concurrency=concurrency,
            poll_interval=self.settings.job_poll_interval,
            lease=self.settings.job_lease,
            max_attempts=self.settings.max_retry_attempts,
            shutdown_timeout=self.settings.shutdown_timeout,
            recurring=recurring,
            turns=CallTurns(self.novita.limiter),
            seals=self.seals,
        )
        worker.start()
        self._workers.append(worker)
        self.workers_of_process.append(worker)
        self._stack.push_async_callback(worker.stop)

    @property
    def has_workers(self) -> bool:
        return bool(self.workers_of_process)

    @property
    def active_workers(self) -> int:
        """Number of this process's workers that hold a lease."""
        return sum(worker.is_working for worker in self.workers_of_process)

    async def drain(self) -> None:
        """Report not ready, and keep serving until load balancers have noticed."""
        self.is_draining = True
        await asyncio.sleep(self.settings.drain_time.total_seconds())

    def begin_stop(self) -> None:
        """Stop claiming jobs. Running jobs and requests then end in parallel, within the same timeout."""
        self.is_draining = True
        for worker in self._workers:
            self._stack.push_async_callback(asyncio.gather, asyncio.create_task(worker.stop()))
