// Command payhook runs Payhook on this machine, sends webhooks to it, and operates
// it, on this machine and in AWS. policy.json has the permissions that each package of commands needs in AWS.
package main

import (
	"context"
	_ "embed"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/evidence"
	"payhook.example/infra/cmd/payhook/explain"
	"payhook.example/infra/cmd/payhook/logs"
	"payhook.example/infra/cmd/payhook/operate"
	"payhook.example/infra/cmd/payhook/status"
	"payhook.example/infra/local"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends it at once, except the local run
	p := cli.New()
	os.Exit(p.Run(ctx, commands(p), os.Args[1:]))
}

// commands returns the command payhook with all commands below it.
func commands(p *cli.Program) *cobra.Command {
	root := p.Root()
	add := func(title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
		for _, cmd := range commands {
			cmd.GroupID = title
		}
		root.AddCommand(commands...)
	}
	add("Try it", local.Command(p, &p.Target), logs.Command(p))
	add("Operate it", append([]*cobra.Command{status.Command(p), explain.Command(p)},
		append(operate.Commands(p), evidence.Command(p), logs.ReconcileCommand(p))...)...)
	document(root)
	return root
}

// help has the description and the examples of commands, below their names.
//
//go:embed help.txt
var help string

func document(root *cobra.Command) {
	for section := range strings.SplitSeq(strings.TrimPrefix(help, "# "), "\n# ") {
		name, text, _ := strings.Cut(section, "\n")
		cmd, _, err := root.Find(strings.Fields(name)[1:])
		if err != nil || cmd.CommandPath() != name {
			panic("help.txt: there is no command " + name)
		}
		description, examples, _ := strings.Cut(text, "\nExamples:\n")
		cmd.Long, cmd.Example = strings.TrimSpace(description), strings.TrimRight(examples, "\n")
	}
}
