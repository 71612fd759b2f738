# Programs that the tests run, as command:package, by the store whose tests run them. Missing ones are installed
# with apt-get. The tests start servers of their own on free ports; a daemon that comes with a package is
# neither used nor in the way.
PROGRAMS = cc:gcc fish:fish man:man-db strace:strace unshare:util-linux zsh:zsh
PROGRAMS_redis = openssl:openssl redis-server:redis-server
PROGRAMS_redlock = $(PROGRAMS_redis)
PROGRAMS_etcd = etcd:etcd-server etcdctl:etcd-client openssl:openssl
PROGRAMS_postgres = openssl:openssl pgbouncer:pgbouncer pg_ctlcluster:postgresql
PROGRAMS_zookeeper = ip:iproute2 java:default-jre-headless openssl:openssl /usr/share/zookeeper/bin/zkServer.sh:zookeeper
PROGRAMS_mariadb = mariadbd:mariadb-server openssl:openssl
PROGRAMS_fences = $(PROGRAMS_redis) mariadbd:mariadb-server pg_ctlcluster:postgresql
PROGRAMS_pages = chromium:chromium
# What is got from elsewhere, by a script in tools/.
TOOLS_redis = redis-servers
TOOLS_fences = azurite

# Each has a target test-…: the stores, and the fences.
STORES = etcd fences http mariadb memory postgres redis redlock sqlite zookeeper

# The tests start thousands of processes: each would compile all modules anew where this is set.
unexport PYTHONDONTWRITEBYTECODE

BIN = .venv/bin
# More processes than cores: most tests wait. The order is that of tests/selection.py.
PYTEST = $(BIN)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder
TEST_TARGETS = $(addprefix test-,$(STORES))
ALL_PROGRAMS = $(sort $(PROGRAMS) $(PROGRAMS_pages) $(foreach store,$(STORES),$(PROGRAMS_$(store))))

.PHONY: help demo test test-quick test-pythons $(TEST_TARGETS) check chaos chaos-quick sim mutants sync bench image model pictures docs package clean

help:
	@echo "make demo    see it work, on an embedded store in a temporary folder"
	@echo "make test    run the tests (ARGS='-k name' passes options to pytest)"
	@echo "make test-quick    run the tests for everyday work, two minutes"
	@for store in $(STORES); do echo "make test-$$store"; done
	@echo "             run the tests of one store, or of the fences, and print the slowest"
	@echo "make test-pythons  run a short list of tests on every Python that we claim"
	@echo "make check   formatting, lint, types, and that the blocking code matches the asyncio code"
	@echo "make chaos   break every store on purpose, for a million grants (hours; ends and goes on as you like)"
	@echo "make chaos-quick   break every store on purpose, for two minutes"
	@echo "make sim     thousands of simulated runs of the stores that can be simulated"
	@echo "make mutants break safety rules on purpose, one at a time, and see that a test notices"
	@echo "make sync    generate the blocking code from the asyncio code"
	@echo "make bench   measure"
	@echo "make image   build the image of deploy/ and try it (as root, with buildah and debootstrap; some minutes)"
	@echo "make model   search the model of Redlock, all sizes (half an hour; ARGS='--small': half a minute)"
	@echo "make pictures  make the images of the docs again: a run of holdfast chaos for each failure mode, and the page"
	@echo "make docs    build the documentation into build/docs"
	@echo "make package build sdist and wheel, and try them out on each Python that is here"
	@echo "make clean   remove what the others made"

demo:
	@tools/setup
	@tools/demo.sh

test:
	@tools/need $(ALL_PROGRAMS)
	@tools/setup dev
	@tools/setup docs
	@tools/axe
	@tools/azurite
	@tools/redis-servers
	@tools/promtool
	@sync # what was installed: the tests' stores would wait for it
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

# Each run is kept in build/chaos, so that the next `make chaos` goes on where this one ended.
chaos:
	@tools/need $(ALL_PROGRAMS)
	@tools/setup dev
	@mkdir -p build
	@$(BIN)/holdfast chaos --backend all --grants 1000000 --duration 60s --jobs 6 --workers 6 --seed 1 --state build/chaos --markdown $(ARGS) >build/chaos.md
	@cat build/chaos.md

# What a store is most often hit by; on all but a Redis Cluster, whose six nodes are for `make chaos` and tests/chaos.
QUICK_STORES = sqlite,redis,redis+sentinel,redis+replica,redlock,etcd,zookeeper,postgresql,postgresql+standby,mysql,mysql+replica
chaos-quick:
	@tools/need $(ALL_PROGRAMS)
	@tools/setup dev
	@$(BIN)/holdfast chaos --backend $(QUICK_STORES) --faults pause,partition,store-crash,failover --duration 4s --jobs 6 $(ARGS)

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

image:
	@tools/image

model:
	@tools/setup dev
	@$(BIN)/python -m model $(ARGS)

pictures:
	@tools/need $(PROGRAMS) $(PROGRAMS_pages) $(PROGRAMS_redis)
	@tools/setup dev
	@$(BIN)/python tools/pictures chaos $(ARGS)
	@$(BIN)/python tools/pictures page

docs:
	@tools/setup docs
	@PYTHONPATH=tools $(BIN)/python -m docs_site

package:
	@tools/setup dev
	@PYTHONPATH=tools $(BIN)/python -m release_check $(ARGS)

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
