# The house: every target makes what it needs; Python 3.11 and Java 17 are all that is expected on the machine.
#
#   make demo      a real change stream from Kafka into tables, readers of their log, a kill -9; Apache Paimon reads along
#   make demo-join three change streams into one wide table, by one query and by several
#   make demo-database  twelve tables of a PostgreSQL database into a lake, while they change: no broker, no Java;
#                       ARGS=--debezium: by Debezium and Kafka
#   make test      the quick suites and the judge (under ten minutes)      make test-all   everything
#   make test ROOM=commit  those of a folder of tests; ROOM=pipeline/config where several have that name
#   make soak      the counts that issues name, in full: random schedules, writers side by side (hours); the seed is printed
#   make test-lowest  the storage suites with the oldest libraries that are allowed, and without Spark
#   make lint      ruff, mypy, docker files                                make bench      against the peers; QUICK=1: ten minutes, per core
#   make docs      the documentation site, into build/site
#   make release   sdist, wheel and bills of materials into dist/, checked and installed by extras (fetches 1 GB)
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYPAIMON := .venv-pypaimon
LOWEST := .venv-lowest
FLINK := .venv-flink
FRAMES := .frames
DOCS := .venv-docs
RELEASE := .venv-release
PIP_QUIET := --disable-pip-version-check --quiet
TESTS := $(BIN)/python -m tests
ARGS ?=
# The folders of tests that are called so, for tests of one room.
ROOM ?=
PLACES = $(if $(ROOM),$(or $(shell find tests -type d -path '*/$(ROOM)'),$(error no folder of tests is called $(ROOM))))
PYTHON_CHECK := import sys; sys.version_info >= (3, 11) or sys.exit("Freshet needs Python 3.11 or newer: make PYTHON=python3.11 …")

.DEFAULT_GOAL := help
.PHONY: help venv venv-pypaimon venv-flink venv-lowest frames jars jars-s3 versitygw demo demo-join demo-database demo-clean test test-all soak lint format reference bench docs release clean

help:
	@sed -n 's/^#   //p' Makefile

# A stamp inside the environment names the lock it was made from; touching nothing when nothing changed.
$(VENV)/.stamp: requirements.lock pyproject.toml
	@echo "venv: $(VENV) from requirements.lock"
	@test -x $(BIN)/python || $(PYTHON) -c '$(PYTHON_CHECK)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install $(PIP_QUIET) --requirement requirements.lock
	@$(BIN)/python -m pip uninstall --yes $(PIP_QUIET) --quiet freshet  # not ours, or ours under its first name
	@$(BIN)/python -m pip install $(PIP_QUIET) --no-deps --no-build-isolation --editable .
	@touch $@

$(PYPAIMON)/.stamp: requirements-pypaimon.lock
	@echo "venv: $(PYPAIMON) from requirements-pypaimon.lock"
	@test -x $(PYPAIMON)/bin/python || $(PYTHON) -m venv $(PYPAIMON)
	@$(PYPAIMON)/bin/python -m pip install $(PIP_QUIET) --requirement requirements-pypaimon.lock
	@touch $@

# The bench's peer Flink: its jars come as a Python package, of which nothing is imported.
$(FLINK)/.stamp: requirements-flink.lock
	@echo "venv: $(FLINK) from requirements-flink.lock"
	@test -x $(FLINK)/bin/python || $(PYTHON) -m venv $(FLINK)
	@$(FLINK)/bin/python -m pip install $(PIP_QUIET) --no-deps --requirement requirements-flink.lock
	@touch $@

$(DOCS)/.stamp: requirements-docs.lock
	@echo "venv: $(DOCS) from requirements-docs.lock"
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install $(PIP_QUIET) --requirement requirements-docs.lock
	@touch $@

