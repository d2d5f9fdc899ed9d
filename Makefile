# Each target makes its own .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: quickstart test test-all unit test-beam lint docs clean

# An environment that could not be made is made again.
.DELETE_ON_ERROR:

quickstart: $(VENV)/installed
	$(BIN)/xling quickstart --workdir runs/quickstart

test: $(VENV)/installed-test
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not exhaustive"

test-all: $(VENV)/installed-test
	$(BIN)/python -m pytest -n auto --dist worksteal

unit: $(VENV)/installed-test
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow"

# Beam asks for an older protobuf than TensorFlow Datasets does: an environment of its own.
test-beam: $(VENV)-beam/installed
	$(VENV)-beam/bin/python -m pytest tests/corpora/beam

lint: $(VENV)/installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

docs: $(VENV)/installed-docs
	$(BIN)/zensical build --strict --clean

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: setup.py | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	touch $@

$(VENV)/installed-test: setup.py | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[train,test]'
	touch $@ $(VENV)/installed

$(VENV)-beam/installed: setup.py
	$(PYTHON) -m venv $(VENV)-beam
	$(VENV)-beam/bin/python -m pip install -q --disable-pip-version-check -e '.[beam]' pytest pytest-timeout
	touch $@

$(VENV)/installed-docs: setup.py | $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-beam .xla-tests site runs/quickstart
