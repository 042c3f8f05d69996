package emulator

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
)

// requirement is a program that must be on this machine.
type requirement struct {
	program      string
	version      []string // arguments
	major, minor int      // the lowest version
	// recommended is the lowest major version that its makers support; 0: any.
	recommended int
	get         string
}

var requirements = []requirement{
	{"node", []string{"--version"}, 20, 0, 22, "https://nodejs.org"},
	{"npm", []string{"--version"}, 8, 0, 0, "it comes with Node: https://nodejs.org"},
	{"python3", []string{"--version"}, 3, 10, 0, "https://www.python.org"},
}

// Tool is a program that is on this machine.
type Tool struct {
	Program string `json:"program"`
	Version string `json:"version"`
	Note    string `json:"note,omitempty"`
}

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)(\.\d+)?`)

// FindTools returns the programs that are needed. The error names all that are missing or too
// old. Go is not checked: it has built this program.
func FindTools() ([]Tool, error) {
	found := []Tool{{Program: "go", Version: strings.TrimPrefix(runtime.Version(), "go")}}
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

// find returns the program, or an error that says what to install.
func (r requirement) find() (Tool, error) {
	if _, err := exec.LookPath(r.program); err != nil {
		return Tool{}, fmt.Errorf("  %s is not installed; version %d.%d or newer is needed: %s", r.program, r.major,
			r.minor, r.get)
	}
	text, err := exec.Command(r.program, r.version...).Output()
	if err != nil {
		return Tool{}, fmt.Errorf("  %s does not start: %w; version %d.%d or newer is needed: %s", r.program, err,
			r.major, r.minor, r.get)
	}
	if !atLeast(string(text), r.major, r.minor) {
		return Tool{}, fmt.Errorf("  %s is too old (%s); version %d.%d or newer is needed: %s", r.program,
			strings.TrimSpace(string(text)), r.major, r.minor, r.get)
	}
	t := Tool{Program: r.program, Version: versionNumber.FindString(string(text))}
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

// Install installs the pinned tools into the project whose folder of go.mod is top, unless
// they are installed. Two processes do not install at the same time.
func Install(ctx context.Context, top string, p *Progress, log string) error {
	l, err := waitForLock(ctx, filepath.Join(top, ".local", "install"))
	if err != nil {
		return err
	}
	defer l.Close()
	return Together(ctx,
		func(ctx context.Context) error { return installPython(ctx, top, p, log) },
		func(ctx context.Context) error { return installCDK(ctx, top, p, log) },
	)
}

// python is the interpreter of the virtual environment.
func python(top string) string { return filepath.Join(top, ".local", "venv", "bin", "python") }

// launcher is the program that starts MiniStack with the patches.
func launcher(top string) string {
	return filepath.Join(top, "infra", "local", "emulator", "ministack", "start.py")
}

func installPython(ctx context.Context, top string, p *Progress, log string) error {
	requirements := filepath.Join(top, "infra", "local", "emulator", "requirements.txt")
	python3, err := exec.LookPath("python3")
	if err != nil {
		return err
	}
	version, err := exec.Command(python3, "--version").Output()
	if err != nil {
		return err
	}
	venv := filepath.Join(top, ".local", "venv")
	// A virtual environment does not survive being moved.
	want, err := fingerprint(requirements, string(version), venv)
	if err != nil {
		return err
	}
	return once(venv, want, p, "installing MiniStack and cfn-lint into .local/venv", func() error {
		if err := os.RemoveAll(venv); err != nil {
			return err
		}
		if err := Run(ctx, log, exec.Command(python3, "-m", "venv", venv)); err != nil {
			return fmt.Errorf("%w\nPython's venv module is needed; Debian and Ubuntu have it in the package "+
				"python3-venv", err)
		}
		pip := exec.Command(python(top), "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
			"--require-virtualenv", "--no-deps", "--require-hashes", "-r", requirements)
		return Run(ctx, log, pip)
	})
}

func installCDK(ctx context.Context, top string, p *Progress, log string) error {
	infra := filepath.Join(top, "infra")
	modules := filepath.Join(infra, "node_modules")
	want, err := fingerprint(filepath.Join(infra, "package-lock.json"))
	if err != nil {
		return err
	}
	// With the link, npx cdk works in the folder of cdk.json.
	link := filepath.Join(top, "node_modules")
	if _, err := os.Lstat(link); err != nil {
		if err := os.Symlink(filepath.Join("infra", "node_modules"), link); err != nil {
			return err
		}
	}
	return once(modules, want, p, "installing the CDK CLI into infra/node_modules", func() error {
		npm := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--no-update-notifier")
		npm.Dir = infra
		return Run(ctx, log, npm)
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

// once runs an installation into a folder, unless one with this fingerprint has succeeded.
func once(folder, fingerprint string, p *Progress, what string, install func() error) error {
	stamp := filepath.Join(folder, ".installed")
	if got, err := os.ReadFile(stamp); err == nil && string(got) == fingerprint {
		return nil
	}
	return p.Step(what, func() error {
		if err := install(); err != nil {
			return err
		}
		return os.WriteFile(stamp, []byte(fingerprint), 0o644)
	})
}
