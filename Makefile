# Payhook. "make" lists what there is.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# go.mod names the version of Go. With auto, every go command of version 1.21 or
# newer downloads that version if it is older itself, also where the Go
# installation sets local: https://go.dev/doc/toolchain
export GOTOOLCHAIN := auto

LOCAL := .local/bin/local

# As the functions are built, so that what they share is compiled once.
BUILD := CGO_ENABLED=0 go build -trimpath

# Packages whose tests run with the race detector. The CDK's own library has
# races, so infra's and the consumer's do without.
CDK_PACKAGES = payhook.example/infra payhook.example/events/consumer
RACE_PACKAGES = $(filter-out $(CDK_PACKAGES) payhook.example/infra/local,$(shell go list ./...))
# It needs a C compiler, which not every machine has.
RACE = $(shell command -v "$$(go env CC)" >/dev/null 2>&1 && echo -race)

# NAME=VALUE of make becomes -name VALUE of the tool: make send COUNT=3.
flag = $(if $($(1)),-$(2) '$($(1))')
switch = $(if $(filter-out 0 false no,$($(1))),-$(2))

UP_FLAGS = $(call flag,BASE_URL,base-url) $(call flag,AUTH_URL,auth-url) $(call flag,SETTINGS,c) $(call flag,TRUSTSTORE,truststore) \
	$(if $(TOKEN_MANAGER_ID),-c 'tokenManagerId=$(TOKEN_MANAGER_ID)')
KEY_FLAGS = $(call flag,KEY,key) $(call flag,KEY_ID,key-id) $(call flag,SIGNATURE_HEADER,signature-header) \
	$(call flag,TIMESTAMP_CARRIER,timestamp-carrier) $(call flag,KEY_ID_CARRIER,key-id-carrier) $(call flag,TIMESTAMP_FORMAT,timestamp-format)
SEND_FLAGS = $(call flag,URL,url) $(call flag,METHOD,method) $(call flag,CONTENT_TYPE,content-type) $(call flag,FILE,file) \
	$(call flag,COUNT,count) $(call flag,DUPLICATES,duplicates) $(call flag,EVENTS,events) $(call flag,PARALLEL,parallel) \
	$(call flag,PAD,pad) $(call flag,DELIVERY_ID,delivery-id) $(call flag,EVENT_NAME,name) $(call flag,EVENT_ID,event-id) \
	$(call flag,AMOUNT,amount) $(call flag,CURRENCY,currency) $(call flag,FLAGS,flags) $(call flag,CORRUPT,corrupt) \
	$(call flag,AGE,age) $(call switch,ROTATE,rotate) $(call switch,REKEY,rekey) $(call flag,FAULT,fault) \
	$(call flag,CERTIFICATE,certificate) $(call switch,ROTATE_CERTIFICATE,rotate-certificate) \
	$(call switch,HELP,help) $(KEY_FLAGS)
INVOKE_FLAGS = $(call flag,FUNCTION,function) $(call flag,EVENT,event) $(call switch,CLOUD,cloud) $(call flag,STACK,stack) \
	$(call switch,FRESH,fresh) $(call flag,CORRUPT,corrupt) $(call flag,AGE,age) $(call switch,HELP,help) $(KEY_FLAGS)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## (.*)/\1|\2/' | while IFS='|' read -r name text; do printf '  %-10s %s\n' "$$name" "$$text"; done

.PHONY: run
run: $(LOCAL) ## deploy on this machine, send webhooks, show what came of them, stay up (ONCE=1 ends then; SETTINGS="key=value ..."; AUTH_URL= as with up)
	@CLIENT_ID='$(CLIENT_ID)' CLIENT_SECRET='$(CLIENT_SECRET)' exec $(LOCAL) run $(call switch,ONCE,once) $(UP_FLAGS)

.PHONY: up
up: $(LOCAL) ## the same without the table, in the background; .local/up.json says where (BASE_URL=, AUTH_URL=, TOKEN_MANAGER_ID=, CLIENT_ID=, CLIENT_SECRET=, SETTINGS=; TRUSTSTORE= with authentication=mtls or both)
	@CLIENT_ID='$(CLIENT_ID)' CLIENT_SECRET='$(CLIENT_SECRET)' exec $(LOCAL) up $(UP_FLAGS)

.PHONY: down
down: $(LOCAL) ## end what make up or make run has started
	@exec $(LOCAL) down

.PHONY: send
send: check-go ## send signed webhooks to it; make send HELP=1 for more
	@$(BUILD) -o .local/bin/send ./events/send
	@exec .local/bin/send $(SEND_FLAGS)

.PHONY: invoke
invoke: check-go ## invoke a function: FUNCTION=webhook EVENT=events/webhook/one-event.json; HELP=1 for more
	@$(BUILD) -o .local/bin/invoke ./events/invoke
	@exec .local/bin/invoke $(INVOKE_FLAGS)

.PHONY: operator
operator: check-go ## look at what is held back, and let it go on: ARGS="pending --local"; ARGS=--help for more
	@$(BUILD) -o .local/bin/operator ./infra/operator
	@exec .local/bin/operator $(ARGS)

