package build

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The user's variables and go env -w choose where modules come from, and nothing that changes the bytes.
func TestBuildTakesOnlyTheSourceOfModulesFromTheUser(t *testing.T) {
	top := t.TempDir()
	kept := map[string]string{
		"GOPROXY": "https://proxy.bank.example", "GOPRIVATE": "bank.example", "GONOPROXY": "no.bank.example",
		"GOSUMDB": "off", "GONOSUMDB": "nosum.bank.example", "GOINSECURE": "insecure.bank.example", "GOAUTH": "off",
		"GOVCS": "*:git", "GOCACHE": filepath.Join(top, "cache"), "GOMODCACHE": filepath.Join(top, "modules"),
	}
	ignored := map[string]string{
		"GOFLAGS": "-tags=other", "GOARM64": "v9.0", "GOAMD64": "v3", "GOEXPERIMENT": "nojsonv2", "GOFIPS140": "latest",
		"CGO_ENABLED": "1", "GOOS": "windows", "GOARCH": "386", "GOWORK": filepath.Join(top, "go.work"),
	}
	names := []string{"env", "-json"}
	for name := range ignored {
		names = append(names, name)
		t.Setenv(name, "")
	}
	for name := range kept {
		names = append(names, name)
	}
	values := func(t *testing.T) map[string]string {
		t.Helper()
		env, err := environment()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "go", names...)
		cmd.Env = append(env, "GOARCH=arm64")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	t.Setenv("GOENV", os.DevNull)
	want := values(t)
	maps.Copy(want, kept)
	t.Run("variables", func(t *testing.T) {
		for name, value := range kept {
			t.Setenv(name, value)
		}
		for name, value := range ignored {
			t.Setenv(name, value)
		}
		if diff := cmp.Diff(want, values(t)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("go env -w", func(t *testing.T) {
		var lines strings.Builder
		delete(ignored, "GOWORK") // a variable only
		maps.Copy(ignored, kept)
		for name, value := range ignored {
			t.Setenv(name, "")
			lines.WriteString(name + "=" + value + "\n")
		}
		file := filepath.Join(top, "env")
		if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("GOENV", file)
		if diff := cmp.Diff(want, values(t)); diff != "" {
			t.Error(diff)
		}
	})
}

// The nightly tests use the module that is deployed.
func TestMakeFIPSHasTheModuleOfTheFunctions(t *testing.T) {
	if text, err := os.ReadFile("../../Makefile"); err != nil ||
		!strings.Contains(string(text), "\tGOFIPS140="+FIPSModule+" go test ") {
		t.Errorf("make fips has another module than %s: %v", FIPSModule, err)
	}
}

// A program with fips says so itself: what go version -m shows, and crypto/fips140 when it runs on Lambda.
func TestFIPSIsInThePrograms(t *testing.T) {
	top := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module fips.example\n\ngo 1.26\n",
		"main.go": "package main\n\nimport \"crypto/fips140\"\n\nfunc main() { println(fips140.Enabled()) }\n"} {
		if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, fips := range []bool{false, true} {
		built, err := Programs(top, runtime.GOARCH, fips, "fips.example")
		if err != nil {
			t.Fatal(err)
		}
		info, err := buildinfo.Read(bytes.NewReader(built["fips.example"]))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, s := range info.Settings {
			got[s.Key] = s.Value
		}
		module, on := got["GOFIPS140"], strings.Contains(got["DefaultGODEBUG"], "fips140=on")
		if strings.HasPrefix(module, FIPSModule) != fips || on != fips {
			t.Errorf("fips %t: module %q, %q", fips, module, got["DefaultGODEBUG"])
		}
	}
}
