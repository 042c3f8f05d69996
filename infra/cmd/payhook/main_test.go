package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/commands"
	"payhook.example/infra/local"
)

func root(p *cli.Program) *cobra.Command { return commands.Root(p, local.Command(p)) }

func run(t *testing.T, args ...string) (out, stderr string, status int) {
	t.Helper()
	var o, e bytes.Buffer
	p := &cli.Program{In: strings.NewReader(""), Out: &o, Err: &e, Now: time.Now}
	status = p.Run(t.Context(), root(p), args)
	return o.String(), e.String(), status
}

// every calls do with each command of ours, by the arguments that name it.
func every(do func(args []string, cmd *cobra.Command)) {
	var walk func(args []string, cmd *cobra.Command)
	walk = func(args []string, cmd *cobra.Command) {
		do(args, cmd)
		for _, below := range cmd.Commands() {
			if name := below.Name(); name != "help" && name != "completion" && !below.Hidden {
				walk(append(args[:len(args):len(args)], name), below)
			}
		}
	}
	walk(nil, root(cli.New()))
}

func TestEveryCommandExplainsItself(t *testing.T) {
	n := 0
	every(func(args []string, cmd *cobra.Command) {
		n++
		out, stderr, status := run(t, append(args, "--help")...)
		if status != 0 || stderr != "" {
			t.Errorf("%s: %d, %s", cmd.CommandPath(), status, stderr)
		}
		for _, text := range []string{"Usage:\n  " + cmd.CommandPath(), "--json", "--local", "--stack", "--id ",
			"Exit status:", "130"} {
			if !strings.Contains(out, text) {
				t.Errorf("the help of %s does not contain %q:\n%s", cmd.CommandPath(), text, out)
			}
		}
		if cmd.Short == "" || !cmd.HasSubCommands() && (cmd.Long == "" || cmd.Example == "") {
			t.Errorf("%s has no description or no example", cmd.CommandPath())
		}
		for line := range strings.SplitSeq(cmd.Long, "\n") {
			if len([]rune(line)) > 90 {
				t.Errorf("the help of %s has a line of %d columns: %s", cmd.CommandPath(), len(line), line)
			}
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no description", cmd.CommandPath(), f.Name)
			}
		})
	})
	if n < 12 {
		t.Errorf("only %d commands were looked at", n)
	}
}

// The examples of a command are commands that exist, with flags that exist.
func TestTheExamplesAreCommands(t *testing.T) {
	every(func(_ []string, cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			line, _, _ = strings.Cut(line, "   ")
			if line = strings.TrimSpace(line); line != "" {
				checkCall(t, line)
			}
		}
	})
}

// checkCall checks the name and the flags of a call such as "payhook local send".
func checkCall(t *testing.T, call string) {
	t.Helper()
	call = strings.NewReplacer("[", "", "]", "", "…", " ").Replace(call)
	fields := strings.Fields(call)
	root := root(cli.New())
	root.InitDefaultCompletionCmd(fields...)
	cmd, rest, err := root.Find(fields[1:])
	// A command with others below it may take flags itself.
	if err != nil || !cmd.HasParent() || cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "--") {
		t.Errorf("%q is not a command", call)
		return
	}
	cmd.InheritedFlags() // merges those of the commands above
	for _, word := range rest {
		name, isFlag := strings.CutPrefix(word, "--")
		if name, _, _ = strings.Cut(name, "="); isFlag && name != "help" && cmd.Flag(name) == nil {
			t.Errorf("%q: there is no flag --%s", call, name)
		}
	}
}

func TestTheVersionAndWhatShellsComplete(t *testing.T) {
	for args, want := range map[string]string{"__complete pa": "parked", "__complete status --ou": "--outputs",
		"__complete parked list --kind c": "conflict", "--version": "payhook version "} {
		if out, _, status := run(t, strings.Fields(args)...); status != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: %d, %q", args, status, out)
		}
	}
}

func TestAMisspelledCommandIsSuggested(t *testing.T) {
	for args, want := range map[string]string{
		"stauts":           `unknown command "stauts" for "payhook"; did you mean status?`,
		"parked lst":       `unknown command "lst" for "payhook parked"; did you mean list?`,
		"local up --evnts": "unknown flag: --evnts; payhook local up --help lists the flags",
		"nonsense":         `unknown command "nonsense" for "payhook"`,
	} {
		out, stderr, status := run(t, strings.Fields(args)...)
		if status != cli.StatusUsage || out != "" || stderr != "payhook: "+want+"\n" {
			t.Errorf("%s: %d, %q, %q", args, status, out, stderr)
		}
	}
}

const top = "../../.."

// documents are where commands are documented.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "*/*.md", "*/*/*.md", "*/*/*/*.md", "infra/payhook/alarms.txt",
		"infra/cmd/payhook/commands/*.txt"} {
		files, err := filepath.Glob(filepath.Join(top, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.Contains(file, "node_modules") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = string(text)
		}
	}
	return texts
}

