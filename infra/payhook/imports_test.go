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

func TestNoFunctionLinksWhatMakesItsStartSlower(t *testing.T) {
	for _, name := range build.Names {
		linked := packages(t, "-deps", "-tags=lambda.norpc", "./functions/"+name)
		if len(linked) < 50 {
			t.Errorf("%s: only %d packages, so nothing was looked at", name, len(linked))
		}
		for _, p := range linked {
			for _, forbidden := range []string{
				"github.com/aws/aws-cdk-go", "github.com/aws/constructs-go", "github.com/aws/jsii-runtime-go",
				"github.com/cdklabs", "payhook.example/infra", // imports all of them
			} {
				if strings.HasPrefix(p, forbidden) {
					t.Errorf("%s links %s, which belongs to the deployment", name, p)
				}
			}
			// The clients of AWS with a package of this name build the descriptions of every operation whenever a
			// function starts. With dynamodb 1.74.0, eventbridge 1.55.11, secretsmanager 1.50.12 and ssm 1.82.1, the
			// webhook function was ready after 7.0 ms of CPU time instead of 4.5, with 15.8 MB of memory instead of
			// 11.2, and its program had 12.7 MB instead of 11.1. For the token function, it was 5.5 ms instead of
			// 2.8, and 12.0 MB of memory instead of 8.6 (the least time and the median memory of 40 starts on x86).
			if strings.HasPrefix(p, "github.com/aws/aws-sdk-go-v2/") && strings.HasSuffix(p, "/schemas") {
				t.Errorf("%s links %s: see the versions in go.mod", name, p)
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

// The deployment shares only settings and the version with the functions.
func TestPackagesImportOnlyWhatIsBelowThem(t *testing.T) {
	for _, p := range packages(t, "-deps", "./shared/...") {
		if strings.HasPrefix(p, "payhook.example/") && !strings.HasPrefix(p+"/", "payhook.example/shared/") {
			t.Errorf("a shared package imports %s", p)
		}
	}
	for _, p := range packages(t, "-f", `{{join .Imports "\n"}}`, "./infra/payhook") {
		if strings.HasPrefix(p, "payhook.example/") && p != "payhook.example/shared/settings" &&
			p != "payhook.example/shared/payment" && p != "payhook.example/infra/build" {
			t.Errorf("infra imports %s", p)
		}
	}
}

// ofSDK reports whether a package belongs to the SDK, or to the adapters, which make the calls of the core with it.
func ofSDK(path string) bool {
	return regexp.MustCompile(
		`^(github\.com/aws/(aws-sdk-go-v2|smithy-go)|payhook\.example/shared/(aws|awstest))(/|$)`).
		MatchString(path)
}

func TestTheCoreLinksNoSDK(t *testing.T) {
	imports := packages(t, "-f", `{{$p := .ImportPath}}{{range .Imports}}{{$p}}>{{.}}{{"\n"}}{{end}}`, "./shared/...")
	for _, i := range imports {
		switch from, to, _ := strings.Cut(i, ">"); {
		case ofSDK(from):
		case ofSDK(to):
			t.Errorf("%s imports %s", from, to)
		}
	}
	if len(imports) < 100 {
		t.Errorf("only %d imports, so nothing was looked at", len(imports))
	}
}

// The main package of a function creates the stores with which its handler makes its calls. So a handler also runs with
// stores in memory.
func TestHandlersLinkNoSDK(t *testing.T) {
	for _, name := range build.Names {
		for _, p := range packages(t, "-deps", "./functions/"+name+"/handler") {
			if ofSDK(p) {
				t.Errorf("the handler of %s links %s", name, p)
			}
		}
	}
}

// A first result needs Go alone, and no time to compile what it does not use.
func TestTheProgramWithStoresInMemoryLinksNoSDK(t *testing.T) {
	linked := packages(t, "-deps", "./functions/run")
	for _, p := range linked {
		for _, forbidden := range []string{"testing", "github.com/aws/aws-cdk-go", "github.com/aws/jsii-runtime-go",
			"github.com/spf13/cobra", "payhook.example/infra"} {
			if ofSDK(p) || p == forbidden || strings.HasPrefix(p, forbidden+"/") {
				t.Errorf("it links %s", p)
			}
		}
	}
	if !slices.Contains(linked, "payhook.example/functions/webhook/handler") {
		t.Errorf("%d packages, so nothing was looked at", len(linked))
	}
}

// The first deployment compiles every package of the CDK that the app links. Instead of the first, see newAPIResource.
// An app with a canary imports the second itself.
func TestTheAppLinksNeitherAPIGatewayNorCodeDeploy(t *testing.T) {
	const cdk = "github.com/aws/aws-cdk-go/awscdk/v2/"
	linked := packages(t, "-deps", "./infra")
	for _, p := range linked {
		if strings.HasPrefix(p, cdk+"awsapigateway") || strings.HasPrefix(p, cdk+"awscodedeploy") {
			t.Errorf("it links %s", p)
		}
	}
	if !slices.Contains(linked, cdk+"awsroute53") {
		t.Errorf("%d packages, so nothing was looked at", len(linked))
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
