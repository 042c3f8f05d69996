// Command payhook runs Payhook on this machine, sends webhooks to it, and operates
// it, on this machine and in AWS. policy.json has the permissions that the commands need in AWS.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/commands"
	"payhook.example/infra/local"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // the second Ctrl-C ends it at once, except the local run
	p := cli.New()
	os.Exit(p.Run(ctx, commands.Root(p, local.Command(p)), os.Args[1:]))
}
