package listen

import (
	"bytes"
	"encoding/json"
	jsonv2 "encoding/json/v2"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/logs"
	"payhook.example/shared/intake"
)

// Webhook is one webhook, as its outcome line has it.
type Webhook struct {
	Type       string              `json:"type"` // "webhook"
	Time       string              `json:"time"`
	Status     int                 `json:"status"`
	Outcome    string              `json:"outcome"`
	Cause      string              `json:"cause,omitempty"`
	DeliveryID string              `json:"deliveryId,omitempty"`
	Events     int                 `json:"events"`
	IDs        map[string][]string `json:"ids,omitempty"` // by what became of the events
	IDsLeftOut int                 `json:"idsLeftOut,omitempty"`
	Parked     string              `json:"parked,omitempty"`
	MS         map[string]float64  `json:"ms,omitempty"` // of the steps that took one

	at time.Time
}

// readWebhook reads an outcome line of the webhook function. Other lines are none.
func readWebhook(e logs.Entry) (w Webhook, ok bool) {
	var line struct {
		Msg string `json:"msg"`
		Webhook
	}
	// Unlike version 1, it distinguishes parked from the metric Parked.
	if jsonv2.Unmarshal([]byte(e.Text), &line) != nil || line.Msg != "webhook" {
		return w, false
	}
	w = line.Webhook
	w.Type, w.Time, w.at = "webhook", cli.Stamp(e.Time), e.Time
	if w.Events == 0 { // the ids are complete
		for _, ids := range w.IDs {
			w.Events += len(ids)
		}
	}
	return w, true
}

// Event is one event that came over the bus.
type Event struct {
	Type       string `json:"type"` // "event"
	Time       string `json:"time"` // when it was received
	EventID    string `json:"eventId"`
	Name       string `json:"name"`
	DeliveryID string `json:"deliveryId"`
	// Rules are the rules whose patterns it matches; null if that is not known.
	Rules   []string        `json:"rules"`
	Unknown string          `json:"rulesUnknown,omitempty"` // why
	Forward *forwarded      `json:"forward,omitempty"`
	Event   json.RawMessage `json:"event"` // in EventBridge's envelope
}

// readEvent reads an event in the envelope of EventBridge. id is EventBridge's.
func readEvent(body string, at time.Time) (a Event, id string, err error) {
	var envelope struct {
		ID         string
		DetailType string `json:"detail-type"`
		Resources  []string
		Detail     struct{ EventID string }
	}
	if err := json.Unmarshal([]byte(body), &envelope); err != nil {
		return a, "", fmt.Errorf("an event cannot be read: %w", err)
	}
	a = Event{Type: "event", Time: cli.Stamp(at), EventID: envelope.Detail.EventID, Name: envelope.DetailType,
		Event: json.RawMessage(body)}
	if len(envelope.Resources) > 0 {
		a.DeliveryID = envelope.Resources[0]
	}
	return a, envelope.ID, nil
}

const (
	// afterWebhook is how long a webhook waits for its events, and afterEvent how long an
	// event waits for its webhook: CloudWatch Logs takes longer than the bus.
	afterWebhook, afterEvent = 2 * time.Second, 15 * time.Second
	// maxShown is how many events of a delivery a person is shown.
	maxShown = 20
)

// display takes what arrives. Its methods are called one after another.
type display interface {
	// begins says when the first event can have arrived.
	begins(time.Time)
	addWebhook(w Webhook, now time.Time) error
	addEvent(a Event, now time.Time) error
	// showDue is called again and again, and showAll at the end.
	showDue(now time.Time) error
	showAll() error
}

// Sink takes what arrives. Its methods are called one after another; an error of one ends
// [Follow].
type Sink interface {
	Webhook(w Webhook) error
	Event(e Event) error
}

// through is a display that gives everything to a sink at once.
type through struct{ Sink }

func (t through) begins(time.Time)                        {}
func (t through) addWebhook(w Webhook, _ time.Time) error { return t.Webhook(w) }
func (t through) addEvent(a Event, _ time.Time) error     { return t.Event(a) }
func (t through) showDue(time.Time) error                 { return nil }
func (t through) showAll() error                          { return nil }

// screen shows webhooks, and below each its events. It is not safe for concurrent use.
type screen struct {
	out   io.Writer
	json  bool
	width int
	// filtered says that events arrive only if they match a pattern.
	filtered bool
	// begin is when the first event can have arrived. Webhooks from before do not wait.
	begin time.Time

	waiting []*block
}

// block is what is known of one delivery and not shown yet.
type block struct {
	deliveryID string
	webhook    *Webhook
	events     []Event
	until      time.Time
}

func (s *screen) begins(at time.Time) { s.begin = at }

func (s *screen) find(deliveryID string) *block {
	for _, b := range s.waiting {
		if b.deliveryID == deliveryID {
			return b
		}
	}
	return nil
}

// addWebhook shows a webhook, at once if it has no events to wait for.
func (s *screen) addWebhook(w Webhook, now time.Time) error {
	if s.json {
		return s.print(w)
	}
	b := s.find(w.DeliveryID)
	if b != nil && b.webhook != nil { // the same delivery was sent again
		if err := s.show(b); err != nil {
			return err
		}
		b = nil
	}
	if b == nil || w.DeliveryID == "" {
		b = &block{deliveryID: w.DeliveryID}
		s.waiting = append(s.waiting, b)
	}
	b.webhook, b.until = &w, now.Add(afterWebhook)
	if w.at.Before(s.begin) {
		return s.show(b)
	}
	return s.showComplete(b)
}

