// Package checks checks a deployed Payhook with one table: what is done, and what must be seen. A row sends an
// authentic or a forged webhook, calls a command of the program payhook or invokes a function. What is seen is the
// answer and the events that arrive behind the consumer's rules. The stack is in an emulator or in AWS.
//
// A row is right only if everything that it wants was seen, as values.
package checks

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/stack"
	"payhook.example/shared/paymenttest"
)

// Subject is a deployed Payhook that is checked, with what the checks use beside it.
type Subject struct {
	Stack *stack.Stack
	// Sender signs and sends the webhooks of the simulated payment service, and Change changes the state with which
	// that answers.
	Sender       paymenttest.Sender
	Change       func(context.Context, func(*paymenttest.State)) error
	Identity     *paymenttest.Identity // the service's client certificate; nil without mutual TLS
	Certificates Certificates          // further ones, which the settings name
	Arrivals     *Arrivals             // of the consumer's queues
	Timeout      time.Duration         // how long to wait for what must happen
	// Command returns a command of the program payhook for this stack.
	Command func(ctx context.Context, args ...string) *exec.Cmd

	payments string // the table of the consumer's function
	name     string // of what the last command showed
}

// Check is one row of the table, with its result. One of a webhook, a command, an invocation of a function and Do is
// what is done.
type Check struct {
	Topic, What string

	Webhook     *paymenttest.Webhook
	Certificate tls.Certificate // of the webhook; the zero value is that of the service
	// Call has the arguments of a command, which also gets --json. NAME is the name that the command before it printed.
	Call            []string
	Function, Event string
	Do              func(context.Context) (Seen, error)

	Before     func(context.Context) error // is done first, once
	Eventually bool                        // it is repeated until it is right, or until the timeout

	Want, Got Seen // of the fields of Got, those that are wanted
	Detail    string
	Right     bool
}

// Fields are members of a JSON object. What is wanted has an int for a number, and nil for a member that is missing.
type Fields map[string]any

// Seen is what is seen of a row.
type Seen struct {
	Status   int // of the answer to a webhook, 0 for none, or the exit status of a command
	Fields   Fields
	Arrivals []Arrival // behind the consumer's rules, sorted
}

// String is a line for people.
func (s Seen) String() string {
	words := []string{strconv.Itoa(s.Status)}
	for _, name := range slices.Sorted(maps.Keys(s.Fields)) {
		if s.Fields[name] != nil {
			words = append(words, fmt.Sprintf("%s=%v", name, s.Fields[name]))
		}
	}
	counts := map[string]int{}
	for _, a := range s.Arrivals {
		counts[a.Rule]++
	}
	for _, rule := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%d arrived (%s)", counts[rule], rule))
	}
	return strings.Join(words, " ")
}

// Run does the checks one after another, and then waits for the events that must have arrived. It returns only the
// error of ctx.
func (s *Subject) Run(ctx context.Context, checks []Check) error {
	for i := range checks {
		if s.do(ctx, &checks[i]); ctx.Err() != nil {
			return ctx.Err()
		}
	}
	s.compareArrivals(ctx, checks)
	return ctx.Err()
}

// do does one row. It does not look at the arrivals.
func (s *Subject) do(ctx context.Context, c *Check) {
	var err error
	if c.Before != nil {
		err = c.Before(ctx)
	}
	for begun := time.Now(); err == nil; {
		var got Seen
		got, err = s.observe(ctx, c)
		c.Detail = got.detail()
		c.Got = Seen{Status: got.Status, Fields: Fields{}}
		for name := range c.Want.Fields {
			c.Got.Fields[name] = got.Fields[name]
		}
		c.Right = err == nil && got.Status == c.Want.Status && got.has(c.Want.Fields)
		if c.Right || !c.Eventually || time.Since(begun) > s.Timeout {
			break
		}
		err = smithytime.SleepWithContext(ctx, 200*time.Millisecond)
	}
	if err != nil {
		c.Right, c.Detail = false, err.Error()
	}
}

// has reports whether all wanted fields are there.
func (s Seen) has(want Fields) bool {
	for name, value := range want {
		got := s.Fields[name]
		if n, ok := value.(int); ok {
			value = float64(n) // as a number of JSON is decoded
		}
		if got != value {
			return false
		}
	}
	return true
}

