# One short command each, from a clean clone with nothing but Python 3.11 or newer and pip.
# A Python that was compiled without optimisation, as pyenv does, is a fifth slower in everything; a distribution's own is
# never, though not each of them says so in CONFIG_ARGS. Another one: make PYTHON=python3.12 ...
IS_SLOW := import sys, sysconfig; \
  sys.exit(sys.base_prefix == "/usr" or "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or ""))
IS_NEW_ENOUGH := import sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell { python3 -c '$(IS_SLOW)' && /usr/bin/python3 -c '$(IS_NEW_ENOUGH)' && echo /usr/bin/python3; } 2> /dev/null || \
  echo python3)
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.7
KUBERNETES_VALIDATE := 1.37.0
# Certificates of the system, not those that uv, pip and Node.js bring along: behind a proxy that ends TLS, only the
# system knows the proxy's. Debian's, Fedora's and macOS's bundle; where there is none, pip and Node.js use their own.
SYSTEM_CERTS := $(firstword $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem))
export UV_SYSTEM_CERTS := true
export PIP_CERT ?= $(SYSTEM_CERTS)
export NODE_EXTRA_CA_CERTS ?= $(SYSTEM_CERTS)
ARGS ?=
TESTS ?= tests
LOCK := $(BIN)/uv pip compile -q --universal --generate-hashes --no-header --no-annotate --extra redis --extra otel --extra mcp pyproject.toml
# Three test processes keep two cores busy: many tests wait for a timeout, a lease or a process that starts.
WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: $(shell sed -n 's/^\([a-z][a-z-]*\):.*/\1/p' Makefile)  # all of them: none makes a file of its name

help: ## List these commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

up: $(VENV)/.ready ## Run everything: database, simulator, API, workers (ARGS="--port 0 --home DIR")
	@BUILD_PAGES=$${BUILD_PAGES:-on} exec $(BIN)/pilotlight up $(ARGS)

test: $(VENV)/.installed ## Everything that CI runs: lint, types, contracts, schema, deployment files, tests
	@$(MAKE) --no-print-directory --keep-going -j 2 tests beside; code=$$?; cat $(VENV)/check.log; exit $$code

beside: $(VENV)/.installed  # the checks, in what the tests leave of the CPU; shown when both have ended
	@nice -n 10 $(MAKE) --no-print-directory --keep-going check > $(VENV)/check.log 2>&1

check: lint types contracts schema-check deploy-check

lint: $(VENV)/.installed ## Style and mistakes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed ## Strict types
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright

contracts: $(VENV)/.installed ## Who may import whom
	$(BIN)/lint-imports

schema: $(VENV)/.installed ## Print the GraphQL schema into schema/schema.graphql, and the client's types of it
	$(BIN)/pilotlight schema print > schema/schema.graphql.new && mv schema/schema.graphql.new schema/schema.graphql
	$(BIN)/python client/generate.py

client: $(VENV)/.installed ## Write the generated files of the Python client
	$(BIN)/python client/generate.py

errors: $(VENV)/.installed ## Print every error code into docs/errors.md
	$(BIN)/pilotlight schema errors > docs/errors.md.new && mv docs/errors.md.new docs/errors.md

schema-check: $(VENV)/.installed
	$(BIN)/pilotlight schema check
	$(BIN)/python client/generate.py --check

schema-lint: ## What graphql-schema-linter says about the schema (takes npm and the internet)
	npx --yes -p graphql@16 -p graphql-schema-linter@3.0.1 graphql-schema-linter schema/schema.graphql

schema-release: schema-check ## Make the present schema the one that later changes are compared with
	cp schema/schema.graphql schema/released.graphql