// addEvent shows an event, below its webhook if that comes in time.
func (s *screen) addEvent(a Event, now time.Time) error {
	if s.json {
		return s.print(a)
	}
	b := s.find(a.DeliveryID)
	if b == nil {
		b = &block{deliveryID: a.DeliveryID, until: now.Add(afterEvent)}
		s.waiting = append(s.waiting, b)
	}
	b.events = append(b.events, a)
	return s.showComplete(b)
}

// showComplete shows a block if nothing is missing of it.
func (s *screen) showComplete(b *block) error {
	if b.webhook == nil {
		return nil
	}
	published := b.webhook.IDs[string(intake.Published)]
	if len(published) > 0 && (s.filtered || b.webhook.IDsLeftOut > 0) {
		return nil // how many come is not known
	}
	for _, id := range published {
		if !slices.ContainsFunc(b.events, func(a Event) bool { return a.EventID == id }) {
			return nil
		}
	}
	return s.show(b)
}

// showDue shows what has waited long enough.
func (s *screen) showDue(now time.Time) error {
	for _, b := range slices.Clone(s.waiting) {
		if now.After(b.until) {
			if err := s.show(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// showAll shows everything that is left.
func (s *screen) showAll() error {
	for _, b := range slices.Clone(s.waiting) {
		if err := s.show(b); err != nil {
			return err
		}
	}
	return nil
}

func (s *screen) print(document any) error {
	e := json.NewEncoder(s.out)
	e.SetEscapeHTML(false)
	return e.Encode(document)
}

func (s *screen) show(b *block) error {
	s.waiting = slices.DeleteFunc(s.waiting, func(other *block) bool { return other == b })
	var text bytes.Buffer
	line := func(indent int, words ...string) {
		text.WriteString(strings.Repeat(" ", indent) + cli.Wrap(s.width-indent, 4+indent, words...) + "\n")
	}
	const indent = 4
	if w := b.webhook; w == nil {
		for _, a := range b.events[:min(len(b.events), maxShown)] {
			line(0, append([]string{a.Time, "event"}, append(a.words(), "delivery "+cli.Plain(a.DeliveryID))...)...)
		}
	} else {
		delivery, count := "", ""
		if w.DeliveryID != "" {
			delivery = "delivery " + cli.Plain(w.DeliveryID)
			count = cli.Counted(w.Events, "event", "events")
		}
		line(0, w.Time, strconv.Itoa(w.Status), cli.Plain(w.Outcome), count, delivery)
		if w.Cause != "" {
			line(indent, "cause: "+cli.Plain(w.Cause))
		}
		if w.Parked != "" {
			line(indent, "parked as "+cli.Plain(w.Parked))
		}
		line(indent, w.times())
		b.showEvents(line, indent)
	}
	if left := len(b.events) - maxShown; left > 0 {
		line(indent, fmt.Sprintf("and %d more events; --json shows all", left))
	}
	_, err := s.out.Write(text.Bytes())
	return err
}

// fates are what became of the events of a delivery, the worst first, and how a person
// is told.
var fates = []struct {
	fate intake.Fate
	text string
}{
	{intake.Unrecorded, "not recorded"},
	{intake.Conflicting, "parked, in conflict with a recorded event"},
	{intake.Unpublishable, "parked, EventBridge rejects it"},
	{intake.Pending, "pending, left to redrive"},
	{intake.Duplicate, "duplicate, not published again"},
}

// Fates returns how a person is told what became of an event, by its name in the log.
func Fates() map[string]string {
	all := map[string]string{string(intake.Published): "published"}
	for _, f := range fates {
		all[string(f.fate)] = f.text
	}
	return all
}

// showEvents shows the events of a webhook: those that are not on the bus, those that
// arrived, and those that are on the bus and did not arrive here.
func (b *block) showEvents(line func(indent int, words ...string), indent int) {
	for _, f := range fates {
		for _, id := range b.webhook.IDs[string(f.fate)] {
			line(indent, cli.Plain(id), f.text)
		}
	}
	seen := map[string]bool{}
	for _, a := range b.events[:min(len(b.events), maxShown)] {
		line(indent, a.words()...)
	}
	for _, a := range b.events {
		seen[a.EventID] = true
	}
	for _, id := range b.webhook.IDs[string(intake.Published)] {
		if !seen[id] {
			line(indent, cli.Plain(id), "published")
		}
	}
	if left := b.webhook.IDsLeftOut; left > 0 && len(b.events) == 0 {
		line(indent, fmt.Sprintf("and %d more events, whose ids are not logged", left))
	}
}

// words is an event that arrived, as a person is told.
func (a Event) words() []string {
	rules := []string{"matches no rule"}
	switch {
	case a.Rules == nil:
		rules = []string{"rules not known: " + cli.Plain(a.Unknown)}
	case len(a.Rules) > 0:
		rules = nil
		for i, name := range a.Rules {
			word := cli.Plain(name)
			if i == 0 {
				word = "matches " + word
			}
			if i < len(a.Rules)-1 {
				word += ","
			}
			rules = append(rules, word)
		}
	}
	words := append([]string{cli.Plain(a.EventID), "published", cli.Plain(a.Name)}, rules...)
	if a.Forward != nil {
		words = append(words, a.Forward.text())
	}
	return words
}

// steps are the steps of a webhook, in their order.
var steps = []string{"authenticate", "decode", "record", "publish", "mark"}

// times is how long the steps took that took a millisecond.
func (w Webhook) times() string {
	var parts []string
	total := 0.0
	for _, step := range steps {
		if ms := w.MS[step]; ms > 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f", step, ms))
			total += ms
		}
	}
	if len(parts) == 0 {
		return "less than 1 ms"
	}
	return fmt.Sprintf("%.0f ms: %s", total, strings.Join(parts, ", "))
}
