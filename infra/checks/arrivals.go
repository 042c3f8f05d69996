package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/shared/aws/client"
	"payhook.example/shared/payment"
)

// Arrival is one event that arrived behind a rule.
type Arrival struct {
	Rule, DeliveryID, EventID string
	Detail                    []byte // as it arrived
}

// Arrivals receives events from the queues behind rules. It is safe for concurrent use.
type Arrivals struct {
	mu   sync.Mutex
	all  []Arrival
	err  error // why it stopped receiving
	stop func()
}

// Receive starts to receive from queues, whose URLs are given by the names of their rules. Nothing
// else may receive from them: a stopped receiver can still take a message. The caller must Stop
// it.
func Receive(config aws.Config, queues map[string]string) *Arrivals {
	config.HTTPClient = &http.Client{Transport: client.NewConnections(len(queues))}
	api := sqs.NewFromConfig(config)
	ctx, cancel := context.WithCancel(context.Background())
	a := &Arrivals{}
	var running sync.WaitGroup
	for rule, queue := range queues {
		running.Go(func() {
			var err error
			for err == nil {
				err = a.receive(ctx, api, rule, queue)
			}
			if ctx.Err() == nil {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.err = fmt.Errorf("queue of rule %s: %w", rule, err)
			}
		})
	}
	a.stop = func() {
		cancel()
		running.Wait()
	}
	return a
}

// Stop returns when nothing is received any more.
func (a *Arrivals) Stop() { a.stop() }

// receive receives messages once, and deletes them.
func (a *Arrivals) receive(ctx context.Context, api *sqs.Client, rule, queue string) error {
	out, err := api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &queue, MaxNumberOfMessages: 10, WaitTimeSeconds: 5,
	})
	if err != nil || len(out.Messages) == 0 {
		return err
	}
	arrived := make([]Arrival, len(out.Messages))
	received := make([]types.DeleteMessageBatchRequestEntry, len(out.Messages))
	for i, m := range out.Messages {
		if arrived[i], err = parseArrival(rule, *m.Body); err != nil {
			return err
		}
		received[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)),
			ReceiptHandle: m.ReceiptHandle}
	}
	if _, err := api.DeleteMessageBatch(ctx,
		&sqs.DeleteMessageBatchInput{QueueUrl: &queue, Entries: received}); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, arrived...)
	return nil
}

// parseArrival reads the envelope of an event.
func parseArrival(rule, body string) (Arrival, error) {
	var event struct {
		Time      time.Time // to the second
		Resources []string
		Detail    json.RawMessage
	}
	if err := json.Unmarshal([]byte(body), &event); err != nil {
		return Arrival{}, err
	}
	detail, err := payment.DecodeRawEvent(event.Detail)
	switch sent := detail.EventTimestamp; {
	case err != nil:
	case len(event.Resources) != 1:
		err = errors.New("an event came without the delivery's id in its resources")
	case !sent.IsZero() && sent.Sub(event.Time).Abs() >= time.Second:
		err = fmt.Errorf("an event of %s came with the time %s", sent, event.Time)
	}
	if err != nil {
		return Arrival{}, err
	}
	return Arrival{rule, event.Resources[0], detail.EventID, event.Detail}, nil
}

// Await waits until enough is true for what has arrived, and returns it. At the deadline, it
// returns what there is with an error.
func (a *Arrivals) Await(ctx context.Context, timeout time.Duration,
	enough func([]Arrival) bool) (all []Arrival, err error) {
	err = Poll(ctx, timeout, 20*time.Millisecond, func() (bool, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		all = slices.Clip(a.all)
		return a.err == nil && enough(all), a.err
	})
	return all, err
}

// await waits for an event, and ends the check that runs if none comes in time.
func (s *Scenario) await(ctx context.Context, is func(Arrival) bool) Arrival {
	all := Must(s.Arrivals.Await(ctx, s.Timeout, func(all []Arrival) bool { return slices.ContainsFunc(all, is) }))
	return all[slices.IndexFunc(all, is)]
}

// Poll calls enough until it returns true or an error, with a pause between the calls. It returns
// an error at the end of the timeout.
func Poll(ctx context.Context, timeout, pause time.Duration, enough func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errors.New("it did not happen in time"))
	defer cancel()
	for {
		if done, err := enough(); done || err != nil {
			return err
		}
		if err := smithytime.SleepWithContext(ctx, pause); err != nil {
			return context.Cause(ctx)
		}
	}
}
