# Programs that the tests run, as command:package, by the store whose tests run them. Missing ones are installed
# with apt-get. The tests start servers of their own on free ports; a daemon that comes with a package is
# neither used nor in the way.
PROGRAMS = cc:gcc strace:strace unshare:util-linux
PROGRAMS_redis = openssl:openssl redis-server:redis-server
PROGRAMS_redlock = $(PROGRAMS_redis)
PROGRAMS_etcd = etcd:etcd-server etcdctl:etcd-client openssl:openssl
PROGRAMS_postgres = openssl:openssl pgbouncer:pgbouncer pg_ctlcluster:postgresql
PROGRAMS_zookeeper = ip:iproute2 java:default-jre-headless openssl:openssl /usr/share/zookeeper/bin/zkServer.sh:zookeeper
PROGRAMS_mariadb = mariadbd:mariadb-server openssl:openssl
PROGRAMS_fences = $(PROGRAMS_redis) mariadbd:mariadb-server pg_ctlcluster:postgresql
# What is got from elsewhere, by a script in tools/.
TOOLS_redis = redis-servers
TOOLS_fences = azurite

# Each has a target test-…: the stores, and the fences.
STORES = etcd fences mariadb memory postgres redis redlock sqlite zookeeper

BIN = .venv/bin
# More processes than cores: most tests wait. The order is that of tests/selection.py.
PYTEST = $(BIN)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder
TEST_TARGETS = $(addprefix test-,$(STORES))
ALL_PROGRAMS = $(sort $(PROGRAMS) $(foreach store,$(STORES),$(PROGRAMS_$(store))))

.PHONY: help demo test test-quick test-pythons $(TEST_TARGETS) check sim mutants sync bench model clean

help:
	@echo "make demo    see it work, on an embedded store in a temporary folder"
	@echo "make test    run the tests (ARGS='-k name' passes options to pytest)"
	@echo "make test-quick    run the tests for everyday work, two minutes"
	@for store in $(STORES); do echo "make test-$$store"; done
	@echo "             run the tests of one store, or of the fences, and print the slowest"
	@echo "make test-pythons  run a short list of tests on every Python that we claim"
	@echo "make check   formatting, lint, types, and that the blocking code matches the asyncio code"
	@echo "make sim     thousands of simulated runs of the stores that can be simulated"
	@echo "make mutants break safety rules on purpose, one at a time, and see that a test notices"
	@echo "make sync    generate the blocking code from the asyncio code"
	@echo "make bench   measure"
	@echo "make model   search the model of Redlock, all sizes (half an hour; ARGS='--small': half a minute)"
	@echo "make clean   remove what the others made"

demo:
	@tools/setup
	@tools/demo.sh

test:
	@tools/need $(ALL_PROGRAMS)
	@tools/setup dev
	@tools/azurite
	@tools/redis-servers
	@$(PYTEST) $(ARGS)

$(TEST_TARGETS): test-%:
	@tools/need $(PROGRAMS) $(PROGRAMS_$*)
	@tools/setup dev
	@set -e; for tool in $(TOOLS_$*); do tools/$$tool; done
	@$(PYTEST) --store $* --durations 20 $(ARGS)

test-quick:
	@tools/need $(PROGRAMS) $(PROGRAMS_redis)
	@tools/setup dev
	@$(PYTEST) --quick --durations 10 $(ARGS)

test-pythons:
	@tools/need $(ALL_PROGRAMS)
	@tools/setup dev
	@tools/test-pythons $(ARGS)

check:
	@tools/setup dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/unasync.py --check

# The variants that are known to be bad have seeds of their own, which `make test` runs.
sim:
	@tools/setup dev
	@$(BIN)/python -m holdfast.sim --backend redlock --first new --seeds 2000 --jobs 2 --variant none $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend redis --first new --seeds 2000 --jobs 2 --variant none $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend etcd --first new --seeds 400 --jobs 2 --variant none $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend zookeeper --first new --seeds 400 --jobs 2 --variant none $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend redlock --calm --first new --seeds 120 --jobs 2 --variant none $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend redis --calm --first new --seeds 120 --jobs 2 --variant none $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend etcd --calm --first new --seeds 40 --jobs 2 --variant none $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend zookeeper --calm --first new --seeds 60 --jobs 2 --variant none $(ARGS)

# The stores' rules broken on purpose; CI breaks those whose tests need no servers.
mutants:
	@tools/need $(PROGRAMS) $(PROGRAMS_redis)
	@tools/setup dev
	@$(BIN)/python tools/mutants.py $(ARGS)

sync:
	@tools/setup dev
	@$(BIN)/python tools/unasync.py

bench:
	@tools/setup bench
	@$(BIN)/python -m bench $(ARGS)

model:
	@tools/setup dev
	@$(BIN)/python -m model $(ARGS)

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
