# Programs that the tests run, as command:package. Missing ones are installed with apt-get. The tests start
# servers of their own on free ports; a daemon that comes with a package is neither used nor in the way.
TEST_PROGRAMS = \
	cc:gcc \
	etcd:etcd-server \
	etcdctl:etcd-client \
	ip:iproute2 \
	java:default-jre-headless \
	mariadbd:mariadb-server \
	openssl:openssl \
	pg_ctlcluster:postgresql \
	redis-server:redis-server \
	strace:strace \
	unshare:util-linux \
	/usr/share/zookeeper/bin/zkServer.sh:zookeeper

BIN = .venv/bin

.PHONY: help demo test check sim sync bench model clean

help:
	@echo "make demo    see it work, on an embedded store in a temporary folder"
	@echo "make test    run the tests (ARGS='-k name' passes options to pytest)"
	@echo "make check   formatting, lint, types, and that the blocking code matches the asyncio code"
	@echo "make sim     thousands of simulated runs of the stores that can be simulated"
	@echo "make sync    generate the blocking code from the asyncio code"
	@echo "make bench   measure"
	@echo "make model   search the model of Redlock, all sizes (half an hour; ARGS='--small': half a minute)"
	@echo "make clean   remove what the others made"

demo:
	@tools/setup
	@tools/demo.sh

test:
	@tools/need $(TEST_PROGRAMS)
	@tools/setup dev
	@tools/azurite
	@tools/redis-servers
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ARGS)

check:
	@tools/setup dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/unasync.py --check

sim:
	@tools/setup dev
	@$(BIN)/python -m holdfast.sim --backend redlock --seeds 2000 --jobs 2 $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend redis --seeds 1000 --jobs 2 $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend etcd --seeds 400 --jobs 2 $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend zookeeper --seeds 150 --jobs 2 $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend redlock --calm --seeds 120 --jobs 2 $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend redis --calm --seeds 120 --jobs 2 $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend etcd --calm --seeds 40 --jobs 2 $(ARGS)
	@$(BIN)/python -m holdfast.sim --backend zookeeper --calm --seeds 60 --jobs 2 $(ARGS)

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
