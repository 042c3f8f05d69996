# Payhook. "make" lists what there is.

SHELL := bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# go.mod names the version of Go. With auto, every go command of version 1.21 or
# newer downloads that version if it is older itself, also where the Go
# installation sets local: https://go.dev/doc/toolchain
export GOTOOLCHAIN := auto

# A workspace (go.work) of a parent folder does not have this module.
export GOWORK := off

# Node 20 works, although its support has ended: infra/local/check warns once. Otherwise, the
# CDK's library says so above every message; cdk.json sets it, too.
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20

# All CDK apps of the project, tests too, unpack the CDK's library into one folder.
export JSII_RUNTIME_PACKAGE_CACHE_ROOT := $(CURDIR)/.local/jsii

PAYHOOK := .local/bin/payhook
RUN := .local/bin/payhook-run

# Python keeps what it has compiled: the first start of a program takes seconds.
unexport PYTHONDONTWRITEBYTECODE

# The programs contain their commit, also if GOFLAGS turns this off. It is turned off where Git fails, since go
# build would fail as well: in a copy that is no clone, and in the clone of another user.
VCS := $(shell git rev-parse --verify --quiet HEAD >/dev/null 2>&1 && echo auto || echo false)

# What is compiled has the same flags, programs, functions (infra/build), apps (cdk.json) and tests, so that what they
# share is compiled once. Debug information is for debuggers alone, and takes a tenth of the time. Without inlining, the
# AWS SDK compiles in two thirds of the time, makes smaller programs, and needs no more CPU when it runs. With this GOGC,
# the compiler uses a fifth less time and a quarter more memory.
export CGO_ENABLED := 0
export GOFLAGS := $(GOFLAGS) -trimpath -tags=lambda.norpc -gcflags=all=-dwarf=false \
	'-gcflags=github.com/aws/aws-sdk-go-v2/...=-l -dwarf=false' -ldflags=-w '-toolexec=env GOGC=400'
BUILD := CGO_ENABLED=0 go build -trimpath -tags=lambda.norpc -buildvcs=$(VCS)

# When make has started, in seconds since 1970: times are shown since then.
PAYHOOK_STARTED ?= $(shell date +%s)
export PAYHOOK_STARTED := $(PAYHOOK_STARTED)
STEP := infra/local/step

# $(call locked,NAME,COMMANDS) are commands for STEP that end at the first error. Those of another make that have the
# same name come before them, so they look for what those have done.
locked = infra/local/locked $1 sh -ec '$2'

# $(call venv,FOLDER,REQUIREMENTS,PACKAGES) installs Python packages into a virtual environment,
# unless they are there. It does not survive being moved. Its programs start with its python: as scripts, they
# name that in double quotes for sh if the path has a space. They share a pip, as its installation takes long.
venv = $(call installed,$1,$2,$3,python3 -m venv --without-pip .local/$1; \
	PYTHONPATH="$$(echo .local/pip/lib/python3*/site-packages)" .local/$1/bin/python -m pip install \
	--disable-pip-version-check --no-input --no-compile --no-deps -r $2)
installed = @$(STEP) "installing $3 into .local/$1" $(call locked,$1,wanted="$$(python3 --version; pwd; cat $2)"; \
	[ "$$wanted" != "$$(cat .local/$1/installed 2>/dev/null)" ] || exit 0; \
	rm -rf .local/$1; $4; echo "$$wanted" >.local/$1/installed)

PACKAGES = $(shell GOTOOLCHAIN=auto GOWORK=off go list ./...)

