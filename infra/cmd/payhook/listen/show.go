package listen

import (
	"cmp"
	"encoding/json"
	jsonv2 "encoding/json/v2"
	"fmt"
	"maps"
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
	IDs        map[string][]string `json:"ids,omitempty"` // of the events, by their fates
	IDsLeftOut int                 `json:"idsLeftOut,omitempty"`
	Parked     string              `json:"parked,omitempty"`
	Captured   string              `json:"captured,omitempty"`
	MS         map[string]float64  `json:"ms,omitempty"` // of the steps that were made
}

// readWebhook reads an outcome line of the webhook function. It returns false for another
// line.
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
	w.Type, w.Time = "webhook", cli.Stamp(e.Time)
	if w.Events == 0 { // the ids are complete
		for _, ids := range w.IDs {
			w.Events += len(ids)
		}
	}
	return w, true
}

// Event is one event that came over the bus.
type Event struct {
	Type       string          `json:"type"` // "event"
	Time       string          `json:"time"` // when it was received
	EventID    string          `json:"eventId"`
	Name       string          `json:"name"`
	DeliveryID string          `json:"deliveryId"`
	Forward    *forwarded      `json:"forward,omitempty"`
	Event      json.RawMessage `json:"event"` // in EventBridge's envelope
}

// readEvent reads an event in the envelope of EventBridge. id is EventBridge's.
func readEvent(body string) (e Event, id string, err error) {
	var envelope struct {
		ID         string
		DetailType string `json:"detail-type"`
		Resources  []string
		Detail     struct{ EventID string }
	}
	if err := json.Unmarshal([]byte(body), &envelope); err != nil {
		return e, "", fmt.Errorf("an event cannot be read: %w", err)
	}
	e = Event{Type: "event", Time: cli.Stamp(time.Now()), EventID: envelope.Detail.EventID, Name: envelope.DetailType,
		Event: json.RawMessage(body)}
	if len(envelope.Resources) > 0 {
		e.DeliveryID = envelope.Resources[0]
	}
	return e, envelope.ID, nil
}

// String returns the text for a person: the webhook, and its events that are not published.
func (w Webhook) String() string {
	words := []string{w.Time, strconv.Itoa(w.Status), cli.Plain(w.Outcome)}
	if w.DeliveryID != "" {
		words = append(words, cli.Counted(w.Events, "event", "events"), "delivery "+cli.Plain(w.DeliveryID))
	}
	if w.Cause != "" {
		words = append(words, "cause: "+cli.Plain(w.Cause))
	}
	if w.Parked != "" {
		words = append(words, "parked as "+cli.Plain(w.Parked))
	}
	lines := []string{strings.Join(append(words, w.times()), "  ")}
	for _, fate := range slices.Sorted(maps.Keys(w.IDs)) {
		for _, id := range w.IDs[fate] {
			if fate != string(intake.Published) {
				lines = append(lines, cli.Plain(id)+"  "+cli.Plain(cmp.Or(Fates[fate], fate)))
			}
		}
	}
	if w.IDsLeftOut > 0 {
		lines = append(lines, fmt.Sprintf("and %d more events, whose ids are not logged", w.IDsLeftOut))
	}
	return strings.Join(lines, "\n    ")
}

// String returns the text for a person.
func (e Event) String() string {
	words := []string{e.Time, "event " + cli.Plain(e.EventID), cli.Plain(e.Name), "delivery " + cli.Plain(e.DeliveryID)}
	if e.Forward != nil {
		words = append(words, e.Forward.String())
	}
	return strings.Join(words, "  ")
}

// Fates are the texts for a person about the events of a webhook, by the names in the log.
var Fates = map[string]string{
	string(intake.Published):     "published",
	string(intake.Unrecorded):    "not recorded",
	string(intake.Conflicting):   "parked, in conflict with a recorded event",
	string(intake.Unpublishable): "parked, EventBridge rejects it",
	string(intake.Pending):       "pending, left to redrive",
	string(intake.Duplicate):     "duplicate, not published again",
}

// times returns the milliseconds of the steps that took at least one.
func (w Webhook) times() string {
	var parts []string
	total := 0.0
	for _, step := range []string{"authenticate", "decode", "record", "publish", "mark"} {
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