.PHONY: deploy
deploy: check ## deploy to AWS with cdk deploy: ARGS="-c baseUrl=... -c authUrl=... -c tokenManagerId=..."
	npm ci --prefix infra --no-audit --no-fund
	@$(BUILD) -o .local/bin/operator ./infra/operator
	@.local/bin/operator prepare-deploy $(ARGS)
	npx --prefix infra cdk deploy $(ARGS)

.PHONY: test
test: check lint test-unit test-e2e ## run everything: linters, unit tests, template tests, end-to-end tests

.PHONY: test-unit
test-unit: check ## the quick part: unit and template tests
	$(if $(RACE),,@echo "there is no C compiler here: the tests run without the race detector")
	go test $(RACE) $(RACE_PACKAGES)
	go test $(CDK_PACKAGES) payhook.example/infra/local

.PHONY: test-e2e
test-e2e: check ## the end-to-end tests, on the stack deployed into an emulator
	PAYHOOK_E2E=1 go test -count=1 -timeout=20m ./infra/local

.PHONY: lint
lint: tools ## gofmt, go vet, staticcheck; cfn-lint on the templates
	@unformatted=$$(gofmt -l $$(go list -f '{{range .GoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .TestGoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}} {{end}}' ./...)); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go tool staticcheck ./...
	PAYHOOK_LINT=1 go test -count=1 -run '^TestTheTemplatesPassCfnLint$$' ./infra

.PHONY: audit
audit: check ## checkov and cdk-nag on the templates: their findings, and those that the templates explain (installs them first)
	@if ! cmp -s infra/audit-requirements.txt .local/audit/installed; then \
		rm -rf .local/audit && python3 -m venv .local/audit && \
		.local/audit/bin/pip install --disable-pip-version-check --quiet --no-deps -r infra/audit-requirements.txt && \
		cp infra/audit-requirements.txt .local/audit/installed; fi
	@if ! cmp -s infra/audit/package-lock.json .local/nag/installed; then \
		rm -rf .local/nag && mkdir -p .local/nag && cp infra/audit/package.json infra/audit/package-lock.json .local/nag && \
		npm ci --prefix .local/nag --no-audit --no-fund && cp infra/audit/package-lock.json .local/nag/installed; fi
	PAYHOOK_AUDIT=1 go test -count=1 -run '^Test(Checkov|CdkNag)' ./infra

.PHONY: bench
bench: check-go ## Go benchmarks, and what the whole handler costs beside the bare verification
	go test -run '^$$' -bench . -benchmem ./shared/... ./functions/...

SEEDS ?= 1000000

.PHONY: soak
soak: check-go ## random histories, in which every effect may fail (SEEDS=1000000; SEED=N plays one and prints it)
	go test ./shared/simulation -count=1 -run TestRandomHistories -v -timeout=0 $(if $(SEED),-seed=$(SEED),-seeds=$(SEEDS))

.PHONY: mutants
mutants: check-go ## break the code on purpose, one mistake at a time, and show which test finds it (RANDOM_MUTANTS=40, SEED=1)
	go run ./shared/simulation/mutants $(if $(RANDOM_MUTANTS),-random=$(RANDOM_MUTANTS)) $(if $(SEED),-seed=$(SEED))

FUZZTIME ?= 20s

.PHONY: fuzz
fuzz: check-go ## every fuzz target for a while (FUZZTIME=20s)
	@grep -rlE --include='*_test.go' '^func Fuzz' shared functions | xargs -n1 dirname | sort -u | while read -r folder; do \
		grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$$folder"/*_test.go | sed 's/^func //' | while read -r target; do \
			echo "$$folder $$target"; go test "./$$folder" -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) || exit 1; \
		done || exit 1; \
	done

.PHONY: check
check: $(LOCAL) ## say whether this machine has what is needed
	@$(LOCAL) check

.PHONY: tools
tools: $(LOCAL) ## install the pinned tools into the project
	@$(LOCAL) tools

.PHONY: clean
clean: ## end what runs here, and remove everything that was built or installed
	@if [ -x $(LOCAL) ]; then $(LOCAL) down; fi
	rm -rf .local .build cdk.out node_modules infra/node_modules

.PHONY: check-go
check-go:
	@command -v go >/dev/null || { echo "Go is not installed; version 1.21 or newer is needed: https://go.dev/dl" >&2; exit 1; }
	@version=$$(cd / && GOTOOLCHAIN=local go env GOVERSION) || exit 1; minor=$${version#go1.}; minor=$${minor%%[!0-9]*}; \
	if [ "$${minor:-0}" -lt 21 ]; then echo "$$version is too old; version 1.21 or newer is needed: https://go.dev/dl" >&2; exit 1; fi
	@go version >/dev/null || { echo "go.mod needs a newer Go than $$(cd / && GOTOOLCHAIN=local go env GOVERSION), and its download failed: install it from https://go.dev/dl, or allow the download from the module proxy (go env GOPROXY)" >&2; exit 1; }

# Go knows best whether there is anything to build.
.PHONY: $(LOCAL)
$(LOCAL): check-go
	@mkdir -p .local/bin
	@$(BUILD) -o $@ ./infra/local