# The race detector runs the tests of packages that start goroutines, themselves or with a server of net/http/httptest.
# The CDK's own library has races, so what uses it does without.
GOROUTINES := \bgo [a-zA-Z_.]+\(|errgroup|\.Go\(|httptest\.New
RACE_PACKAGES = $(sort $(patsubst %/,payhook.example/%,$(dir $(shell grep -rlE --include='*.go' '$(GOROUTINES)' \
	functions shared infra/checks infra/cmd infra/stack events/consumer/function))))
# With it, a test that measures memory takes ten times as long: it runs without.
MEASURES_MEMORY := TestAPublishedEventTakesAtMost1KB
# It needs a C compiler, which not every machine has.
RACE = $(shell command -v "$$(GOTOOLCHAIN=auto go env CC)" >/dev/null 2>&1 && echo yes)

# The variables of the command line of make. Any other is an error, so that a misspelled one is not ignored.
VARIABLES := ARGS ENV ONCE SETTINGS FUNCTION EVENT SEEDS SEED PACKAGE FUZZTIME GO% CGO_% AWS_% CDK_% NODE_% npm_% PIP_% \
	%_PROXY %_proxy CC SHELL PATH HOME TMPDIR MAKEFLAGS
GIVEN := $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
$(foreach name,$(filter-out $(VARIABLES),$(GIVEN)),$(error make has no variable $(name): use ARGS="--flag value"; \
	ARGS=--help lists the flags))

.PHONY: help
help: ## list the targets
	@list() { sed -nE "s/^([a-z-]+):[^#]*$$1 (.*)/\1|\2/p" $(MAKEFILE_LIST) | \
		while IFS='|' read -r name text; do printf '  %-15s %s\n' "$$name" "$$text"; done; }; \
	list '##'; echo; echo 'To change Payhook:'; list '###'

FLAGS = $(if $(SETTINGS),--setting '$(subst ','\'',$(SETTINGS))') $(ARGS)

.PHONY: run
run: $(RUN) ## webhooks on the functions in one process, with Go alone; it stays up until Ctrl-C; ONCE=1 ends it, SETTINGS="key=value ...", ARGS=--help
	@exec $(RUN) $(if $(ONCE),--once) $(FLAGS)

.PHONY: invoke
invoke: $(RUN) ## invoke a function in one process, with Go alone; FUNCTION=webhook EVENT=events/webhook/one-event.json; SETTINGS, ARGS=--as-is
	@exec $(RUN) invoke $(FLAGS) $(FUNCTION) $(EVENT)

# A run that is up is shown, and nothing is installed or compiled for that.
IS_UP := $(if $(filter-out up,$(or $(MAKECMDGOALS),help)),,$(shell $(PAYHOOK) local env >/dev/null 2>&1 && echo yes))

.PHONY: up
up: $(if $(IS_UP),,ready) ## deploy on this machine in the background; SETTINGS="key=value ...", ARGS=--help
	@$(if $(IS_UP),,PAYHOOK_READY=1) exec $(PAYHOOK) local up $(FLAGS)

.PHONY: down
down: ## end what make up started
	@if [ -x $(PAYHOOK) ]; then exec $(PAYHOOK) local down; else echo "Nothing was running."; fi

.PHONY: payhook
payhook: $(PAYHOOK) ## build and run the program; ARGS="status --local", ARGS=--help
	@$(if $(ARGS),exec $(PAYHOOK) $(ARGS),echo "The program is $(PAYHOOK)."; exec $(PAYHOOK) --help)

# ENV counts only on the command line of make: shells have an environment variable of this name.
CDK = infra/node_modules/.bin/cdk $@ $(if $(findstring command line,$(origin ENV)),-c env='$(ENV)') $(ARGS) || \
	{ status=$$?; infra/node_modules/.bin/cdk --version >/dev/null 2>&1 || echo "The CDK CLI is incomplete: make clean \
	removes it, and the next make installs it again" >&2; exit $$status; }

.PHONY: deploy
deploy: check-go infra/node_modules/.package-lock.json ## deploy to AWS with cdk deploy; ENV=staging adds infra/environments/staging.json; ARGS="-c baseUrl=... --profile NAME"
	@$(CDK)

.PHONY: diff
diff: check-go infra/node_modules/.package-lock.json ## show what make deploy would change; variables as for deploy
	@$(CDK)

.PHONY: synth
synth: check-go infra/node_modules/.package-lock.json ## write the template, without AWS; variables as for deploy
	@$(CDK)

.PHONY: destroy
destroy: check-go infra/node_modules/.package-lock.json ## delete the stack, after a question; tables and buckets remain; variables as for deploy
	@$(CDK)

# In the folder of cdk.json, the CDK CLI would synthesize the app, which needs the settings. Elsewhere, its telemetry is
# not off.
.PHONY: bootstrap
bootstrap: infra/node_modules/.package-lock.json ## prepare account and region for the CDK, once; ARGS="aws://ACCOUNT/REGION --profile NAME"
	@cd infra && node_modules/.bin/cdk bootstrap $(ARGS) -c cli-telemetry=false

# One part computes while others wait. What test-e2e and test-race have compiled is not compiled again at the same time.
.PHONY: test
test: check ### run everything: linters, unit tests, template tests, end-to-end tests
	@$(MAKE) $(if $(findstring j,$(MAKEFLAGS)),,-j3) test-e2e test-race test-plain lint
ifneq ($(filter test-race,$(MAKECMDGOALS)),)
test-plain lint: | test-race
endif

.PHONY: test-unit
test-unit: test-race test-plain ### the quick part: unit and template tests

.PHONY: test-race
test-race: check-go
	$(if $(RACE),CGO_ENABLED=1 go test -vet=off -race -skip '$(MEASURES_MEMORY)' $(RACE_PACKAGES),\
		@echo "there is no C compiler here: the tests run without the race detector")

.PHONY: test-plain
test-plain: check .local/lint
	PAYHOOK_LINT=1 go test -vet=off $(filter-out %/simulation $(if $(RACE),$(RACE_PACKAGES)),$(PACKAGES))
	go test -vet=off -short ./shared/simulation
	$(if $(RACE),go test -vet=off -run '$(MEASURES_MEMORY)' ./functions/run)

.PHONY: test-e2e
test-e2e: check ### the end-to-end tests, on the stack deployed into an emulator
	PAYHOOK_E2E=1 go test -count=1 -p 2 -vet=off -timeout=20m ./infra/local/... ./infra/acceptance

.PHONY: acceptance
acceptance: ready ### the end-to-end test in an account of AWS, with an administrator's credentials; ARGS="-c KEY=VALUE --profile NAME"
	PAYHOOK_ACCEPTANCE=1 go test ./infra/acceptance -run '^TestAcceptance$$' -timeout 60m -count=1 -v -args $(ARGS)

# They are not tools of go.mod, which would add them to the graph of every module that
# imports Payhook.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
REVIVE := github.com/mgechev/revive@v1.16.0
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# The CDK has so many packages that to analyze them takes longer than to test all others.
.PHONY: lint
lint: check-go .local/lint ### gofmt, go vet without the packages that use the CDK; zizmor on the workflows
	@unformatted=$$("$$(go env GOROOT)/bin/gofmt" -l $$(go list -f '{{range .GoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .TestGoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}} {{end}}' ./...)); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	go vet $(filter-out $(addprefix payhook.example/,infra infra/payhook events/consumer events/tutorial),$(PACKAGES))
	.local/lint/bin/zizmor --offline --quiet --pedantic .github infra/pipeline/deploy.yml

.PHONY: .local/pip
.local/pip:
	@infra/local/check python3
	$(call installed,pip,/dev/null,pip,python3 -m venv .local/pip)

.PHONY: .local/lint
.local/lint: .local/pip
	$(call venv,lint,infra/lint-requirements.txt,cfn-lint and zizmor)

.PHONY: staticcheck
staticcheck: check-go ### go vet and go fix on all packages, revive and staticcheck; actionlint on the workflows
	go vet ./...
	go fix -diff ./...
	go run $(REVIVE) -config .revive.toml -set_exit_status -exclude ./infra/node_modules/... ./...
	go run $(STATICCHECK) -checks all ./...
	go run $(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yml infra/pipeline/deploy.yml

# cdk-preflight comes from its Python package, which has the JavaScript inside: npm may have an older version.
.PHONY: audit
audit: check .local/pip ### checkov, cdk-nag and cdk-preflight on the templates: they find exactly what is explained
	$(call venv,audit,infra/audit-requirements.txt,checkov and cdk-preflight)
	@if ! cat infra/audit/package-lock.json infra/audit-requirements.txt | cmp -s - .local/nag/installed; then \
		rm -rf .local/nag && mkdir -p .local/nag && cp infra/audit/package.json infra/audit/package-lock.json .local/nag && \
		npm ci --prefix .local/nag --no-audit --no-fund && mkdir .local/nag/node_modules/cdk-preflight && \
		tar -xzf .local/audit/lib/python3*/site-packages/cdk_preflight/_jsii/*.tgz --strip-components=1 \
			-C .local/nag/node_modules/cdk-preflight && \
		cat infra/audit/package-lock.json infra/audit-requirements.txt >.local/nag/installed; fi
	PAYHOOK_AUDIT=1 go test -count=1 -run '^TestToolsFind' ./infra/payhook

.PHONY: release
release: check-go ### build programs and functions twice, compare, and write them with digests and SBOMs into .local/release
	@infra/release $(BUILD)

.PHONY: sbom
sbom: check-go ### write the SBOM of each program and function of the last commit into .local/sbom
	@infra/release --sbom $(BUILD)

.PHONY: fips
fips: check-go ### the tests of the packages that verify and sign, with the FIPS 140-3 module of Go
	GOFIPS140=v1.0.0 go test $(addprefix ./shared/,signature keys clientcert token proof)

.PHONY: bench
bench: check-go ### benchmarks
	go test -run '^$$' -bench . ./shared/... ./functions/...

.PHONY: measure
measure: check-go ### how long make run takes, and a build of the functions, both with an empty build cache; ARGS=test: the parts of make test
	@infra/local/measure $(or $(ARGS),run) $(BUILD)

.PHONY: vulnerabilities
vulnerabilities: check-go ### known vulnerabilities in what the programs call
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

SEEDS ?= 1000000

.PHONY: soak
soak: check-go ### every single fault, then random histories (SEEDS=1000000; SEED=N plays one and prints it)
	$(if $(SEED),,go test ./shared/simulation -count=1 -run '^TestNo')
	go test ./shared/simulation -count=1 -run TestRandomHistories -v -timeout=0 $(if $(SEED),-seed=$(SEED),-seeds=$(SEEDS))

GREMLINS := github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
CORE := $(addprefix ./shared/,intake keys ledger bus payment signature clientcert proof objects calls token settings)
# gremlins copies the whole folder for each worker, so it works on a copy without tools.
# A mutant times out after a multiple of the time of the first run of the tests, which must
# therefore not come from the cache.
MUTATE := GOFLAGS=-count=1 go run $(GREMLINS) unleash --timeout-coefficient=10 --invert-logical --invert-loopctrl \
	--exclude-files='test/'

.PHONY: mutants
mutants: check-go ### change the core, one mistake at a time, and list those that no test finds (PACKAGE=./shared/bus)
	@set -o pipefail; copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	tar -cf - --exclude=./.git --exclude=./.local --exclude=node_modules . | tar -xf - -C "$$copy" && cd "$$copy" && \
	for package in $(or $(PACKAGE),$(CORE)); do \
		echo "package $$package"; $(MUTATE) "$$package" || exit 1; \
	done | tee mutants.txt && echo && \
	awk '/^package / { package = $$2 } \
		/^ *(LIVED|NOT COVERED|TIMED OUT) / { sub(/ at /, " at " package "/"); print } \
		/^Killed:/ { killed += $$2; lived += $$4; uncovered += $$7 } \
		/^Timed out:/ { late += $$3; broken += $$6 } \
		END { efficacy = 100 * killed / (killed + lived + !killed); \
			printf "killed %d, lived %d (%.1f %% killed; at least 95 are required), not covered %d, timed out %d, " \
				"not viable %d\n", killed, lived, efficacy, uncovered, late, broken; exit efficacy < 95 }' mutants.txt

FUZZTIME ?= 20s

.PHONY: fuzz
fuzz: check-go ### every fuzz target for a while (FUZZTIME=20s)
	@grep -rlE --include='*_test.go' '^func Fuzz' shared functions | xargs -n1 dirname | sort -u | while read -r folder; do \
		grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$$folder"/*_test.go | sed 's/^func //' | while read -r target; do \
			echo "$$folder $$target"; go test "./$$folder" -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) || exit 1; \
		done || exit 1; \
	done

.PHONY: check
check: check-all check-go ## check that this machine has the programs that are needed
	@echo "Everything that is needed is installed." >&2

.PHONY: check-all
check-all:
	@infra/local/check go node npm python3

.PHONY: tools
tools: .local/venv infra/node_modules/.package-lock.json ### install MiniStack and the CDK CLI into the project

.PHONY: .local/venv
.local/venv: .local/pip
	$(call venv,venv,infra/local/emulator/requirements.txt,MiniStack)

# A test uses them.
.PHONY: .local/clients
.local/clients: .local/pip
	$(call venv,clients,infra/local/testdata/clients.txt,the AWS CLI and boto3)

# With the link, npx cdk works in the folder of cdk.json.
infra/node_modules/.package-lock.json: infra/package-lock.json
	@infra/local/check node npm
	@$(STEP) "installing the CDK CLI into infra/node_modules" $(call locked,node,[ $@ -nt $< ] || \
		npm ci --prefix infra --no-audit --no-fund --no-update-notifier; touch $@; \
		[ -d node_modules ] || ln -sfn infra/node_modules node_modules)

.PHONY: ready
ready:
	@printf '[%6ds] compiling and installing what is missing\n' 0 >&2
	@infra/local/check go node npm python3
	@PAYHOOK_CHECKED=1 $(MAKE) -j prepare

# What a local run needs, for make -j.
.PHONY: prepare
prepare: tools programs

# One go build: two at the same time would compile twice what they share.
.PHONY: programs
programs: check-go
	@STEP_PACKAGES="./infra/cmd/payhook ./infra ./events/consumer" $(STEP) "compiling" $(call locked,programs,mkdir -p \
		.build $(dir $(PAYHOOK)); $(BUILD) -v -o .build/ $$STEP_PACKAGES; ln -f .build/payhook $(PAYHOOK))

.PHONY: clean
clean: ## end the local run, and remove everything that was built or installed
	@if [ -x $(PAYHOOK) ]; then $(PAYHOOK) local down; fi
	rm -rf .local .build cdk.out node_modules infra/node_modules

.PHONY: check-go
check-go:
	@infra/local/check go
	@$(STEP) "downloading the version of Go that go.mod names" go version || { echo "The download of Go failed: install the version of go.mod from https://go.dev/dl, or allow the download from the module proxy (go env GOPROXY)" >&2; exit 1; }

# Go knows best whether there is anything to build.
.PHONY: $(PAYHOOK) $(RUN)
$(PAYHOOK): check-go
	@STEP_PACKAGES=./infra/cmd/payhook $(STEP) "compiling the program" $(call locked,programs,mkdir -p $(@D); \
		$(BUILD) -v -o $@ $$STEP_PACKAGES)

# Without a lock, which needs Python on macOS.
$(RUN): check-go
	@STEP_PACKAGES=./functions/run $(STEP) "compiling" sh -ec 'mkdir -p $(@D); $(BUILD) -v -o $@ $$STEP_PACKAGES'
