package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/operate"
	"payhook.example/infra/cmd/payhook/send"
	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
)

// action is what a button asks for.
type action struct {
	Do      string `json:"do"`
	Events  int    `json:"events"`  // of send
	Flaw    string `json:"flaw"`    // of forge
	Service string `json:"service"` // of stop and start
	Name    string `json:"name"`    // of compare and replay
	Version string `json:"version"` // of replay: first, parked, or "" for what is no conflict
}

// result is a command and its result.
type result struct {
	Action  action `json:"action"`
	Command string `json:"command"`
	Right   bool   `json:"right"`
	Output  string `json:"output"`
	// Stopped are the services that are stopped now.
	Stopped map[string]bool `json:"stopped"`
}

const eventBus = "bus"

// services can be stopped.
var services = []string{"keys", "token", eventBus}

// maxEvents is how many events one button sends in a delivery.
const maxEvents = 100

// errAction is an error of what was asked for; nothing was done.
var errAction = errors.New("the page asked for something that does not exist")

// actor does what the buttons ask for, one action after another. It is safe for concurrent
// use.
type actor struct {
	// call runs a command of payhook.
	call func(ctx context.Context, args []string) (output string, right bool)
	// setBus stops or starts the bus.
	setBus func(ctx context.Context, stopped bool) error
	feed   *feed

	mu      sync.Mutex      // held during an action
	stopped map[string]bool // what this program has stopped
}

// do does what is asked for. Pages see the result in the feed.
func (a *actor) do(ctx context.Context, asked action) error {
	args, err := asked.args()
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.run(ctx, asked, args)
}

func (a *actor) run(ctx context.Context, asked action, args []string) error {
	r := result{Action: asked, Command: "payhook " + strings.Join(args, " ")}
	if asked.Service == eventBus {
		r.Command = asked.Do + " the event bus"
		err := a.setBus(ctx, asked.Do == "stop")
		if r.Right = err == nil; !r.Right {
			r.Output = err.Error()
		}
	} else {
		r.Output, r.Right = a.call(ctx, args)
	}
	if r.Right && asked.Service != "" {
		a.stopped[asked.Service] = asked.Do == "stop"
	}
	r.Stopped = a.stopped
	return a.feed.add(aCommand, r)
}

// args returns the arguments of payhook for what is asked for; none for the bus.
func (asked action) args() ([]string, error) {
	switch asked.Do {
	case "send":
		if asked.Events < 1 || asked.Events > maxEvents {
			return nil, fmt.Errorf("%w: the number of events must be from 1 to %d", errAction, maxEvents)
		}
		return []string{"send", "--local", "--events", strconv.Itoa(asked.Events)}, nil
	case "repeat":
		return []string{"send", "--local", "--duplicates", "1"}, nil
	case "conflict":
		return []string{"send", "--local", "--conflict"}, nil
	case "forge":
		if !slices.Contains(paymenttest.Flaws(), paymenttest.Flaw(asked.Flaw)) {
			return nil, fmt.Errorf("%w: there is no flaw %q", errAction, asked.Flaw)
		}
		return []string{"send", "--local", "--corrupt", asked.Flaw, "--expect", "401"}, nil
	case "rotate":
		return []string{"send", "--local", "--rotate"}, nil
	case "stop", "start":
		if !slices.Contains(services, asked.Service) {
			return nil, fmt.Errorf("%w: there is no service %q", errAction, asked.Service)
		}
		fault := ""
		if asked.Do == "stop" {
			fault = string(paymenttest.Down)
		}
		return []string{"send", "--local", "--count", "0", "--fault", asked.Service + "=" + fault}, nil
	case "compare":
		// A name cannot be a flag.
		return []string{"parked", "show", "--local", "--", asked.Name}, nil
	case "replay":
		args := []string{"parked", "replay", "--local"}
		if asked.Version != "" {
			// The dialog has shown both versions and asked.
			args = append(args, "--version", asked.Version, "--yes")
		}
		return append(args, "--", asked.Name), nil
	}
	return nil, fmt.Errorf("%w: %q", errAction, asked.Do)
}

// state returns the services that are stopped.
func (a *actor) state() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.stopped)
}

// startAll starts what was stopped, so that it does not stay stopped unnoticed.
func (a *actor) startAll(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var failed []error
	for _, service := range services {
		if !a.stopped[service] {
			continue
		}
		asked := action{Do: "start", Service: service}
		args, err := asked.args()
		if err == nil {
			err = a.run(ctx, asked, args)
		}
		if err == nil && a.stopped[service] {
			err = fmt.Errorf("%s is still stopped", service)
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// payhook runs a command of this program for the local run.
func payhook(ctx context.Context, args []string) (output string, right bool) {
	var text bytes.Buffer
	p := &cli.Program{In: strings.NewReader(""), Out: &text, Err: &text, Now: time.Now}
	root, t := p.Root(""), &deployment.Target{}
	cli.TargetFlags(root, t)
	root.AddCommand(append(operate.Commands(p, t), send.Command(p, t))...)
	status := p.Run(ctx, root, args)
	return strings.TrimSpace(text.String()), status == 0
}
