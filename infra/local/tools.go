package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"

	"payhook.example/infra/cmd/payhook/cli"
)

// requirement is a program that must be on this machine.
type requirement struct {
	program      string
	version      []string // arguments
	major, minor int      // the least version
	// recommended is the least major version that its makers support; 0 for any.
	recommended int
	get         string
}

var requirements = []requirement{
	{"node", []string{"--version"}, 20, 0, 22, "https://nodejs.org"},
	{"npm", []string{"--version"}, 8, 0, 0, "it comes with Node: https://nodejs.org"},
	{"python3", []string{"--version"}, 3, 10, 0, "https://www.python.org"},
}

// tool is a program that is on this machine.
type tool struct {
	Program string `json:"program"`
	Version string `json:"version"`
	Note    string `json:"note,omitempty"`
}

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)(\.\d+)?`)

// findTools returns the programs that are needed. Its error says which ones are
// missing or too old, all at once. Go is there and new enough, since it has built
// this program.
func findTools() ([]tool, error) {
	found := []tool{{Program: "go", Version: strings.TrimPrefix(runtime.Version(), "go")}}
	var problems []error
	if runtime.GOOS == "windows" {
		problems = append(problems, errors.New("  this runs on Linux and macOS; on Windows, use WSL"))
	}
	for _, r := range requirements {
		t, err := r.find()
		if err != nil {
			problems = append(problems, err)
			continue
		}
		found = append(found, t)
	}
	if len(problems) > 0 {
		return found, fmt.Errorf("this machine lacks something:\n%w", errors.Join(problems...))
	}
	return found, nil
}

// printTools prints the programs that are needed.
func printTools(p *cli.Program) error {
	found, err := findTools()
	fields := p.Fields()
	for _, t := range found {
		if p.JSON {
			if err := p.PrintJSON(t); err != nil {
				return err
			}
			continue
		}
		fields.Line(t.Program, "%s%s", t.Version, strings.TrimSuffix("; "+t.Note, "; "))
	}
	if flushed := fields.Flush(); err == nil {
		err = flushed
	}
	if err == nil && !p.JSON {
		_, err = fmt.Fprintln(p.Out, "Everything that is needed is installed.")
	}
	return err
}

func (r requirement) find() (tool, error) {
	if _, err := exec.LookPath(r.program); err != nil {
		return tool{}, fmt.Errorf("  %s is not installed; version %d.%d or newer is needed: %s", r.program, r.major,
			r.minor, r.get)
	}
	text, err := exec.Command(r.program, r.version...).Output()
	if err != nil {
		return tool{}, fmt.Errorf("  %s does not start: %w; version %d.%d or newer is needed: %s", r.program, err,
			r.major, r.minor, r.get)
	}
	if !atLeast(string(text), r.major, r.minor) {
		return tool{}, fmt.Errorf("  %s is too old (%s); version %d.%d or newer is needed: %s", r.program,
			strings.TrimSpace(string(text)), r.major, r.minor, r.get)
	}
	t := tool{Program: r.program, Version: versionNumber.FindString(string(text))}
	if !atLeast(string(text), r.recommended, 0) {
		t.Note = fmt.Sprintf("it works, but is no longer supported by its makers: %d or newer is recommended",
			r.recommended)
	}
	return t, nil
}

// atLeast reports whether the first version in a text is at least major.minor.
func atLeast(text string, major, minor int) bool {
	found := versionNumber.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	gotMajor, _ := strconv.Atoi(found[1])
	gotMinor, _ := strconv.Atoi(found[2])
	return gotMajor > major || gotMajor == major && gotMinor >= minor
}

// tools are the programs that are installed into the project.
type tools struct{ top string }

func (t tools) python() string { return filepath.Join(t.top, ".local", "venv", "bin", "python") }
func (t tools) ministack() string {
	return filepath.Join(t.top, "infra", "local", "ministack", "start.py")
}
func (t tools) cdk() string { return filepath.Join(t.top, "infra", "node_modules", ".bin", "cdk") }

// install installs what is not there yet in the version that is pinned.
func (t tools) install(ctx context.Context, p *progress, log string) error {
	// Two runs in one project, as of tests and by hand, install once.
	l, err := waitForLock(ctx, filepath.Join(t.top, ".local", "install"))
	if err != nil {
		return err
	}
	defer l.release()
	return atOnce(ctx,
		func(ctx context.Context) error { return t.installPython(ctx, p, log) },
		func(ctx context.Context) error { return t.installCDK(ctx, p, log) },
	)
}

func (t tools) installPython(ctx context.Context, p *progress, log string) error {
	requirements := filepath.Join(t.top, "infra", "local", "requirements.txt")
	python, err := exec.LookPath("python3")
	if err != nil {
		return err
	}
	version, err := exec.Command(python, "--version").Output()
	if err != nil {
		return err
	}
	venv := filepath.Join(t.top, ".local", "venv")
	// A virtual environment does not survive being moved.
	want, err := fingerprint(requirements, string(version), venv)
	if err != nil {
		return err
	}
	if installed(venv, want) {
		return nil
	}
	return p.step("installing MiniStack and cfn-lint into .local/venv", func() error {
		if err := os.RemoveAll(venv); err != nil {
			return err
		}
		if err := logged(ctx, log, exec.Command(python, "-m", "venv", venv)); err != nil {
			return fmt.Errorf("%w\nPython's venv module is needed; Debian and Ubuntu have it in the package "+
				"python3-venv", err)
		}
		pip := exec.Command(t.python(), "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
			"--require-virtualenv", "--no-deps", "--require-hashes", "-r", requirements)
		if err := logged(ctx, log, pip); err != nil {
			return err
		}
		return stamp(venv, want)
	})
}

func (t tools) installCDK(ctx context.Context, p *progress, log string) error {
	infra := filepath.Join(t.top, "infra")
	modules := filepath.Join(infra, "node_modules")
	want, err := fingerprint(filepath.Join(infra, "package-lock.json"))
	if err != nil {
		return err
	}
	// So that npx cdk works at the top, where cdk.json is.
	link := filepath.Join(t.top, "node_modules")
	if _, err := os.Lstat(link); err != nil {
		if err := os.Symlink(filepath.Join("infra", "node_modules"), link); err != nil {
			return err
		}
	}
	if installed(modules, want) {
		return nil
	}
	return p.step("installing the CDK CLI into infra/node_modules", func() error {
		npm := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--no-update-notifier")
		npm.Dir = infra
		if err := logged(ctx, log, npm); err != nil {
			return err
		}
		return stamp(modules, want)
	})
}

// fingerprint changes with a file or with what else an installation depends on.
func fingerprint(file string, others ...string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(text, strings.Join(others, "\n")...))
	return hex.EncodeToString(sum[:]), nil
}

const stampName = ".installed"

func installed(folder, want string) bool {
	got, err := os.ReadFile(filepath.Join(folder, stampName))
	return err == nil && string(got) == want
}

func stamp(folder, fingerprint string) error {
	return os.WriteFile(filepath.Join(folder, stampName), []byte(fingerprint), 0o644)
}
