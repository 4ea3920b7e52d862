# The two commands for a fresh clone are `make quickstart` and `make test`; both only need
# Python >= 3.11, git and make. The others are for people who change gpujob.
PYTHON ?= python3
V := .venv/bin
SEEDS ?= 1000
# Those that need no argument; the accuracy benches name theirs in docs/sizing.md.
BENCHES := cli_startup local_provider bootstrap overhead supervisor_memory log_follow log_pull upload push

.PHONY: help quickstart test check fmt sim prove survive faults bench screens locks clean
help:            ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

quickstart:      ## set up, then fine-tune a tiny model on this machine: no account, no key
	@$(PYTHON) scripts/setup.py quickstart

test:            ## set up, then run every test
	@$(PYTHON) scripts/setup.py test

check:           ## format, lint, types, layers (after `make test` has set up)
	$(V)/ruff format --check . && $(V)/ruff check . && $(V)/mypy && $(V)/lint-imports && $(V)/codespell

fmt:             ## format and fix what can be fixed
	$(V)/ruff format . && $(V)/ruff check --fix .

sim:             ## the simulation: make sim SEEDS=10000
	$(V)/python -m tests.sim --seeds $(SEEDS)

survive:         ## all that shows that nothing is lost: make survive
	$(V)/python scripts/survive.py

prove:           ## the long campaigns, resumable: make prove CAMPAIGNS="sim kills"
	$(V)/python scripts/prove.py $(CAMPAIGNS)

faults:          ## the fault table on the simulated RunPod: make faults NAMES="delete_lie"
	$(V)/python scripts/faults.py $(NAMES)

bench:           ## every bench; prints figures, asserts nothing
	@for b in $(BENCHES); do echo "== $$b"; PYTHONPATH=. $(V)/python benches/$$b.py || exit 1; done

screens:         ## capture docs/screens/ with tmux
	$(V)/python scripts/make_screens.py

locks:           ## resolve the hashed requirement files anew
	$(V)/python scripts/lock.py

clean:           ## remove what set-up made here (the state in GPUJOB_HOME stays)
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
