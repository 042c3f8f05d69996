package payhook

import (
	"archive/zip"
	"bytes"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"payhook.example/infra/build"
	"payhook.example/shared/settings"
)

const thisMachine = runtime.GOARCH

// buildIn builds the functions in the module of a folder.
func buildIn(t *testing.T, folder, arch string) (map[string][]byte, error) {
	t.Helper()
	t.Chdir(folder)
	return build.Functions(arch, false)
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
	first, err := build.Functions(thisMachine, false)
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
	t.Setenv("GOAMD64", "v3")
	t.Setenv("GOARM64", "v8.2")
	second, err := buildIn(t, elsewhere, thisMachine)
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
		for _, name := range build.Names {
			f, err := elf.NewFile(bytes.NewReader(built[name]))
			if err != nil {
				t.Fatal(err)
			}
			if f.Machine != machine {
				t.Errorf("%s for %s: is for %s", name, arch, f.Machine)
			}
			if f.Section(".symtab") != nil || f.Section(".interp") != nil {
				t.Errorf("%s for %s: not stripped, or needs libraries of the machine it runs on", name, arch)
			}
		}
	}
}

// unzip returns the files of a package, each as its mode and text.
func unzip(t *testing.T, name string) map[string]string {
	t.Helper()
	z, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	files := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if _, twice := files[f.Name]; err != nil || twice {
			t.Fatalf("%s in %s: twice, or %v", f.Name, name, err)
		}
		files[f.Name] = f.Mode().String() + " " + string(text)
	}
	return files
}

// A package without the truststore rejects every webhook, and one with that of
// another stack accepts the wrong certificates.
func TestCAsAreInThePackagesThatNeedThem(t *testing.T) {
	built := map[string][]byte{"webhook": nil, "redrive": nil, "token": nil}
	for _, text := range [][]byte{[]byte("first"), []byte("second"), nil} {
		packages, err := packageFunctions(built, t.TempDir(),
			map[string][]byte{settings.TruststoreFile: text, settings.ServiceCAFile: text})
		if err != nil {
			t.Fatal(err)
		}
		for name := range built {
			want := map[string]string{"bootstrap": "-rwxr-xr-x "}
			if text != nil {
				want[settings.ServiceCAFile] = "-rw-r--r-- " + string(text)
			}
			if text != nil && name != "token" {
				want[settings.TruststoreFile] = "-rw-r--r-- " + string(text)
			}
			if diff := cmp.Diff(want, unzip(t, packages[name])); diff != "" {
				t.Errorf("%s with %q (-want +got)\n%s", name, text, diff)
			}
		}
	}
}

// What is uploaded under a name is the same whatever the umask of who deploys is, and Lambda's user can read it.
func TestTheUmaskDoesNotChangePackages(t *testing.T) {
	file, out := truststores()[0], os.Getenv("PAYHOOK_TEST_UMASK")
	if out != "" {
		file = filepath.Join(out, "ca.pem")
	}
	app, _ := newPayhook(t, "program", mtls("both"), map[string]any{"truststore": file, "serviceCA": file})
	if err := synthesize(app); err != nil {
		t.Fatal(err)
	}
	if out != "" { // in a process with another umask
		if err := os.CopyFS(out, os.DirFS(*app.Outdir())); err != nil {
			t.Fatal(err)
		}
		return
	}
	other := t.TempDir()
	writeFile(t, filepath.Join(other, "ca.pem"), string(readFile(t, file)))
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `umask 077 && exec "$0" "-test.run=^$1$"`, os.Args[0], t.Name())
	cmd.Env = append(os.Environ(), "PAYHOOK_TEST_UMASK="+other)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	packages := map[string]map[string]string{} // their files, by their names
	for _, folder := range []string{*app.Outdir(), other} {
		files, err := filepath.Glob(filepath.Join(folder, "asset.*.zip"))
		if err != nil || len(files) != 2 { // webhook and redrive have the same program here
			t.Fatalf("%q %v", files, err)
		}
		for _, file := range files {
			packages[filepath.Base(file)] = unzip(t, file)
		}
	}
	text := " " + string(readFile(t, file))
	for name, files := range packages {
		want := map[string]string{"bootstrap": "-rwxr-xr-x program", settings.ServiceCAFile: "-rw-r--r--" + text}
		if len(files) == 3 {
			want[settings.TruststoreFile] = "-rw-r--r--" + text
		}
		if diff := cmp.Diff(want, files); diff != "" || len(packages) != 2 {
			t.Errorf("%s of %d (-want +got)\n%s", name, len(packages), diff)
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
