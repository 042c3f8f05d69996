package cli

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"payhook.example/infra/stack"
)

// No command goes to AWS instead of a local run that was killed, and none to a local run
// if a flag names a place in AWS.
func TestTheLocalRunIsChosenOnlyWithoutFlags(t *testing.T) {
	emulator := httptest.NewServer(nil)
	t.Cleanup(emulator.Close)
	t.Setenv("AWS_REGION", "eu-west-1")
	for name, test := range map[string]struct {
		endpoint string // of the local run; "" for none
		target   stack.Stack
		local    bool
		says     string // or the error
	}{
		"up":           {emulator.URL, stack.Stack{}, true, "this is the local run; --stack, "},
		"one of two":   {emulator.URL, stack.Stack{ID: "A"}, true, "this is the local run; --stack, "},
		"it is named":  {emulator.URL, stack.Stack{Local: true}, true, ""},
		"stack":        {emulator.URL, stack.Stack{StackName: "A"}, false, ""},
		"region":       {emulator.URL, stack.Stack{Region: "eu-west-1"}, false, ""},
		"profile":      {emulator.URL, stack.Stack{Profile: "p"}, false, ""},
		"nothing":      {"", stack.Stack{}, false, ""},
		"killed":       {"http://127.0.0.1:1", stack.Stack{}, false, "--profile chooses AWS"},
		"killed, AWS":  {"http://127.0.0.1:1", stack.Stack{StackName: "A"}, false, ""},
		"a killed one": {"http://127.0.0.1:1", stack.Stack{Local: true}, true, ""}, // connecting fails
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			err := os.WriteFile("go.mod", []byte("module payhook.example\n"), 0o600)
			if test.endpoint != "" {
				err = errors.Join(err, (&stack.Stack{Endpoint: test.endpoint}).Write("."))
			}
			if err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			p := &Program{Err: &said, Target: test.target}
			err = p.Choose(t.Context())
			if err != nil {
				said.WriteString(err.Error())
			}
			if (err != nil) != (name == "killed") || p.Target.Local != test.local ||
				!strings.Contains(said.String(), test.says) || test.says == "" && said.Len() > 0 {
				t.Errorf("local: %t, %q", p.Target.Local, &said)
			}
		})
	}
}

func TestHintsNameTheTarget(t *testing.T) {
	for want, target := range map[string]stack.Stack{
		"payhook status":                                    {},
		"payhook status --local --id A":                     {Local: true, ID: "A"},
		"payhook status --stack S --region R --profile dev": {StackName: "S", Region: "R", Profile: "dev"},
	} {
		if got := (&Program{Target: target}).Hint("status"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for name, want := range map[string]string{".local/bin/payhook": ".local/bin/payhook status",
		"/my tools/payhook": "'/my tools/payhook' status"} {
		if got := (&Program{Name: name}).Hint("status"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A shell reads what a hint says, whatever the names are.
func TestHintsAreQuotedForAShell(t *testing.T) {
	for _, name := range []string{"a b", "$HOME", "$(id)", "`id`", "it's", `a"b`, `a\b`, "*", "~", "a;id", "a\nb",
		"#a", "!a", "a{b,c}", "a&id", "-a", "é"} {
		p := &Program{Name: name, Target: stack.Stack{StackName: name, ID: name, Region: name, Profile: name}}
		for hint, want := range map[string][]string{
			p.Hint("logs"):    {name, "logs", "--stack", name, "--id", name, "--region", name, "--profile", name},
			p.AWS("sts help"): {"aws", "sts", "help", "--region", name, "--profile", name},
		} {
			script := "set -- " + hint + "\nfor word; do printf '%s\\0' \"$word\"; done"
			out, err := exec.CommandContext(t.Context(), "sh", "-c", script).Output()
			got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %q, %v", hint, got, err)
			}
		}
	}
	p := &Program{Target: stack.Stack{Local: true}}
	if got := p.AWS("sts help"); got != `(eval "$(payhook local env)"; aws sts help)` {
		t.Error(got)
	}
}
