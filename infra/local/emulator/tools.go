package emulator

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// tool is a program that must be on this machine.
type tool struct {
	program      string
	major, minor int // the lowest version that is enough
	get          string
}

var tools = []tool{
	{"node", 20, 0, "https://nodejs.org"},
	{"npm", 8, 0, "it comes with Node: https://nodejs.org"},
	{"python3", 3, 10, "https://www.python.org"},
}

// CheckTools returns an error that names all programs that are needed and missing or too old.
// Go is not checked: it has built this program.
func CheckTools() error {
	var problems []error
	if runtime.GOOS == "windows" {
		problems = append(problems, errors.New("this runs on Linux and macOS; on Windows, use WSL"))
	}
	for _, t := range tools {
		problems = append(problems, t.check("--version"))
	}
	return errors.Join(problems...)
}

var versionNumber = regexp.MustCompile(`(\d+)\.(\d+)`)

// check compares the version that the program prints with a flag. The error says what to install.
func (t tool) check(flag string) error {
	// Java writes its version to standard error.
	text, err := exec.Command(t.program, flag).CombinedOutput()
	problem := "is too old (" + strings.TrimSpace(string(text)) + ")"
	if errors.Is(err, exec.ErrNotFound) {
		problem = "is not installed"
	} else if err != nil {
		problem = "does not start: " + err.Error()
	}
	if version := versionNumber.FindStringSubmatch(string(text)); err == nil && version != nil {
		major, _ := strconv.Atoi(version[1])
		minor, _ := strconv.Atoi(version[2])
		if major > t.major || major == t.major && minor >= t.minor {
			return nil
		}
	}
	return fmt.Errorf("%s %s; version %d.%d or newer is needed: %s", t.program, problem, t.major, t.minor, t.get)
}

// Install installs the pinned tools into the project whose folder of go.mod is top, unless
// they are installed. Two processes do not install at the same time.
func Install(ctx context.Context, top string, p *Progress, log string) error {
	l, err := lock(filepath.Join(top, ".local", "install"), 0)
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
	version, err := exec.Command("python3", "--version").Output()
	if err != nil {
		return err
	}
	venv := filepath.Join(top, ".local", "venv")
	// A virtual environment does not survive being moved.
	return once(venv, requirements, string(version)+venv, p, "installing MiniStack and cfn-lint into .local/venv",
		func() error {
			if err := os.RemoveAll(venv); err != nil {
				return err
			}
			if err := Run(ctx, log, exec.Command("python3", "-m", "venv", venv)); err != nil {
				return fmt.Errorf("%w\nPython's venv module is needed; Debian and Ubuntu have it in the package "+
					"python3-venv", err)
			}
			return Run(ctx, log, exec.Command(python(top), "-m", "pip", "install", "--disable-pip-version-check",
				"--no-input", "--require-virtualenv", "--no-deps", "--require-hashes", "-r", requirements))
		})
}

func installCDK(ctx context.Context, top string, p *Progress, log string) error {
	infra := filepath.Join(top, "infra")
	// With the link, npx cdk works in the folder of cdk.json.
	link := filepath.Join(top, "node_modules")
	if err := os.Symlink(filepath.Join("infra", "node_modules"), link); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return once(filepath.Join(infra, "node_modules"), filepath.Join(infra, "package-lock.json"), "", p,
		"installing the CDK CLI into infra/node_modules", func() error {
			npm := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--no-update-notifier")
			npm.Dir = infra
			return Run(ctx, log, npm)
		})
}

// once runs an installation into a folder, unless one has succeeded there with the same content
// of the file that names the versions, and the same further text.
func once(folder, file, further string, p *Progress, what string, install func() error) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	want := fmt.Sprintf("%x", sha256.Sum256(append(text, further...)))
	stamp := filepath.Join(folder, ".installed")
	if got, err := os.ReadFile(stamp); err == nil && string(got) == want {
		return nil
	}
	return p.Step(what, func() error {
		if err := install(); err != nil {
			return err
		}
		return os.WriteFile(stamp, []byte(want), 0o644)
	})
}