// detail returns what an answer says in words. Message is of AWS.
func (s Seen) detail() string {
	for _, name := range []string{"detail", "message", "Message", "cause"} {
		if text, ok := s.Fields[name].(string); ok && text != "" {
			return strings.Join(strings.Fields(text), " ")
		}
	}
	return ""
}

// observe does a row once.
func (s *Subject) observe(ctx context.Context, c *Check) (got Seen, err error) {
	switch {
	case c.Do != nil:
		return c.Do(ctx)
	case c.Call != nil:
		return s.call(ctx, c.Call, c.Want.Fields)
	case c.Function != "":
		return got, s.Invoke(ctx, c.Function, c.Event, &got.Fields)
	}
	got, err = s.send(ctx, *c.Webhook, c.Certificate)
	if err != nil && got.Status == 0 && c.Webhook.Certificate == paymenttest.NoCertificate {
		return c.Want, nil // AWS does not document whether the connection fails or is answered
	}
	return got, err
}

// send sends a webhook. The fields are those of the body, and those headers that are part of the interface.
func (s *Subject) send(ctx context.Context, w paymenttest.Webhook, certificate tls.Certificate) (got Seen, err error) {
	sender := s.Sender
	if certificate.Leaf != nil {
		sender.Identity = s.Identity.With(certificate)
	}
	w.URL = s.Stack.WebhookURL
	answer, err := sender.Send(ctx, w)
	if err != nil {
		return got, err
	}
	got.Status = answer.Status
	if got.Fields, err = decode(answer.Body); err != nil {
		return got, err
	}
	got.Fields["body"] = string(answer.Body)
	for _, name := range []string{"Content-Type", "Allow", "WWW-Authenticate"} {
		if value := answer.Header.Get(name); value != "" {
			got.Fields[name] = value
		}
	}
	return got, nil
}

// call calls a command of the program. The fields are those of the first line with all that is wanted, or otherwise of
// the last line; and the number of lines.
func (s *Subject) call(ctx context.Context, args []string, want Fields) (got Seen, err error) {
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "NAME" {
			args[i] = s.name
		}
	}
	cmd := s.Command(ctx, append(args, "--json")...)
	out, err := cmd.Output()
	ended, isEnded := errors.AsType[*exec.ExitError](err)
	if err != nil && !isEnded {
		return got, err
	}
	got.Status, got.Fields = cmd.ProcessState.ExitCode(), Fields{}
	lines := slices.Collect(strings.Lines(string(out)))
	for _, line := range lines {
		if got.Fields, err = decode([]byte(line)); err != nil {
			return got, err
		}
		if got.Fields["lines"] = float64(len(lines)); got.has(want) {
			break
		}
	}
	if name, ok := got.Fields["name"].(string); ok {
		s.name = name
	}
	if isEnded {
		got.Fields["detail"] = string(ended.Stderr)
	}
	return got, nil
}

// Invoke invokes a function, by the name of its folder, and decodes its answer.
func (s *Subject) Invoke(ctx context.Context, function, event string, answer any) error {
	name := s.Stack.Functions[function]
	out, err := lambda.NewFromConfig(s.Stack.AWS).Invoke(ctx,
		&lambda.InvokeInput{FunctionName: &name, Payload: []byte(event)})
	if err != nil {
		return err
	}
	if out.FunctionError != nil {
		return fmt.Errorf("%s failed: %s", name, out.Payload)
	}
	return json.Unmarshal(out.Payload, answer)
}

func decode(text []byte) (fields Fields, err error) {
	if err = json.Unmarshal(text, &fields); err == nil && fields == nil {
		err = errors.New("it is null")
	}
	if err != nil {
		err = fmt.Errorf("%q is no JSON object: %w", text, err)
	}
	return fields, err
}

// Print prints for each topic what was checked and the result, and what was expected instead of a wrong one. It returns
// how many results are wrong.
func Print(out io.Writer, checks []Check) (wrong int, err error) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	topic := ""
	for _, c := range checks {
		if c.Topic != topic {
			topic = c.Topic
			fmt.Fprintf(t, "\n%s\n", topic)
		}
		if c.Right {
			fmt.Fprintf(t, "ok\t%s\t%s\n", c.What, c.Got)
			continue
		}
		wrong++
		fmt.Fprintf(t, "WRONG\t%s\t%s; %s\n\texpected\t%s\n", c.What, c.Got, c.Detail, c.Want)
	}
	fmt.Fprintf(t, "\n%d of %d results are as expected.\n", len(checks)-wrong, len(checks))
	return wrong, t.Flush()
}
