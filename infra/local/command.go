// Package local runs Payhook on this machine: it deploys the real stack with the real CDK into MiniStack, an emulator
// of AWS, with the stack of a consumer and a simulated payment service beside it.
//
// Everything that it starts ends with it: after Ctrl-C, SIGTERM, a closed terminal or a
// failed step, and at the start of the next run if it was killed. It listens on free ports
// of 127.0.0.1 only, and writes below .local of the project only.
package local

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/stack"
	"payhook.example/shared/settings"
)

// Command returns the command local, with the commands that start, use and end the local run below it.
func Command(p *cli.Program) *cobra.Command {
	o := &options{given: map[string]string{}}
	up := o.command(p, "up", "Start everything in the background", background)
	o.register(up)
	local := cli.Group("local", "Run Payhook on this machine", up,
		o.command(p, "down", "End what up has started", down),
		o.command(p, "env", "Print the environment of programs that use the local run", environment),
		sendCommand(p))
	cli.AddHelp(local, helps)
	return local
}

//go:embed *.txt
var helps embed.FS

// command returns a command that takes no arguments, is for this project and never for AWS.
func (o *options) command(p *cli.Program, use, short string,
	do func(context.Context, *cli.Program, options) error) *cobra.Command {
	run := func(cmd *cobra.Command, _ []string) error {
		if err := cli.NoTargetFlags(cmd); err != nil {
			return err
		}
		if err := o.complete(p); err != nil {
			return cli.Usage("%w", err)
		}
		// A second Ctrl-C must not end this program before it has ended what it started.
		further := make(chan os.Signal, 1)
		signal.Notify(further, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		defer signal.Stop(further)
		return withDisk(do(cmd.Context(), p, *o), o.top, 300) // the CDK's library takes 221
	}
	return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: run}
}

// withDisk adds to an error that the disk of a folder has less than a number of MB free. What programs write about a
// full disk can be lost, or is between other messages.
func withDisk(err error, folder string, least uint64) error {
	var disk syscall.Statfs_t
	if err == nil || syscall.Statfs(folder, &disk) != nil || disk.Blocks == 0 { // of a size that is not known
		return err
	}
	if free := disk.Bavail * uint64(disk.Bsize) >> 20; free < least {
		return fmt.Errorf("%w\nthe disk of %s is almost full: %d MB are free", err, folder, free)
	}
	return err
}

// complete sets what is not given by flags.
func (o *options) complete(p *cli.Program) (err error) {
	if o.top, err = stack.Top(); err != nil {
		return err
	}
	o.state, o.progress = filepath.Join(o.top, ".local", "run"), NewProgress(p.Err)
	// The CDK app follows this file, so the simulated service and the endpoint must, too.
	if o.settings, err = settings.ReadFile(filepath.Join(o.top, "infra", "settings.json")); err != nil {
		return err
	}
	for _, key := range chosen {
		delete(o.settings, key)
	}
	maps.Copy(o.settings, o.given)
	return nil
}

func (o *options) register(cmd *cobra.Command) {
	cmd.Flags().FuncP("setting", "c",
		"a setting other than its default, `KEY=VALUE`; may be repeated, or have several, separated by spaces;\n"+
			"a value with spaces can be in quotes: KEY='A B'",
		func(text string) error { return settings.ParsePairs(o.given, text, settings.AllExcept(chosen...)) })
	var keys []string
	for _, s := range settings.AllExcept(chosen...) {
		keys = append(keys, s.Key+"=")
	}
	if err := cmd.RegisterFlagCompletionFunc("setting",
		cobra.FixedCompletions(keys, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace)); err != nil {
		panic(err) // there is no such flag
	}
}

// chosen are the settings that a local run chooses itself.
var chosen = []string{"baseUrl", "authUrl", "stackName"}
