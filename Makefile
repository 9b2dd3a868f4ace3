# make demo and make test need nothing but Python 3.8 or later (PYTHON=...); tests against a real Kafka also Java 17 and Maven.
PYTHON ?= python3
VENV := .venv
TOOLS := .tools
# Without setuptools' warning that an editable install takes the sources that lie here: that is what it is for.
INSTALL := PYTHONWARNINGS=ignore $(VENV)/bin/python -m pip install --quiet
export KIEL_CACHE ?= $(CURDIR)/.cache
export KIEL_SERVER_PYTHON ?= $(CURDIR)/$(VENV)/bin/python

.PHONY: demo test test-all lint docs clean

demo: $(VENV)/demo.stamp
	$(VENV)/bin/python examples/flights.py

test: $(VENV)/test.stamp
	$(VENV)/bin/pytest -m "not slow"

test-all: lint docs $(VENV)/test.stamp $(TOOLS)/stamp
	$(VENV)/bin/pytest -m slow
	$(TOOLS)/bin/tox $(if $(CI),--skip-missing-interpreters=false)

lint: $(TOOLS)/stamp
	$(TOOLS)/bin/ruff check .

docs: $(VENV)/docs.stamp
	$(VENV)/bin/python -m sphinx -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) $(TOOLS) .tox .cache build dist docs/_build *.egg-info .pytest_cache .hypothesis .ruff_cache

# Each stamp is younger than what it was installed from: a changed setup.py is installed anew.
$(VENV)/stamp:
	$(PYTHON) -m venv --clear $(VENV)
	$(INSTALL) --upgrade pip
	touch $@

$(VENV)/demo.stamp: setup.py pyproject.toml examples/requirements.txt | $(VENV)/stamp
	$(INSTALL) --editable ".[demo]"
	$(INSTALL) --no-deps -r examples/requirements.txt
	touch $@

$(VENV)/test.stamp: setup.py pyproject.toml tests/requirements.txt examples/requirements.txt | $(VENV)/stamp
	$(INSTALL) --editable ".[testing]" -r tests/requirements.txt
	$(INSTALL) --no-deps -r examples/requirements.txt
	touch $@

$(VENV)/docs.stamp: setup.py pyproject.toml | $(VENV)/stamp
	$(INSTALL) --editable ".[docs]"
	touch $@

$(TOOLS)/stamp: .ci/tools.txt
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet -r .ci/tools.txt
	touch $@
