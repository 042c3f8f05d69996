// Command deploy runs a command of the CDK CLI on the app for the targets bootstrap, synth, diff,
// deploy and destroy of make:
//
//	deploy COMMAND ENVIRONMENT [ARGUMENT OF CDK]...
//
// It guarantees that nothing is downloaded, built or changed before it has found credentials that
// AWS accepts, a region, and valid settings, and has written account, region and stack to
// standard error. It is a program of its own because it is compiled before that.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"

	"payhook.example/infra/environments"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	c := &call{out: os.Stderr, home: os.Getenv("HOME"), code: stscreds.StdinTokenProvider}
	err := c.run(ctx, os.Args[1:])
	stop()
	if err == nil {
		err = c.exec()
	}
	fmt.Fprintln(os.Stderr, "payhook:", err)
	os.Exit(1)
}

// cdk is the pinned CDK CLI, below the top of the repository.
const cdk = "infra/node_modules/.bin/cdk"

// call is one run of the CDK CLI, in the current folder, which is the top of the repository.
type call struct {
	out  io.Writer
	home string // of the user, which can have settings for all apps

	command     string
	name        string // of the environment; "" for none
	environment environments.Environment
	given       given    // by the arguments of the user
	args        []string // of the CDK CLI

	code        func() (string, error) // asks for the code of a device, for a profile that requires one (MFA)
	asked       bool                   // for the code
	credentials aws.Credentials
}

// run does everything before the CDK CLI, and sets its arguments.
func (c *call) run(ctx context.Context, args []string) (err error) {
	if len(args) < 2 {
		return errors.New("the command and the environment are missing: use make")
	}
	c.command, c.name = args[0], args[1]
	if c.name != "" {
		if c.environment, err = environments.Read(environments.Folder, c.name); err != nil {
			return err
		}
	}
	c.given = parse(args[2:])
	var p place
	var errPlace error
	checked := place{region: cmp.Or(c.given.region, c.environment.Region)}
	if c.command != "synth" {
		p, errPlace = c.place(ctx)
		checked = p
	}
	stack, errSettings := c.settings(checked)
	if p.account != "" {
		fmt.Fprintf(c.out, "account %s, region %s, stack %s\n", p.account, p.region, stack)
	}
	if c.command == "bootstrap" {
		errSettings = nil // the app is not used
	}
	if err := errors.Join(errPlace, errSettings); err != nil {
		return err
	}
	c.args = c.arguments(p, args[2:])
	if c.command == "destroy" {
		profile := ""
		if c.profile() != "" {
			profile = " --profile " + c.profile()
		}
		fmt.Fprintf(c.out, retained, stack, p.region, profile)
	}
	return c.install(ctx)
}

// retained says what is left after destroy, and what it needs.
const retained = `The ledger, the buckets, the log groups and the secret with the client credentials remain. Write down
their names, which are outputs of the stack. The CDK asks before it deletes the rest, for which
termination protection must be off:
  aws cloudformation update-termination-protection --no-enable-termination-protection --stack-name %s --region %s%s
`

// exec replaces this process with the CDK CLI. Where it finds cdk.json, it would synthesize the app for
// bootstrap, too, which needs the settings.
func (c *call) exec() error {
	program, err := filepath.Abs(cdk)
	if err == nil && c.command == "bootstrap" {
		err = os.Chdir("infra")
	} else if _, missing := os.Stat(".build/infra"); missing != nil {
		fmt.Fprintln(c.out, "compiling the app (minutes the first time) ...")
	}
	if err != nil {
		return err
	}
	return syscall.Exec(program, append([]string{program}, c.args...), c.variables(os.Environ()))
}

// variables returns the environment of the CDK CLI. After a code, it has the credentials instead of the profile:
// AWS takes a code only once.
func (c *call) variables(own []string) []string {
	own = append(own, "CDK_DISABLE_VERSION_CHECK=1") // it would recommend a newer version than the pinned one
	if !c.asked {
		return own
	}
	own = slices.DeleteFunc(own, func(variable string) bool {
		return strings.HasPrefix(variable, "AWS_PROFILE=") || strings.HasPrefix(variable, "AWS_DEFAULT_PROFILE=")
	})
	return append(own, "AWS_ACCESS_KEY_ID="+c.credentials.AccessKeyID,
		"AWS_SECRET_ACCESS_KEY="+c.credentials.SecretAccessKey, "AWS_SESSION_TOKEN="+c.credentials.SessionToken)
}

// arguments returns those of the CDK CLI. Of two settings with one name, it takes the last.
func (c *call) arguments(p place, given []string) []string {
	args := []string{c.command}
	toEnvironment := func(arg string) bool { return strings.HasPrefix(arg, "aws://") }
	if c.command == "bootstrap" && !slices.ContainsFunc(given, toEnvironment) {
		args = append(args, "aws://"+p.account+"/"+p.region)
	}
	if profile := c.profile(); profile != "" && !c.asked {
		args = append(args, "--profile", profile)
	}
	if p.region != "" && c.given.region == "" {
		args = append(args, "--region", p.region)
	}
	if c.command != "bootstrap" {
		for _, key := range slices.Sorted(maps.Keys(c.environment.Settings)) {
			args = append(args, "-c", key+"="+c.environment.Settings[key])
		}
	}
	for i, arg := range given {
		ofProfile := strings.HasPrefix(arg, "--profile") || i > 0 && given[i-1] == "--profile"
		if !ofProfile { // it is above
			args = append(args, arg)
		}
	}
	return args
}

// install installs the CDK CLI in its pinned version, unless it is installed. npm writes the file
// .package-lock.json at the end of an installation.
func (c *call) install(ctx context.Context) error {
	wanted, err := os.Stat("infra/package-lock.json")
	if err != nil {
		return err
	}
	installed, err := os.Stat("infra/node_modules/.package-lock.json")
	if err == nil && !installed.ModTime().Before(wanted.ModTime()) {
		return nil
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--no-update-notifier")
	npm.Dir, npm.Stdout, npm.Stderr = filepath.Dir("infra/package-lock.json"), c.out, c.out
	fmt.Fprintln(c.out, "installing the CDK CLI into infra/node_modules ...")
	if err := npm.Run(); errors.Is(err, exec.ErrNotFound) {
		return errors.New("npm is not installed; it comes with Node 22: https://nodejs.org")
	} else if err != nil {
		return fmt.Errorf("npm ci: %w", err)
	}
	return nil
}