deploy-check: $(VENV)/.installed ## Dockerfile, compose files, front and manifests, without Docker or a cluster
	$(BIN)/hadolint Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.github-actions deploy/github-action/action.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml deploy/ha/compose.yml \
	  deploy/observe/compose.yml
	$(BIN)/uv tool run --from kubernetes-validate==$(KUBERNETES_VALIDATE) kubernetes-validate --strict --quiet \
	  $(filter-out %/kustomization.yaml,$(wildcard deploy/kubernetes/base/*.yaml))
	@command -v kubectl > /dev/null || echo "kubectl is not installed here: the overlays of deploy/kubernetes are not checked"
	@! command -v kubectl > /dev/null || for overlay in $(notdir $(wildcard deploy/kubernetes/overlays/*)); do \
	  kubectl kustomize deploy/kubernetes/overlays/$$overlay > $(VENV)/overlay-$$overlay.yaml && \
	  $(BIN)/uv tool run --from kubernetes-validate==$(KUBERNETES_VALIDATE) kubernetes-validate --strict --quiet \
	    $(VENV)/overlay-$$overlay.yaml || exit 1; done
	@command -v haproxy > /dev/null || echo "haproxy is not installed here: deploy/front and deploy/ha are not checked"
	@! command -v haproxy > /dev/null || FRONT_BIND=127.0.0.1:8000 API_ADDRESS=api:8000 DNS_ADDRESS=127.0.0.11:53 \
	  haproxy -c -q -f deploy/front/haproxy.cfg
	@! command -v haproxy > /dev/null || haproxy -c -q -f deploy/ha/haproxy.cfg

tests: $(VENV)/.installed ## The tests alone (TESTS=tests/server/db for some of them)
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS) $(TESTS)

bench-queue: $(VENV)/.installed ## The job table beside other queues: drain, enqueue, pickup, in hard times
	$(BIN)/python -m bench.queue $(ARGS)

bench-fairness: $(VENV)/.installed ## What a burst of 1,000 creates delays: stops, deletes, watching, other projects (ARGS="--creates 200")
	$(BIN)/python -m bench.fairness $(ARGS)

bench-client: $(VENV)/.installed ## The provider client beside bare aiohttp
	$(BIN)/python -m bench.client $(ARGS)

bench-simulator: $(VENV)/.installed ## What the simulator answers with 10 and with 100,000 instances
	$(BIN)/python -m bench.simulator $(ARGS)

bench-create: $(VENV)/.installed ## createInstance beside bare asyncpg writing the same rows
	$(BIN)/python -m bench.create $(ARGS)

bench-spend: $(VENV)/.installed ## `spend` of a month with a million entries
	$(BIN)/python -m bench.spend $(ARGS)

bench-audit: $(VENV)/.installed ## The audit log with a thousand and with a million records
	$(BIN)/python -m bench.audit $(ARGS)

bench-graphql: $(VENV)/.installed ## Reads over HTTP beside Strawberry as it comes and graphql-yoga
	$(BIN)/python -m bench.graphql $(ARGS)

bench-reads: $(VENV)/.installed ## Reads that users send, beside Mercurius, Starlette and graphql-yoga (ARGS="--only dashboard")
	$(BIN)/python -m bench.reads $(ARGS)

bench-monitor: $(VENV)/.installed ## Provider calls and CPU to watch 100, 1,000 and 10,000 moving instances
	$(BIN)/python -m bench.monitor $(ARGS)

bench-observe: $(VENV)/.installed ## What counting and tracing cost a request, beside a server that does neither
	$(BIN)/python -m bench.observe $(ARGS)

trace-picture: $(VENV)/.installed ## Run a create and draw its trace into docs/trace-of-a-create.svg
	$(BIN)/python -m bench.trace $(ARGS)

walk: $(VENV)/.installed ## Record the functions that a create goes through into docs/walk.md
	$(BIN)/python -m tests.support.walk

recovery-downtime: $(VENV)/.installed ## Time without service around a reclaim, by a prober: started again, and replaced before
	$(BIN)/python -m tests.server.recovery.downtime

recovery-outage: $(VENV)/.installed ## The provider can't be read for MINUTES (30): nothing is recovered, and afterwards what needs it
	$(BIN)/python -m tests.server.recovery.outage $(or $(MINUTES),30)

recovery-storm: $(VENV)/.installed ## MANY spot machines (200) reclaimed at once while workers die: all come back, none is left
	RECOVERY_STORM=$(or $(MANY),200) $(BIN)/pytest -q -p no:xdist tests/server/recovery/test_storm.py

bench-market: $(VENV)/.installed ## 10,000 operations wait for capacity: what that costs, and how soon stock leads to a create
	$(BIN)/python -m bench.market $(ARGS)

wait-storm: $(VENV)/.installed ## MANY creates (500) of 5 projects wait, stock comes one by one, workers die: the exact order, none lost
	WAIT_STORM=$(or $(MANY),500) $(BIN)/pytest -q -p no:xdist tests/server/market/test_wait_storm.py

secret-values: $(VENV)/.installed ## Each form of a secret value, in each place, over each transport: it is in no log and no error
	EACH_FORM_OVER_ALL=1 $(BIN)/pytest -q -p no:xdist tests/flows/test_variables.py

bench-killed: $(VENV)/.installed ## A worker killed during creates and deletes: seconds until another has finished them
	$(BIN)/python -m bench.killed_worker $(ARGS)

chaos-create: $(VENV)/.installed ## 100 x kill -9 of API and workers during creates whose answers get lost
	$(BIN)/python -m bench.chaos_create $(ARGS)

bench-probes: $(VENV)/.installed ## 1,000 instances probed at once, beside bare aiohttp (ARGS="--watch 10000": READY ones)
	$(BIN)/python -m bench.probes $(ARGS)

bench-idle: $(VENV)/.installed ## CPU and wake-ups of a `pilotlight up` that has nothing to do
	$(BIN)/python -m bench.idle $(ARGS)

bench-live: $(VENV)/.installed ## Subscribers: fan-out, latency, memory, leaks, stalled readers
	$(BIN)/python -m bench.live
	$(BIN)/python -m bench.live --subscribers 5000
	$(BIN)/python -m bench.live --cycles 10000
	$(BIN)/python -m bench.live --stalled 20

chaos-live: $(VENV)/.installed ## Kill what serves 100 subscribers; compare each record with the log (ARGS="--seed 7")
	$(BIN)/python -m tests.chaos.live $(ARGS)

bench-replication: $(VENV)/.installed ## What a standby costs each commit, and what reading from it takes off the primary
	$(BIN)/python -m bench.replication $(ARGS)

chaos-failover: $(VENV)/.installed ## Kill the primary of a Patroni cluster under load (ARGS="--seed 7 --failovers 30")
	$(BIN)/python -m tests.chaos.failover $(ARGS)

bench-neighbour: $(VENV)/.installed ## A project's create, stop and subscription beside a token at all of its limits, and in quiet (ARGS="--rounds 3")
	$(BIN)/python -m tests.neighbour.run $(ARGS)

flood: $(VENV)/.installed ## Every attack of tests/flood for 30 s while a healthy client measures (ARGS="--only connects")
	$(BIN)/python -m tests.flood.run $(ARGS)

cache-check: $(VENV)/.installed ## 1,000 random reads, events and mutations through the caches of Apollo and urql (CACHE_SEEDS="3 4")
	CACHE_STEPS=1000 $(BIN)/pytest -q -s -p no:xdist tests/examples/test_caches.py --timeout 390

chaos: $(VENV)/.installed ## Break everything at random for half an hour; a table of what held (ARGS="--minutes 30 --seed 7")
	$(BIN)/python -m tests.chaos.run $(ARGS)

# Of four hundred seeds, the one with the most kinds of faults in so short a time.
chaos-short: $(VENV)/.installed ## The same for two minutes; the tests have 45 seconds with each kind of fault once
	$(BIN)/python -m tests.chaos.run --minutes 2.1 --seed 56 --every 3 --pace 1.5 $(ARGS)

killed-program: $(VENV)/.installed ## kill -9 of a `with` program in real time: its machine is gone at heartbeat + 10 s
	$(BIN)/python -m tests.client.killed_program

mcp-inspector: $(VENV)/.installed ## MCP Inspector lists and calls every tool (takes npm and the internet)
	$(BIN)/python -m tests.server.mcp.inspector

mcp-cuts: $(VENV)/.installed ## 300 calls of an MCP client, a third of whose answers are cut: one machine per key
	MCP_CALLS=300 $(BIN)/pytest -q -s -p no:xdist tests/server/mcp/test_tools.py -k answers_are_cut --timeout 900

chaos-mutants: $(VENV)/.installed ## Plant defects one by one; chaos or a named test must catch each (ARGS="--without-chaos")
	$(BIN)/python -m tests.chaos.mutants $(ARGS)

chaos-outage: $(VENV)/.installed ## The provider away for a minute in the middle of each verb; the tests have 8 seconds
	OUTAGE_SECONDS=60 $(BIN)/pytest -q -p no:xdist tests/flows/test_verbs.py -k outage --timeout 400

bench-lifetimes: $(VENV)/.installed ## 10,000 ends in a minute, calls for idle instances, heartbeats (ARGS="heartbeats"); ten minutes
	$(BIN)/python -m bench.lifetimes $(ARGS)

bench-scale: $(VENV)/.installed ## The same questions to 1,000 rows and to millions; memory when idle
	$(BIN)/python -m bench.scale $(ARGS)

lifetime-races: $(VENV)/.installed ## An extension and an end of one lifetime, 1,000 times at once: what was answered holds
	LIFETIME_RACES=1000 $(BIN)/pytest -q -p no:xdist tests/server/lifetimes/test_extend.py -k race --timeout 390

budget-races: $(VENV)/.installed ## 64 creates over HTTP at two API processes, a budget for ten, kill -9 (ROUNDS=1000)
	BUDGET_RACES=$(or $(ROUNDS),1000) $(BIN)/pytest -q -s -p no:xdist tests/server/spend/test_budget_races.py --timeout 5400

chaos-queue: $(VENV)/.installed ## 200 workers killed at random under load
	QUEUE_KILLS=200 $(BIN)/pytest -q tests/server/queue/test_processes.py -k killed --timeout 390

web: $(VENV)/.ready ## Build the dashboard, which the server shows at /, and say how large it is
	@$(BIN)/python -m server.cli.build_pages dashboard

web-test: $(VENV)/.installed ## The dashboard's tests alone, in a real browser
	$(BIN)/pytest -q -p no:xdist tests/web $(ARGS)

web-shots: $(VENV)/.installed web ## Pictures of every view, in both themes, wide and narrow, into web/shots
	$(BIN)/python -m tests.web.shots $(ARGS)

bench-dashboard: $(VENV)/.installed web ## The page with 5,000 instances and 200 changes a second (ARGS="--seconds 300")
	$(BIN)/python -m bench.dashboard $(ARGS)

graphiql: $(VENV)/.ready ## Build GraphiQL, which the server shows at /graphql
	@$(BIN)/python -m server.cli.build_pages graphiql

format: $(VENV)/.installed ## Put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed web ## All benches in short form; figures into docs/benchmarks.md, fails if one is 20 % worse (ARGS=--long)
	$(BIN)/python -m bench.all $(ARGS)

release: $(VENV)/.installed ## Build wheels, source archives, SBOMs and checksums of HEAD into dist/, and check them (ARGS=--once)
	$(BIN)/python deploy/release/build.py $(ARGS)

image-steps: $(VENV)/.installed ## Execute the steps of the Dockerfile without Docker, and start what they make
	$(BIN)/python deploy/release/image_steps.py

lock: $(VENV)/.installed ## Take the newest versions that pyproject.toml allows into the two lock files
	$(LOCK) --upgrade --group dev -o requirements-dev.lock
	$(LOCK) --group build -c requirements-dev.lock -o requirements.lock

clean: ## Remove what these commands made (not the data in .pilotlight)
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis

# What it takes to run. No ensurepip (Debian splits it off): the pip outside puts uv into the environment, uv does the rest.
$(VENV)/.ready: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("Pilotlight needs Python 3.11 or newer; say which: make PYTHON=python3.12 ...") \
	  if sys.version_info < (3, 11) else None'
	@echo "Installing into $(VENV), with $(PYTHON): once, and again when requirements.lock changes"
	@test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	@# Debian's Python may have no pip: any other's can install into the environment.
	@test -x $(BIN)/uv || for python in $(PYTHON) python3; do $$python -m pip --version > /dev/null 2>&1 && break; done; \
	  test -x $(BIN)/uv || $$python -m pip -q --disable-pip-version-check --python $(BIN)/python install uv==$(UV_VERSION)
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install -q --require-hashes -r requirements.lock
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install -q --no-deps --no-build-isolation -e .
	@# Compiles what a start imports; where PYTHONDONTWRITEBYTECODE is set, every start would do that again.
	@PYTHONDONTWRITEBYTECODE= $(BIN)/pilotlight version > /dev/null 2>&1 || true
	@$(BIN)/python -m compileall -q client/pilotlight_client server/cli || true
	@touch $@

# What it takes to work on it, on top.
$(VENV)/.installed: $(VENV)/.ready requirements-dev.lock
	@echo "Installing what tests and checks need"
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install -q --require-hashes -r requirements-dev.lock
	@touch $@
