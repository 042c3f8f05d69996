package local

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

// arrival is one event that arrived behind a rule.
type arrival struct {
	rule       string
	deliveryID string
	eventID    string
	detail     []byte // as it arrived
	id         string // of the envelope
}

// arrivals takes what arrives behind every rule out of its queue. It is safe for
// concurrent use.
type arrivals struct {
	mu      sync.Mutex
	all     []arrival
	changed chan struct{} // closed, and made anew, at every change
	err     error         // why it receives no more
	stop    func()
}

// receive starts to take what arrives out of the queues, whose URLs are given by
// the names of their rules. The caller must call stop, which returns when
// nothing is received any more.
func receive(config aws.Config, queues map[string]string) *arrivals {
	config.HTTPClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(queues)}}
	client := sqs.NewFromConfig(config)
	ctx, cancel := context.WithCancel(context.Background())
	a := &arrivals{changed: make(chan struct{})}
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

func (a *arrivals) receiveFrom(ctx context.Context, client *sqs.Client, rule, queue string) error {
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
		arrived := make([]arrival, len(out.Messages))
		taken := make([]types.DeleteMessageBatchRequestEntry, len(out.Messages))
		for i, m := range out.Messages {
			if arrived[i], err = parseArrival(rule, *m.Body); err != nil {
				return err
			}
			taken[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)),
				ReceiptHandle: m.ReceiptHandle}
		}
		if _, err := client.DeleteMessageBatch(ctx,
			&sqs.DeleteMessageBatchInput{QueueUrl: &queue, Entries: taken}); err != nil {
			return err
		}
		a.change(func() { a.all = append(a.all, arrived...) })
	}
}

// parseArrival reads an event as EventBridge hands it on.
func parseArrival(rule, body string) (arrival, error) {
	var event struct {
		ID        string
		Resources []string
		Detail    json.RawMessage
	}
	var detail struct {
		EventID string `json:"eventId"`
	}
	if err := json.Unmarshal([]byte(body), &event); err != nil {
		return arrival{}, err
	}
	if err := json.Unmarshal(event.Detail, &detail); err != nil {
		return arrival{}, err
	}
	if len(event.Resources) != 1 || detail.EventID == "" {
		return arrival{}, errors.New("an event came without the delivery's id in its resources, or without eventId")
	}
	return arrival{rule: rule, deliveryID: event.Resources[0], eventID: detail.EventID, detail: event.Detail,
		id: event.ID}, nil
}

func (a *arrivals) change(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
	close(a.changed)
	a.changed = make(chan struct{})
}

// ErrNotArrived is returned for events that did not arrive in time.
var ErrNotArrived = errors.New("not everything arrived in time")

// await waits until enough says yes to all that has arrived so far, and returns
// that. At the deadline it returns what there is, with an error.
func (a *arrivals) await(ctx context.Context, timeout time.Duration, enough func([]arrival) bool) ([]arrival, error) {
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
