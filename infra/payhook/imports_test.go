package payhook

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/build"
)

// packages lists, with the arguments of go list, one package a line.
func packages(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// The rules of README.md (shared) about who may know whom, each with its reason.
func TestPackagesLinkOnlyWhatTheyMay(t *testing.T) {
	// The clients of AWS with a package schemas build the descriptions of every operation whenever a function starts.
	// Tried on 2026-11-28 with dynamodb 1.74.0, eventbridge 1.55.11, secretsmanager 1.51.0 and ssm 1.83.0: once
	// events/client/go.mod is tidied, the tests pass, but a start takes 4.8 ms of CPU time instead of 2.3, and the
	// program has 14.7 MB instead of 12.0. See the versions in go.mod.
	const slow = `^github\.com/aws/aws-sdk-go-v2/.*/schemas$`
	const cdk = `^(github\.com/aws/(aws-cdk-go|constructs-go|jsii-runtime-go)|github\.com/cdklabs|` +
		`payhook\.example/infra)(/|$)`
	// The SDK, and the adapters, which make the calls of the core with it.
	const sdk = `^(github\.com/aws/(aws-sdk-go-v2|smithy-go)|payhook\.example/shared/(aws|awstest))(/|$)`
	const ledger = "payhook.example/shared/ledger"
	core := slices.DeleteFunc(packages(t, "./shared/..."), regexp.MustCompile(sdk).MatchString)
	for _, c := range []struct {
		reason          string
		args            []string
		links           string // one that shows that the list is not empty
		forbidden, than string // than: what is allowed of the forbidden
	}{
		{reason: "the CDK and these clients make a start slower", args: []string{"-deps", "-tags=lambda.norpc",
			"./functions/webhook", "./functions/redrive", "./functions/token"}, links: "net/http",
			forbidden: slow + "|" + cdk},
		{reason: "shared packages know no others", args: []string{"-deps", "./shared/..."},
			links: ledger, forbidden: `^payhook\.example/`, than: `^payhook\.example/shared(/|$)`},
		{reason: "the construct shares only settings and the version with the functions",
			args: []string{"-f", `{{join .Imports "\n"}}`, "./infra/payhook"}, links: "payhook.example/shared/settings",
			forbidden: `^payhook\.example/`, than: `^payhook\.example/(shared/(settings|payment)|infra/build)$`},
		{reason: "the core needs no SDK", args: append([]string{"-deps"}, core...), links: ledger, forbidden: sdk},
		// The main package of a function creates the stores with which its handler makes its calls. So a handler also
		// runs with stores in memory.
		{reason: "a handler runs with every store", args: []string{"-deps", "./functions/webhook/webhookhandler",
			"./functions/redrive/redrivehandler", "./functions/token/tokenhandler"},
			links: "payhook.example/shared/intake", forbidden: sdk},
		{reason: "a first result needs Go alone, and no time to compile what it does not use",
			args:      []string{"-deps", "-tags=lambda.norpc", "./functions/run"},
			links:     "payhook.example/functions/webhook/webhookhandler",
			forbidden: sdk + "|" + cdk + `|^(testing|net/rpc|github\.com/spf13/cobra)(/|$)`},
		// Instead of the first, see newAPIResource. An app with a canary imports the second itself.
		{reason: "the first deployment compiles every package of the CDK that the app links",
			args: []string{"-deps", "./infra"}, links: "github.com/aws/aws-cdk-go/awscdk/v2/awsroute53",
			forbidden: `/aws(apigateway|codedeploy)`},
	} {
		linked, allowed := packages(t, c.args...), regexp.MustCompile(c.than)
		if !slices.Contains(linked, c.links) {
			t.Errorf("%s: %d packages, without %s", c.reason, len(linked), c.links)
		}
		for _, p := range linked {
			if regexp.MustCompile(c.forbidden).MatchString(p) && (c.than == "" || !allowed.MatchString(p)) {
				t.Errorf("%s: %s is linked", c.reason, p)
			}
		}
	}
}

// What stays at a version must be left out of the weekly update, which could not be merged with it.
func TestDependabotIgnoresWhatIsPinned(t *testing.T) {
	pinned := regexp.MustCompile(`(?m)^\t(\S+) \S+ // (?:the last without|as dynamodb)`).
		FindAllStringSubmatch(string(readFile(t, "../../go.mod")), -1)
	ignored := regexp.MustCompile(`dependency-name: (\S+)`).
		FindAllStringSubmatch(string(readFile(t, "../../.github/dependabot.yml")), -1)
	names := func(matches [][]string) (list []string) {
		for _, m := range matches {
			list = append(list, m[1])
		}
		return list
	}
	if diff := cmp.Diff(names(pinned), names(ignored)); diff != "" || len(pinned) < 5 {
		t.Errorf("pinned in go.mod, and ignored (-want +got):\n%s", diff)
	}
}

// Each client makes a start slower.
func TestProgramsLinkOnlyTheClientsThatTheyCall(t *testing.T) {
	const config = "signin sso ssooidc sts" // package config of the SDK
	for folder, want := range map[string]string{
		"functions/webhook":        "dynamodb eventbridge s3 secretsmanager ssm",
		"functions/redrive":        "dynamodb eventbridge s3 secretsmanager ssm",
		"functions/token":          "secretsmanager ssm",
		"events/consumer/function": "dynamodb s3 " + config,
		"events/client":            "secretsmanager ssm " + config,
	} {
		var linked []string
		for _, p := range packages(t, "-C", folder, "-deps", "-tags=lambda.norpc", ".") {
			name, ok := strings.CutPrefix(p, "github.com/aws/aws-sdk-go-v2/service/")
			if ok && !strings.Contains(name, "/") {
				linked = append(linked, name)
			}
		}
		clients := strings.Fields(want)
		slices.Sort(clients)
		slices.Sort(linked)
		if !slices.Equal(linked, clients) {
			t.Errorf("%s links the clients %q, and calls %q", folder, linked, clients)
		}
	}
}

func TestEveryFunctionIsDeployed(t *testing.T) {
	var folders []string
	for _, p := range packages(t, "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, "./functions/...") {
		if folder := strings.TrimPrefix(p, "payhook.example/functions/"); folder != "run" { // it runs all functions
			folders = append(folders, folder)
		}
	}
	built := slices.Sorted(slices.Values(build.Names))
	if !slices.Equal(folders, built) || !slices.Equal(built, slices.Sorted(maps.Keys(functions))) {
		t.Errorf("there are %q, built are %q, deployed are %q", folders, built, functions)
	}
}
