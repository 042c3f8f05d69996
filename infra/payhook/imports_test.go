package payhook

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

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
			// function starts. That took more than a quarter of the time that the webhook function needs to start.
			if strings.HasPrefix(p, "github.com/aws/aws-sdk-go-v2/") && strings.HasSuffix(p, "/schemas") {
				t.Errorf("%s links %s: see the versions in go.mod", name, p)
			}
		}
	}
}

// The deployment shares only names and settings with the functions.
func TestPackagesImportOnlyWhatIsBelowThem(t *testing.T) {
	for _, p := range packages(t, "-deps", "./shared/...") {
		if strings.HasPrefix(p, "payhook.example/") && !strings.HasPrefix(p+"/", "payhook.example/shared/") {
			t.Errorf("a shared package imports %s", p)
		}
	}
	for _, p := range packages(t, "-f", `{{join .Imports "\n"}}`, "./infra/payhook") {
		if strings.HasPrefix(p, "payhook.example/") && p != "payhook.example/shared/settings" &&
			p != "payhook.example/shared/names" && p != "payhook.example/infra/build" {
			t.Errorf("infra imports %s", p)
		}
	}
}

func TestEveryFunctionIsDeployed(t *testing.T) {
	var folders []string
	for _, p := range packages(t, "./functions/...") {
		folders = append(folders, strings.TrimPrefix(p, "payhook.example/functions/"))
	}
	built := slices.Sorted(slices.Values(build.Names))
	if !slices.Equal(folders, built) || !slices.Equal(built, slices.Sorted(maps.Keys(functions))) {
		t.Errorf("there are %q, built are %q, deployed are %q", folders, built, functions)
	}
}
