package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/explain"
	"payhook.example/infra/cmd/payhook/operate"
	"payhook.example/infra/cmd/payhook/send"
	"payhook.example/infra/cmd/payhook/status"
	"payhook.example/infra/deployment"
	"payhook.example/shared/paymenttest"
)

// action is what a button asks for.
type action struct {
	Do string `json:"do"`
	// Of send, repeat and conflict. The command has defaults for Amount and Currency.
	Events   int    `json:"events"`
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
	Flaw     string `json:"flaw"`    // of forge
	Service  string `json:"service"` // of stop and start
	Name     string `json:"name"`    // of compare, replay and explain
	Version  string `json:"version"` // of replay: first, parked, or "" for what is no conflict
}

// result is a command and its result.
type result struct {
	Action  action `json:"action"`
	Command string `json:"command"`
	Right   bool   `json:"right"`
	Output  string `json:"output"`
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
	// faults returns the fault of each service that has one.
	faults func(context.Context) (map[string]string, error)
	// rulesFor returns the names of the rules that match an event.
	rulesFor func(ctx context.Context, event string) ([]string, error)
	feed     *feed

	mu      sync.Mutex      // held during an action
	stopped map[string]bool // what this program has stopped
}

func newActor() *actor { return &actor{feed: newFeed(), stopped: map[string]bool{}} }

// do does what is asked for. Pages see the result in the feed.
func (a *actor) do(ctx context.Context, asked action) error {
	if asked.Do == "clear" {
		return a.feed.add(message{kind: aClear}, struct{}{})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.run(ctx, asked)
}

func (a *actor) run(ctx context.Context, asked action) error {
	args, err := asked.args()
	if err != nil {
		return err
	}
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
	return a.feed.add(message{kind: aCommand}, r)
}

// args returns the arguments of payhook for what is asked for; none for the bus.
func (asked action) args() ([]string, error) {
	switch asked.Do {
	case "send", "repeat", "conflict":
		return asked.send()
	case "forge":
		if !slices.Contains(paymenttest.Flaws(), paymenttest.Flaw(asked.Flaw)) {
			return nil, fmt.Errorf("%w: there is no flaw %q", errAction, asked.Flaw)
		}
		// While the key service is stopped, a key that is not known is answered with 503.
		return []string{"local", "send", "--corrupt", asked.Flaw, "--expect", "401,503"}, nil
	case "rotate":
		return []string{"local", "send", "--rotate"}, nil
	case "stop", "start":
		if !slices.Contains(services, asked.Service) {
			return nil, fmt.Errorf("%w: there is no service %q", errAction, asked.Service)
		}
		fault := send.NoFault
		if asked.Do == "stop" {
			fault = string(paymenttest.Down)
		}
		return []string{"local", "fault", asked.Service, fault}, nil
	case "explain":
		return []string{"explain", "--local", "--captured", asked.Name}, nil
	case "compare":
		// A name cannot be a flag.
		return []string{"parked", "show", "--local", "--", asked.Name}, nil
	case "replay":
		args := []string{"replay", "--local"}
		if asked.Version != "" {
			// The dialog has shown both versions and asked.
			args = append(args, "--version", asked.Version, "--yes")
		}
		return append(args, "--", asked.Name), nil
	}
	return nil, fmt.Errorf("%w: %q", errAction, asked.Do)
}

// send returns the arguments of payhook for a webhook that is not forged.
func (asked action) send() ([]string, error) {
	if asked.Events < 1 || asked.Events > maxEvents {
		return nil, fmt.Errorf("%w: the number of events must be from 1 to %d", errAction, maxEvents)
	}
	args := []string{"local", "send", "--events", strconv.Itoa(asked.Events)}
	if asked.Amount != "" {
		args = append(args, "--amount", asked.Amount)
	}
	if asked.Currency != "" {
		args = append(args, "--currency", asked.Currency)
	}
	switch asked.Do {
	case "repeat":
		args = append(args, "--duplicates", "1")
	case "conflict":
		args = append(args, "--conflict")
	}
	return args, nil
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
		err := a.run(ctx, action{Do: "start", Service: service})
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
	root.AddCommand(append(operate.Commands(p, t), explain.Command(p, t), status.Command(p, t),
		cli.Group("local", "", send.Command(p, t), send.FaultCommand(p)))...)
	exit := p.Run(ctx, root, args)
	return strings.TrimSpace(text.String()), exit == 0
}
