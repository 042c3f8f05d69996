// Package console has the command that serves a page on this machine, which sends and shows
// webhooks of the local run.
//
// It guarantees that the page is served on 127.0.0.1 only, that no other page in a browser
// can use its actions or read its data, and that the services which a button stopped are
// started when the command ends.
package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/listen"
	"payhook.example/infra/deployment"
)

const long = `Serves a page on 127.0.0.1 and prints its address; Ctrl-C ends it. It needs a local run:
make up, or payhook local up.

The page shows the state, and each delivery as it arrives: the answer, the outcome, the
cause, and its events with what is in them. Its buttons send webhooks, duplicates,
conflicts and forged webhooks, explain a rejection, rotate the signing key, stop and
start the key service, the token endpoint and the event bus, and replay what is parked.
What was stopped is started when the command ends.

With --json, one document: url.`

// Command returns the command.
func Command(p *cli.Program) *cobra.Command {
	var port uint16
	var since time.Duration
	cmd := &cobra.Command{
		Use: "console", Short: "Serve a page that sends and shows webhooks", Long: long,
		Example: "  payhook local console\n  payhook local console --port 8090 --since 10m",
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.NoTargetFlags(cmd); err != nil {
				return err
			}
			if since < 0 {
				return cli.Usage("--since must not be negative")
			}
			return cli.Unreachable(run(cmd.Context(), p, port, since))
		},
	}
	f := cmd.Flags()
	f.Uint16Var(&port, "port", 0, "port of 127.0.0.1 (default a free one)")
	cli.DurationVar(f, &since, "since", 2*time.Minute, "begin with the webhooks of this time before")
	return cmd
}

func run(ctx context.Context, p *cli.Program, port uint16, since time.Duration) error {
	d, err := deployment.Connect(ctx, deployment.Target{Local: true})
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return cli.Usage("--port: %w", err)
	}
	a := newActor()
	a.call = payhook
	a.setBus = func(ctx context.Context, stopped bool) error { return setBus(ctx, d, stopped) }
	a.faults = func(ctx context.Context) (map[string]string, error) { return faults(ctx, d) }
	a.rulesFor = func(ctx context.Context, event string) ([]string, error) { return rulesFor(ctx, d, event) }
	// Streams end with ctx.
	s := &http.Server{Handler: newServer(l, a, d.Name, d.Simulated).handler(), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	address := "http://" + l.Addr().String() + "/"
	if p.JSON {
		err = p.PrintJSON(map[string]string{"url": address})
	} else {
		_, err = fmt.Fprintf(p.Out, "The console is at %s\nCtrl-C ends it.\n", address)
	}
	if err != nil {
		l.Close()
		return err
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-running.Done()
		return s.Close()
	})
	group.Go(func() error {
		return listen.Follow(running, d, since, listen.Everything, nil, a.feed.note, a.feed.show)
	})
	err = group.Wait()
	// What is stopped must be started also after Ctrl-C.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	return errors.Join(err, a.startAll(ending))
}
