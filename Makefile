# Everything a developer types. `make help` lists every target; each one can be run again.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-full setup run lint fmt bench models images image-size push cluster cluster-down down clean

PYTHON := .venv/bin/python

##@ The two commands

demo: ## FlexServ on Kubernetes on this machine: cluster, images, chart, models, questions and answers
	@hack/demo

test: ## Everything that must be green: lint, unit, contract, integration, chart, e2e
	@hack/test

##@ Every day

setup: ## A .venv with everything (TORCH_FIND_LINKS=folder: take torch's +cpu wheel from there)
	@hack/test --only setup

run: setup ## The backend alone on this machine: CPU, two small real models, http://127.0.0.1:8001
	@hack/run

test-fast: ## The inner loop: lint, unit, contract (2 minutes when warm)
	@hack/test --only lint,unit,contract

test-full: ## All of `make test`, and what takes too long for it
	@hack/test --full

lint: setup ## Check style, types, import direction, shell, Dockerfile
	@hack/test --only lint

fmt: setup ## Rewrite the Python files in the project's style
	@$(PYTHON) -m ruff check --fix --quiet .
	@$(PYTHON) -m ruff format .

bench: setup ## What is fast enough, measured: the operator at scale, a scrape; not part of the tests
	@hack/tools all
	@hack/bench-operator
	@hack/bench-scrape

##@ Parts

models: setup ## The small real models, made once and cached
	@$(PYTHON) hack/models

images: models ## Both container images
	@hack/images

push: models ## Both images into REGISTRY (host[:port][/path]; TAG=...), and what to tell helm then
	@hack/images --push "$(REGISTRY)" $(if $(TAG),--tag "$(TAG)")

image-size: ## Uncompressed sizes of the images
	@hack/images --sizes

cluster: ## A one-node Kubernetes on this machine
	@hack/tools all
	@hack/cluster up

cluster-down: ## End the cluster
	@hack/cluster down

##@ Ending

down: ## End all that these commands started, and nothing else
	@hack/down

clean: down ## down, and remove what was built in this folder (the cache outside it stays)
	@rm -rf .venv .venv-clients .build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

help: ## This list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
