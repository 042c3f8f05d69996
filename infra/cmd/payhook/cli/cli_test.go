package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// run runs a program with one command that returns an error.
func run(t *testing.T, ctx context.Context, f func(*Program) error, args ...string) (out, stderr string, status int) {
	t.Helper()
	var o, e bytes.Buffer
	p := &Program{In: strings.NewReader("y\n"), Out: &o, Err: &e, Now: time.Now}
	root := p.Root()
	var color string
	cmd := &cobra.Command{Use: "do", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return f(p) }}
	ChoiceVar(cmd, &color, "color", "a `color`", "red", "green")
	root.AddCommand(cmd)
	status = p.Run(ctx, root, append([]string{"do"}, args...))
	return o.String(), e.String(), status
}

func TestExitStatusTellsTheKindOfError(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	failed := errors.New("it failed")
	for name, test := range map[string]struct {
		ctx    context.Context
		err    error
		status int
		stderr string
	}{
		"success":             {t.Context(), nil, 0, ""},
		"attention":           {t.Context(), ErrAttention, StatusFailed, ""},
		"failed":              {t.Context(), failed, StatusFailed, "payhook: it failed\n"},
		"usage":               {t.Context(), Usage("bad %w", failed), StatusUsage, "payhook: bad it failed\n"},
		"unreachable":         {t.Context(), Unreachable(failed), StatusUnreachable, "payhook: it failed\n"},
		"usage stays usage":   {t.Context(), Unreachable(Usage("bad")), StatusUsage, "payhook: bad\n"},
		"attention stays":     {t.Context(), Unreachable(ErrAttention), StatusFailed, ""},
		"no error stays none": {t.Context(), Unreachable(nil), 0, ""},
		"interrupted": {canceled, Unreachable(context.Canceled), StatusInterrupted,
			"payhook: interrupted\n"},
		"done although canceled": {canceled, nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			out, stderr, status := run(t, test.ctx, func(*Program) error { return test.err })
			if status != test.status || stderr != test.stderr || out != "" {
				t.Errorf("%d, %q, %q", status, out, stderr)
			}
		})
	}
}

// full is a writer without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	for name, f := range map[string]func(*Program) error{
		"unreachable": func(p *Program) error { return Unreachable(p.PrintJSON("text")) },
		"not noticed": func(p *Program) error { _ = p.PrintJSON("text"); return nil },
	} {
		var stderr bytes.Buffer
		p := &Program{Out: full{}, Err: &stderr}
		root := p.Root()
		root.AddCommand(&cobra.Command{Use: "do", RunE: func(*cobra.Command, []string) error { return f(p) }})
		for _, arg := range []string{"do", "--help"} {
			status := p.Run(t.Context(), root, []string{arg})
			if want := "payhook: the output cannot be written: no space left on device\n"; status != StatusFailed ||
				!strings.HasSuffix(stderr.String(), want) {
				t.Errorf("%s, %s: %d, %s", name, arg, status, &stderr)
			}
		}
	}
}

func TestWrongCallDoesNotStartTheCommand(t *testing.T) {
	for args, message := range map[string]string{
		"stray":          `unknown command "stray" for "payhook do"`,
		"--nothing":      "unknown flag: --nothing; payhook do --help lists the flags",
		"--color blue":   "must be one of red, green",
		"--json=perhaps": "invalid argument",
	} {
		_, stderr, status := run(t, t.Context(), func(*Program) error {
			t.Errorf("%s: it was started", args)
			return nil
		}, strings.Fields(args)...)
		if status != StatusUsage || !strings.Contains(stderr, message) {
			t.Errorf("%s: %d, %s", args, status, stderr)
		}
	}
}

// Without a terminal, nobody has typed what is read.
func TestOnlyAYesAtATerminalConfirms(t *testing.T) {
	for answer, want := range map[string]int{"y\n": 0, "YES\n": 0, " yes ": 0, "\n": StatusUsage, "n\n": StatusUsage,
		"": StatusUsage, "yesterday\n": StatusUsage} {
		for _, terminal := range []bool{true, false} {
			_, stderr, status := run(t, t.Context(), func(p *Program) error {
				p.Terminal, p.In = terminal, strings.NewReader(answer)
				return p.Confirm(t.Context(), "Delete everything?")
			})
			if !terminal {
				want = StatusUsage
			}
			if status != want || !strings.Contains(stderr, "Delete everything?") ||
				strings.Contains(stderr, "--yes") == terminal {
				t.Errorf("%q, terminal %t: %d, %s", answer, terminal, status, stderr)
			}
		}
	}
}

func TestCtrlCAtTheQuestionEndsIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	defer write.Close()
	_, stderr, status := run(t, ctx, func(p *Program) error {
		p.Terminal, p.In = true, read
		cancel()
		return p.Confirm(ctx, "Delete everything?")
	})
	if status != StatusInterrupted || !strings.Contains(stderr, "nothing was done") {
		t.Errorf("%d, %s", status, stderr)
	}
}

// The question is no result, so standard output can be parsed.
func TestAProfileAsksAtTheTerminal(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		out, stderr, status := run(t, t.Context(), func(p *Program) error {
			p.Terminal, p.In = terminal, strings.NewReader(" 123456 \nmore")
			code, err := p.Target.Ask("MFA code of m:")
			if terminal != (code == "123456") {
				t.Errorf("%q", code)
			}
			return err
		})
		if out != "" || !strings.Contains(stderr, "MFA code of m:") || terminal != (status == 0) ||
			terminal == strings.Contains(stderr, "export-credentials") {
			t.Errorf("terminal: %t: %d, %q, %q", terminal, status, out, stderr)
		}
	}
}
