package payhook

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"payhook.example/infra/build"
	"payhook.example/shared/settings"
)

const thisMachine = runtime.GOARCH

// buildIn builds the functions in the module of a folder.
func buildIn(t *testing.T, folder, arch string) (map[string][]byte, error) {
	t.Helper()
	t.Chdir(folder)
	clear(builtFunctions)
	t.Cleanup(func() { clear(builtFunctions) })
	return buildFunctions(arch)
}

// module writes a module in which every function has this program, and returns its folder.
func module(t *testing.T, main string) string {
	t.Helper()
	top := t.TempDir()
	writeFile(t, filepath.Join(top, "go.mod"), "module payhook.example\n\ngo 1.26\n")
	for _, name := range build.Names {
		writeFile(t, filepath.Join(top, "functions", name, "main.go"), "package main\n\n"+main+"\n")
	}
	return top
}

func TestBuildIsReproducible(t *testing.T) {
	here, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	first, err := buildIn(t, here, "arm64")
	if err != nil {
		t.Fatal(err)
	}
	// In a copy, in a folder whose parent has a workspace without it, with other settings of the Go command.
	parent := t.TempDir()
	elsewhere := filepath.Join(parent, "copy")
	writeFile(t, filepath.Join(parent, "go.work"), "go 1.26\n\nuse ./other\n")
	writeFile(t, filepath.Join(parent, "other", "go.mod"), "module other.example\n\ngo 1.26\n")
	for _, file := range []string{"go.mod", "go.sum"} {
		writeFile(t, filepath.Join(elsewhere, file), string(readFile(t, filepath.Join(here, file))))
	}
	for _, folder := range []string{"functions", "shared"} {
		if err := os.CopyFS(filepath.Join(elsewhere, folder), os.DirFS(filepath.Join(here, folder))); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "")
	t.Setenv("GOFLAGS", "-gcflags=-N")
	t.Setenv("GOARM64", "v8.2")
	second, err := buildIn(t, elsewhere, "arm64")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range build.Names {
		a, b := first[name], second[name]
		if !bytes.Equal(a, b) {
			t.Errorf("%s: %d bytes here, %d there, or others", name, len(a), len(b))
		}
		if bytes.Contains(a, []byte(here)) {
			t.Errorf("%s knows where it was built", name)
		}
	}
}

func TestFunctionsAreBuiltForTheArchitecture(t *testing.T) {
	top := module(t, "func main() {}")
	for arch, machine := range map[string]elf.Machine{"arm64": elf.EM_AARCH64, "amd64": elf.EM_X86_64} {
		built, err := buildIn(t, top, arch)
		if err != nil {
			t.Fatal(err)
		}
		folders, err := packageFunctions(built, t.TempDir(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range build.Names {
			program := filepath.Join(folders[name], "bootstrap")
			f, err := elf.Open(program)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Machine != machine {
				t.Errorf("%s for %s: is for %s", name, arch, f.Machine)
			}
			if f.Section(".symtab") != nil || f.Section(".interp") != nil {
				t.Errorf("%s for %s: not stripped, or needs libraries of the machine it runs on", name, arch)
			}
			if info, err := os.Stat(program); err != nil || info.Mode().Perm()&0o111 != 0o111 {
				t.Errorf("%s for %s: Lambda may not run it: %v %v", name, arch, info.Mode(), err)
			}
		}
	}
}

// A package without the truststore rejects every webhook, and one with that of
// another stack accepts the wrong certificates.
func TestCAsAreInThePackagesThatNeedThem(t *testing.T) {
	built := map[string][]byte{"webhook": nil, "redrive": nil, "token": nil}
	for _, text := range [][]byte{[]byte("first"), []byte("second"), nil} {
		folders, err := packageFunctions(built, t.TempDir(), text, text)
		if err != nil {
			t.Fatal(err)
		}
		for name, folder := range folders {
			for _, file := range []string{settings.TruststoreFile, settings.ServiceCAFile} {
				want := text
				if name == "token" && file == settings.TruststoreFile {
					want = nil
				}
				file := filepath.Join(folder, file)
				got, err := os.ReadFile(file)
				if !bytes.Equal(got, want) || (err == nil) != (want != nil) {
					t.Errorf("%s with %q: %q, %v", name, text, got, err)
				}
				if info, err := os.Stat(file); err == nil && info.Mode().Perm() != 0o644 {
					t.Errorf("%s: Lambda may not read it: %v", name, info.Mode())
				}
			}
		}
	}
}

func TestBuildErrorContainsTheCompilerOutput(t *testing.T) {
	top := module(t, "func main() { nonsense() }")
	_, err := buildIn(t, top, thisMachine)
	if err == nil || !strings.Contains(err.Error(), "main.go:3:15: undefined: nonsense") {
		t.Errorf("got %v", err)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
