package checks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/shared/paymenttest"
)

// Arrival is one event that arrived behind a rule.
type Arrival struct {
	Rule, Type, EventID string
	// Amount is that of the event as a number: EventBridge can write its digits in another form.
	Amount float64
	Detail []byte // as it arrived
}

// event has what is compared of an event.
type event struct {
	EventName, EventID string
	EventTimestamp     time.Time
	EventData          struct{ Amount float64 }
}

// Arrivals are the events that have arrived in the queues behind rules. Nothing else may receive from them. It is not
// safe for concurrent use.
type Arrivals struct {
	api    *sqs.Client
	queues map[string]string // their URLs by the names of the rules
	all    []Arrival
}

// NewArrivals returns the arrivals in queues, whose URLs are given by the names of their rules.
func NewArrivals(config aws.Config, queues map[string]string) *Arrivals {
	return &Arrivals{api: sqs.NewFromConfig(config), queues: queues}
}

// receive receives messages of each queue once, and returns their number. It waits for one in each queue. It does not
// delete them: they are hidden for longer than the checks take.
func (a *Arrivals) receive(ctx context.Context, seconds int32) (n int, err error) {
	for rule, queue := range a.queues {
		out, err := a.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &queue, MaxNumberOfMessages: 10,
			WaitTimeSeconds: seconds, VisibilityTimeout: int32((12 * time.Hour).Seconds())})
		if err != nil {
			return n, fmt.Errorf("queue of rule %s: %w", rule, err)
		}
		for _, m := range out.Messages {
			arrived, err := parseArrival(rule, *m.Body)
			if err != nil {
				return n, err
			}
			n, a.all = n+1, append(a.all, arrived)
		}
	}
	return n, nil
}

func parseArrival(rule, body string) (Arrival, error) {
	var envelope struct {
		DetailType string    `json:"detail-type"`
		Time       time.Time // to the second
		Resources  []string
		Detail     json.RawMessage
	}
	var e event
	err := json.Unmarshal([]byte(body), &envelope)
	if err == nil {
		err = json.Unmarshal(envelope.Detail, &e)
	}
	switch sent := e.EventTimestamp; {
	case err != nil:
	case len(envelope.Resources) != 1:
		err = errors.New("an event came without the delivery's id in its resources")
	case !sent.IsZero() && sent.Sub(envelope.Time).Abs() >= time.Second:
		err = fmt.Errorf("an event of %s came with the time %s", sent, envelope.Time)
	}
	return Arrival{Rule: rule, Type: envelope.DetailType, EventID: e.EventID, Amount: e.EventData.Amount,
		Detail: envelope.Detail}, err
}

// Await waits until enough is true for what has arrived and the queues are empty, and returns it. At the deadline, it
// returns what there is with an error.
func (a *Arrivals) Await(ctx context.Context, timeout time.Duration,
	enough func([]Arrival) bool) (all []Arrival, err error) {
	seconds := int32(0)
	err = Poll(ctx, timeout, 0, func() (bool, error) {
		n, err := a.receive(ctx, seconds)
		if seconds = 0; n == 0 && !enough(a.all) {
			seconds = 1
		}
		return n == 0 && seconds == 0, err
	})
	return a.all, err
}

// compareArrivals waits for the events that must arrive, and compares those that have with what each row wants. A row
// wants every arrival of the eventIds in its webhook, also those that another row with the same eventId wants.
func (s *Subject) compareArrivals(ctx context.Context, checks []Check) {
	var all []Arrival
	for _, c := range checks {
		all = append(all, c.Want.Arrivals...)
	}
	want, got := byEventID(all), map[string][]Arrival(nil)
	_, err := s.Arrivals.Await(ctx, s.Timeout, func(all []Arrival) bool {
		got = byEventID(all)
		for id := range want {
			if len(got[id]) < len(want[id]) {
				return false
			}
		}
		return true
	})
	for i := range checks {
		c, ids := &checks[i], []string(nil)
		for _, a := range slices.Concat(c.Want.Arrivals, arrivals(c.Webhook, []string{Released})) {
			ids = append(ids, a.EventID)
		}
		slices.Sort(ids)
		c.Want.Arrivals, c.Got.Arrivals = nil, nil
		for _, id := range slices.Compact(ids) {
			c.Want.Arrivals, c.Got.Arrivals = append(c.Want.Arrivals, want[id]...), append(c.Got.Arrivals, got[id]...)
		}
		if !reflect.DeepEqual(c.Want.Arrivals, c.Got.Arrivals) {
			c.Right = false
			c.Detail += fmt.Sprintf(" arrived: %+v, not %+v; %v", c.Got.Arrivals, c.Want.Arrivals, err)
		}
	}
}

// byEventID returns arrivals by their eventIds, sorted, without the bytes.
func byEventID(all []Arrival) map[string][]Arrival {
	m := map[string][]Arrival{}
	for _, a := range all {
		a.Detail = nil
		m[a.EventID] = append(m[a.EventID], a)
	}
	for _, list := range m {
		slices.SortFunc(list, func(a, b Arrival) int {
			return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Amount, b.Amount), cmp.Compare(a.Type, b.Type))
		})
	}
	return m
}

// arrivals returns the arrival of each event of a webhook behind each rule.
func arrivals(w *paymenttest.Webhook, rules []string) (all []Arrival) {
	for _, e := range eventsIn(w) {
		for _, rule := range rules {
			all = append(all, Arrival{Rule: rule, Type: e.EventName, EventID: e.EventID, Amount: e.EventData.Amount})
		}
	}
	return all
}

// eventsIn returns the events with an eventId in a webhook. It can be nil, and its payload can be anything.
func eventsIn(w *paymenttest.Webhook) []event {
	var delivery struct{ Events []event }
	if w != nil {
		_ = json.Unmarshal(w.Payload, &delivery)
	}
	return slices.DeleteFunc(delivery.Events, func(e event) bool { return e.EventID == "" })
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