var (
	payhookCall = regexp.MustCompile("(?m)(?:`|^|\\$ |\\.local/bin/)(payhook [a-z][^`#\n|)]*)")
	makeCall    = regexp.MustCompile("(?m)(?:`|^|\\$ )(make [a-z][^`#\n]*)")
	variable    = regexp.MustCompile(`([A-Z_]+)=("[^"]*"|\S*)`)
)

func TestTheDocumentsNameCommandsThatExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(top, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for file, text := range documents(t) {
		for _, found := range payhookCall.FindAllStringSubmatch(text, -1) {
			n++
			checkCall(t, found[1])
		}
		for _, found := range makeCall.FindAllStringSubmatch(text, -1) {
			n++
			target := strings.Fields(found[1])[1]
			if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).Match(makefile) {
				t.Errorf("%s: %s: there is no such target", file, found[1])
			}
			for _, given := range variable.FindAllStringSubmatch(found[1], -1) {
				name, value := given[1], strings.Trim(given[2], `"`)
				if !regexp.MustCompile(`(?m)^VARIABLES := .*\b` + name + `\b`).Match(makefile) {
					t.Errorf("%s: %s: make has no variable %s", file, found[1], name)
				}
				if name == "ARGS" && target == "payhook" {
					checkCall(t, "payhook "+value)
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d commands were found", n)
	}
}

// dryRun returns what make would do, without building or running anything.
func dryRun(t *testing.T, args ...string) (stderr string, works bool) {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"--dry-run", "-C", top}, args...)...)
	cmd.Env = append(cmd.Env, "ENV=of-the-shell") // which is not the ENV of make
	// As outside of make test.
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "MAKE") && !strings.HasPrefix(variable, "MFLAGS") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

func TestAnUnknownVariableOfMakeIsAnError(t *testing.T) {
	if stderr, works := dryRun(t, "payhook", "COUNT=3"); works ||
		!strings.Contains(stderr, "make has no variable COUNT") {
		t.Error(stderr)
	}
	for _, test := range []struct {
		args []string
		does string
	}{
		{[]string{"invoke", "FUNCTION=webhook", "EVENT=events/webhook/one-event.json"},
			"payhook-run invoke   webhook events/webhook/one-event.json"},
		{[]string{"invoke", "FUNCTION=webhook", "EVENT=a b", "ARGS=--as-is", "SETTINGS=c=1 d=2"},
			"payhook-run invoke --setting 'c=1 d=2' --as-is webhook a b"},
		{[]string{"run", "SETTINGS=a='b c' d=2"}, `payhook-run  --setting 'a='\''b c'\'' d=2'`},
		{[]string{"payhook", "ARGS=status --local"}, ".local/bin/payhook status --local"},
		{[]string{"payhook"}, "The program is .local/bin/payhook."},
		{[]string{"up", "SETTINGS=a=1 b=2", "ARGS=-c c=3"},
			"local up --setting 'a=1 b=2' -c c=3"},
		{[]string{"run", "ONCE=1"}, "payhook-run --once "},
		{[]string{"deploy", "ENV=staging", "ARGS=-c scopes=x"},
			"infra/node_modules/.bin/cdk deploy -c env='staging' -c scopes=x"},
		{[]string{"diff"}, "infra/node_modules/.bin/cdk diff  "},
		{[]string{"bootstrap", "ARGS=aws://1/a"}, "cd infra && node_modules/.bin/cdk bootstrap aws://1/a"},
		{[]string{"down"}, ".local/bin/payhook local down"},
		{[]string{"help", "GOFLAGS=-mod=mod", "AWS_PROFILE=x", "CC=cc"}, ""},
	} {
		if stderr, works := dryRun(t, test.args...); !works || !strings.Contains(stderr, test.does) {
			t.Errorf("make %s: %s", strings.Join(test.args, " "), stderr)
		}
	}
}

// A managed policy has at most 6,144 characters, of which white space does not count
// (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html). CloudFormation names a resource
// STACK-LOGICALID-RANDOM, cut to what its service takes. A logical id is here as long as its output with 8 digits, and
// none is longer.
func TestThePolicyFitsIntoAManagedPolicy(t *testing.T) {
	policy, err := os.ReadFile("policy.json")
	if err != nil {
		t.Fatal(err)
	}
	stack := strings.Repeat("s", 40)
	fixed := map[string]string{"Region": "ap-southeast-7", "Account": "123456789012", "Stack": stack,
		"TokenParameter": "/payhook/" + stack + "/token",
		"TokenSecret": "arn:aws:secretsmanager:ap-southeast-7:123456789012:secret:TokenSecret01234567-ABCDEFGHIJKLM-" +
			"ABCDEF"}
	filled := regexp.MustCompile(`<(\w+)>`).ReplaceAllStringFunc(string(policy), func(name string) string {
		name = strings.Trim(name, "<>")
		if value := fixed[name]; value != "" {
			return value
		}
		value := stack + "-" + name + "01234567-ABCDEFGHIJKLM"
		switch {
		case strings.HasSuffix(name, "Bucket"):
			return value[:63]
		case strings.HasSuffix(name, "Function"):
			return value[:64] + ":live"
		}
		return value
	})
	if n := len(strings.Join(strings.Fields(filled), "")); n > 6144 || n < 4500 {
		t.Errorf("%d characters", n)
	}
}
