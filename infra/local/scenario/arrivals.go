package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Arrival is one event that arrived behind a rule.
type Arrival struct {
	Rule, DeliveryID, EventID string
	Detail                    []byte // as it arrived
}

// Arrivals receives events from the queues behind rules. It is safe for concurrent use.
type Arrivals struct {
	mu      sync.Mutex
	all     []Arrival
	changed chan struct{} // closed and replaced at every change
	err     error         // why it stopped receiving
	stop    func()
}

// Receive starts to receive from queues, whose URLs are given by the names of their rules. Nothing
// else may receive from them: a stopped receiver can still take a message. The caller must Stop
// it.
func Receive(config aws.Config, queues map[string]string) *Arrivals {
	config.HTTPClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(queues)}}
	client := sqs.NewFromConfig(config)
	ctx, cancel := context.WithCancel(context.Background())
	a := &Arrivals{changed: make(chan struct{})}
	var running sync.WaitGroup
	for rule, queue := range queues {
		running.Go(func() {
			if err := a.receiveFrom(ctx, client, rule, queue); ctx.Err() == nil {
				a.change(func() { a.err = fmt.Errorf("queue of rule %s: %w", rule, err) })
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

func (a *Arrivals) receiveFrom(ctx context.Context, client *sqs.Client, rule, queue string) error {
	for {
		out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &queue, MaxNumberOfMessages: 10, WaitTimeSeconds: 5,
		})
		if err != nil {
			return err
		}
		if len(out.Messages) == 0 {
			continue
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
		if _, err := client.DeleteMessageBatch(ctx,
			&sqs.DeleteMessageBatchInput{QueueUrl: &queue, Entries: received}); err != nil {
			return err
		}
		a.change(func() { a.all = append(a.all, arrived...) })
	}
}

// parseArrival reads the envelope of an event.
func parseArrival(rule, body string) (Arrival, error) {
	var event struct {
		Resources []string
		Detail    json.RawMessage
	}
	var detail struct {
		EventID string `json:"eventId"`
	}
	if err := json.Unmarshal([]byte(body), &event); err != nil {
		return Arrival{}, err
	}
	if err := json.Unmarshal(event.Detail, &detail); err != nil {
		return Arrival{}, err
	}
	if len(event.Resources) != 1 || detail.EventID == "" {
		return Arrival{}, errors.New("an event came without the delivery's id in its resources, or without eventId")
	}
	return Arrival{rule, event.Resources[0], detail.EventID, event.Detail}, nil
}

func (a *Arrivals) change(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
	close(a.changed)
	a.changed = make(chan struct{})
}

// ErrNotArrived is returned for events that did not arrive in time.
var ErrNotArrived = errors.New("not everything arrived in time")

// Await waits until enough is true for what has arrived, and returns it. At the deadline, it
// returns what there is with an error.
func (a *Arrivals) Await(ctx context.Context, timeout time.Duration, enough func([]Arrival) bool) ([]Arrival, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, ErrNotArrived)
	defer cancel()
	for {
		a.mu.Lock()
		all, changed, err := a.all[:len(a.all):len(a.all)], a.changed, a.err
		a.mu.Unlock()
		if err != nil || enough(all) {
			return all, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return all, context.Cause(ctx)
		}
	}
}

// AwaitOne waits for an event of a delivery behind the rule for released payments.
func (a *Arrivals) AwaitOne(ctx context.Context, timeout time.Duration, eventID,
	deliveryID string) (found Arrival, err error) {
	_, err = a.Await(ctx, timeout, func(all []Arrival) bool {
		for _, one := range all {
			if one.Rule == Released && one.EventID == eventID && one.DeliveryID == deliveryID {
				found = one
				return true
			}
		}
		return false
	})
	return found, err
}
