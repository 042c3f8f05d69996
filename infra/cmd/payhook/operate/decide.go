package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"

	"payhook.example/infra/cmd/payhook/cli"
)

// request is the event of an invocation of the redrive function.
type request struct {
	Replay  []string `json:"replay,omitempty"`
	Version string   `json:"version,omitempty"`
	Again   bool     `json:"again,omitempty"`
	Bus     string   `json:"bus,omitempty"`
	Settle  []string `json:"settle,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	By      string   `json:"by,omitempty"`

	MoveFrom     string `json:"moveFrom,omitempty"`
	Certificates bool   `json:"certificates,omitempty"`
}

// answer is what the redrive function returns.
type answer struct {
	ErrorMessage string     `json:"errorMessage"`
	Replayed     []replayed `json:"replayed"`
	Settled      []settled  `json:"settled"`
	Moved        int        `json:"moved"`
	Left         bool       `json:"left"`

	Certificates *certificates `json:"certificates"`
}

// errFunction is returned when the redrive function was invoked and failed.
type errFunction string

func (e errFunction) Error() string { return "the redrive function failed: " + string(e) }

// redrive invokes the redrive function. The error is an errFunction, or comes from AWS.
func (d *stack) redrive(ctx context.Context, r request) (a answer, err error) {
	event, err := json.Marshal(r)
	if err != nil {
		return a, err
	}
	out, err := d.lambda.Invoke(
		ctx,
		&lambda.InvokeInput{FunctionName: aws.String(d.Functions["redrive"]), Payload: event},
	)
	if err != nil {
		return a, err
	}
	err = json.Unmarshal(out.Payload, &a)
	if out.FunctionError != nil {
		return a, errFunction(a.ErrorMessage)
	}
	return a, err
}

// maxFailures is how many invocations may fail in a row before the rest is not tried.
const maxFailures = 3

// decide calls do for each name, one after another, and reports how many were done as the
// word says. Each has an invocation of its own, so that it has all its time. do returns
// whether it was done.
func (p *program) decide(ctx context.Context, list []string, word string,
	do func(ctx context.Context, name string) (bool, error)) error {
	progress := p.Progress()
	tried, done, failures := 0, 0, 0
	var err error
	for _, name := range list {
		var ok bool
		ok, err = do(ctx, name)
		if _, failed := errors.AsType[errFunction](err); failed {
			tried, failures = tried+1, failures+1
			if failures == maxFailures {
				break
			}
			err = nil
			continue
		}
		if err != nil {
			break
		}
		tried, failures = tried+1, 0
		if ok {
			done++
		}
		progress.Say("%d of %d tried, %d %s", tried, len(list), done, word)
	}
	if len(list) > 1 || err != nil {
		fmt.Fprintf(p.Err, "%d of %d tried: %d %s, %d not\n", tried, len(list), done, word, tried-done)
	}
	_, failed := errors.AsType[errFunction](err)
	switch {
	case failed:
		fmt.Fprintf(p.Err, "stopped: %s\n", cli.Plain(err.Error()))
		return cli.ErrAttention
	case err != nil:
		if ctx.Err() != nil {
			fmt.Fprintln(p.Err, "the last one may still be "+word+"; payhook parked list shows what is open")
		}
		return err
	case done < tried:
		return cli.ErrAttention
	}
	return nil
}