$(RELEASE)/.stamp: requirements-release.lock
	@echo "venv: $(RELEASE) from requirements-release.lock"
	@test -x $(RELEASE)/bin/python || $(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/python -m pip install $(PIP_QUIET) --requirement requirements-release.lock
	@touch $@

# The test libraries are those of the other runs.
$(LOWEST)/.stamp: requirements-lowest.lock requirements.lock
	@echo "venv: $(LOWEST) from requirements-lowest.lock"
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@grep -E '^(pytest|pytest-timeout|hypothesis)==' requirements.lock > $(LOWEST)/tests.txt
	@$(LOWEST)/bin/python -m pip install $(PIP_QUIET) --requirement requirements-lowest.lock --requirement $(LOWEST)/tests.txt
	@touch $@

# A folder that only some tests look into: in $(VENV) PySpark would find pandas and do other things than it does for most.
$(FRAMES)/.stamp: requirements-frames.lock $(VENV)/.stamp
	@echo "frames: $(FRAMES) from requirements-frames.lock"
	@$(BIN)/python -m pip install $(PIP_QUIET) --no-deps --upgrade --target $(FRAMES) --requirement requirements-frames.lock
	@touch $@

venv: $(VENV)/.stamp

frames: $(FRAMES)/.stamp

venv-flink: $(FLINK)/.stamp

venv-pypaimon: $(PYPAIMON)/.stamp

venv-lowest: $(LOWEST)/.stamp

jars: venv
	@$(BIN)/python -m freshet.pipeline.spark.jars spark-kafka kafka-broker paimon >/dev/null
	@$(BIN)/python -m freshet prepare

# Hadoop's S3A, for slow tests of checkpoints in S3: 690 MB, once per machine.
jars-s3: jars
	@$(BIN)/python -m freshet jars --s3 >/dev/null

# The S3 server of slow tests, which take it from the PATH or make it themselves: five minutes, once, with Go.
versitygw: venv
	@$(BIN)/python -m tests.kit.versitygw

demo: venv jars
	@$(BIN)/python -m freshet demo $(ARGS)

demo-join: venv jars
	@$(BIN)/python -m freshet demo join $(ARGS)

# PostgreSQL comes from the system; where it is missing, the demo says how to get it.
demo-database: venv
	@$(BIN)/python -m freshet demo database $(ARGS)

demo-clean:
	rm -rf demo-output

test: venv venv-pypaimon frames jars
	$(TESTS) -m "not slow" $(PLACES) $(ARGS)

test-all: venv venv-pypaimon venv-flink frames jars jars-s3
	FRESHET_ALL_EXAMPLES=1 $(TESTS) $(PLACES) $(ARGS)

# FRESHET_SOAK_SHARE=0.1 runs a tenth of each count, FRESHET_SOAK_MINUTES=3 what there is time for, FRESHET_SOAK_SEED=…
# repeats a run.
soak: venv venv-pypaimon jars
	$(TESTS) -m soak $(ARGS)

# Without the judges and the fixtures that start them: those need Spark.
test-lowest: venv-lowest
	FRESHET_ALL_EXAMPLES=1 PYTHONPATH=src:. $(LOWEST)/bin/python -m pytest --noconftest -p tests.kit.hypothesis_profile -p tests.kit.checked_claims -m "not judge and not spark and not kafka and not slow and not soak" tests/storage $(ARGS)

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/yamllint --strict .
	$(BIN)/hadolint docker/Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker/compose.yaml docker/compose.watch.yaml
	@$(BIN)/python -m tests.kit.room_sizes

format: venv
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

bench: venv venv-pypaimon venv-flink jars versitygw
	@$(BIN)/python -m freshet.pipeline.spark.jars delta flink paimon-s3 >/dev/null
	$(BIN)/python -m bench $(if $(QUICK),--parts core) $(ARGS)

# The reference pages of the site, from the code; a test compares them.
reference: venv
	$(BIN)/python -m tests.docs.reference
	$(BIN)/python -m tests.docs.pictures

# Warnings are errors: a page that no menu names, a link or an anchor that leads nowhere, a word that is a known slip. Snippets are
# run by the tests (tests/docs).
docs: $(DOCS)/.stamp
	@$(DOCS)/bin/codespell $$(find README.md docs src tests bench -name '*.md')
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	@$(PYTHON) tests/docs/outside_assets.py build/site

release: $(RELEASE)/.stamp
	@$(RELEASE)/bin/python -m tests.kit.release $(ARGS)

clean: demo-clean
	rm -rf bench-output build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
