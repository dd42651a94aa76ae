"""The parts of a running process, put together in one place and taken apart in the right order."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Self

from pydantic import SecretStr

from server import __version__
from server.auth.projects import Projects
from server.auth.tokens import Tokens
from server.catalog.caches import Caches
from server.catalog.catalog import Catalog
from server.catalog.shared import Shared
from server.config import Settings
from server.db.engine import Database
from server.db.rehearsal import Rehearsal
from server.db.signals import Signals
from server.events.sequencer import Sequencer
from server.events.tail import Tail
from server.facts import Facts
from server.guard import Inside, allow_many_sockets
from server.instances.lookout import Lookout
from server.instances.watch import Watch
from server.jobs.handler import Services, all_handlers
from server.novita.client import NovitaClient
from server.novita.retry import Retry
from server.observe import traces
from server.observe.lag import watch_the_loop
from server.probes.probe import Prober
from server.queue.handler import Handler
from server.queue.kinds import CheckHealth, CleanUp, Reconcile, SendWebhook, Work
from server.queue.recurring import Recurring
from server.queue.worker import Worker
from server.webhooks.key import find_key
from server.webhooks.send import Sender

CLEAN_UP_EVERY = timedelta(minutes=10)
# Kinds that wait for others nearly all of their time.
PATIENT: tuple[type[Work], ...] = (CheckHealth, SendWebhook)


class Runtime:
    """What every process has; API processes add a tail, worker processes a worker."""

    def __init__(self, settings: Settings, *, database_url: str, novita_url: str, novita_key: SecretStr) -> None:
        self.settings = settings
        # The provider speaks https; what speaks http is a simulator, whose machines serve on loopback.
        self._is_simulated = novita_url.startswith("http://")
        self.database_url = database_url
        direct_url, read_url = settings.database_direct_url, settings.database_read_url
        self.database = Database(
            database_url,
            direct_url=None if direct_url is None else direct_url.get_secret_value(),
            read_url=None if read_url is None else read_url.get_secret_value(),
            read_patience=settings.database_read_patience,
            pool_size=settings.database_pool_size,
            command_timeout=settings.database_timeout,
        )
        self.rehearsal = Rehearsal(self.database)
        self.signals = Signals(self.database)
        self.sequencer = Sequencer(self.database, self.signals)
        self.novita = NovitaClient(
            base_url=novita_url,
            api_key=novita_key,
            request_timeout=settings.request_timeout,
            rate_limit_per_minute=settings.novita_rate_limit,
            breaker_threshold=settings.breaker_threshold,
            breaker_recovery=settings.breaker_recovery,
            retry=Retry(deadline=settings.request_deadline),
        )
        self.caches = Caches(Shared(settings.redis_url) if settings.redis_url is not None else None)
        self.catalog = Catalog(
            self.novita,
            product_ttl=settings.product_cache_ttl,
            template_ttl=settings.template_cache_ttl,
            caches=self.caches,
        )
        self.lookout = Lookout(self.novita, calls_per_minute=settings.novita_rate_limit)
        self.watch = Watch(
            self.database,
            self.novita,
            self.lookout,
            self.caches,
            instance_ttl=settings.instance_cache_ttl,
            state_ttl=settings.instance_state_cache_ttl,
            fleet_ttl=settings.fleet_cache_ttl,
        )
        self.database.on_written = self.watch.forget
        self.webhook_key = find_key(settings.webhook_signing_key, settings.pilotlight_home)
        self.tokens = Tokens(self.database, self.signals)
        self.projects = Projects(self.database)
        self.tail = Tail(self.database, self.signals)
        self.facts = Facts(settings, self.database, self.tail, self.novita.breaker, novita_url=novita_url)
        self.is_draining = False
        self.follows_events = False
        self._workers: list[Worker] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self.settings.otel_exporter_otlp_endpoint is not None:
            service = self.settings.otel_service_name
            traces.begin(self.settings.otel_exporter_otlp_endpoint, service=service, version=__version__)
            self._stack.push_async_callback(traces.end)
        watching = asyncio.create_task(watch_the_loop(), name="event loop lag")
        self._stack.callback(watching.cancel)
        self._stack.push_async_callback(self.database.close)
        self._stack.push_async_callback(self.tokens.close)
        self._stack.push_async_callback(self.caches.close)
        await self._stack.enter_async_context(self.novita)
        self._stack.push_async_callback(self.lookout.close)
        self.signals.start()
        self._stack.push_async_callback(self.signals.stop)
        # Every process stands for election: as long as one of any kind lives, the log goes on.
        self.sequencer.start()
        self._stack.push_async_callback(self.sequencer.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def follow_events(self) -> None:
        """For processes that serve subscriptions."""
        self.follows_events = True
        self.tail.start()
        self._stack.push_async_callback(self.tail.stop)

    def work(self) -> None:
        """For processes that run jobs."""
        prober = Prober(inside=Inside.LOOPBACK if self._is_simulated else Inside.OFF)
        self._stack.push_async_callback(prober.close)
        sender = Sender(
            timeout=self.settings.webhook_timeout,
            key=self.webhook_key,
            inside=self.settings.allow_private_webhooks,
        )
        self._stack.push_async_callback(sender.close)
        services = Services(
            database=self.database,
            novita=self.novita,
            catalog=self.catalog,
            prober=prober,
            sender=sender,
            settings=self.settings,
            lookout=self.lookout,
        )
        handlers = all_handlers(services)
        patient = {work.kind: handlers.pop(work.kind) for work in PATIENT}
        self._work_patiently(patient)
        worker = Worker(
            self.database,
            self.signals,
            handlers,
            concurrency=self.settings.max_concurrent_jobs,
            poll_interval=self.settings.job_poll_interval,
            lease=self.settings.job_lease,
            max_attempts=self.settings.max_retry_attempts,
            shutdown_timeout=self.settings.shutdown_timeout,
            recurring=[
                Recurring(CleanUp(), every=CLEAN_UP_EVERY),
                Recurring(Reconcile(), every=self.settings.reconcile_interval),
            ],
        )
        self._start(worker)

    def _work_patiently(self, handlers: dict[str, Handler]) -> None:
        """Jobs that wait for strangers have slots of their own: a thousand of them keep nobody else from working."""
        allow_many_sockets()
        worker = Worker(
            self.database,
            self.signals,
            handlers,
            concurrency=sum(work.concurrency or 0 for work in PATIENT),
            poll_interval=self.settings.job_poll_interval,
            lease=self.settings.job_lease,
            max_attempts=self.settings.max_retry_attempts,
            shutdown_timeout=self.settings.shutdown_timeout,
        )
        self._start(worker)

    def _start(self, worker: Worker) -> None:
        worker.start()
        self._workers.append(worker)
        self._stack.push_async_callback(worker.stop)

    @property
    def has_workers(self) -> bool:
        return bool(self._workers)

    @property
    def workers_working(self) -> int:
        """How many of this process's workers hold a lease."""
        return sum(worker.is_working for worker in self._workers)

    async def drain(self) -> None:
        """Say that we are leaving, and serve on for as long as whoever sends us requests needs to notice."""
        self.is_draining = True
        await asyncio.sleep(self.settings.drain_time.total_seconds())

    def begin_stop(self) -> None:
        """No new claims from now on. Jobs and requests then come to their ends side by side, in the same time."""
        self.is_draining = True
        for worker in self._workers:
            self._stack.push_async_callback(asyncio.gather, asyncio.create_task(worker.stop()))
