package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/infra/cmd/payhook/listen"
)

// The kinds of messages, which are the names of the events of the stream.
const (
	aWebhook = "webhook"
	anEvent  = "event"
	aNote    = "note"    // about the reading
	aCommand = "command" // that the page ran, with what it wrote
	aClear   = "clear"   // forgets everything before
)

// kept is how many messages a page gets that connects.
const kept = 1000

// message is one message of the stream.
type message struct {
	kind    string
	data    []byte // one line of JSON
	eventID string
	content []byte // of the event, which the stream does not have
}

// feed keeps the last messages, and wakes those who wait for the next. It is safe for
// concurrent use.
type feed struct {
	mu       sync.Mutex
	messages []message
	dropped  int           // messages before these
	added    chan struct{} // closed when there is another
}

func newFeed() *feed { return &feed{added: make(chan struct{})} }

// add adds a message with data.
func (f *feed) add(m message, data any) (err error) {
	if m.data, err = json.Marshal(data); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.kind == aClear {
		f.dropped += len(f.messages)
		f.messages = nil
	}
	f.messages = append(f.messages, m)
	if more := len(f.messages) - kept; more > 0 {
		f.dropped += more
		f.messages = slices.Delete(f.messages, 0, more)
	}
	close(f.added)
	f.added = make(chan struct{})
	return nil
}

// show adds what arrived. The stream does not have what is in an event.
func (f *feed) show(arrived fmt.Stringer) error {
	e, ok := arrived.(listen.Event)
	if !ok {
		return f.add(message{kind: aWebhook}, arrived)
	}
	m := message{kind: anEvent, eventID: e.EventID, content: e.Event}
	e.Event = nil
	return f.add(m, e)
}

// content returns an event that arrived, in EventBridge's envelope; nil if it is not kept.
func (f *feed) content(eventID string) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range slices.Backward(f.messages) {
		if m.kind == anEvent && m.eventID == eventID {
			return m.content
		}
	}
	return nil
}

// note adds a remark about the reading.
func (f *feed) note(text string) {
	// Texts always have a JSON form.
	_ = f.add(message{kind: aNote}, map[string]string{"time": cli.Stamp(time.Now()), "text": text})
}

// after returns the messages after the first n, how many there are then, and a channel that
// is closed when there is another.
func (f *feed) after(n int) (after []message, all int, added <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.messages[max(0, n-f.dropped):]), f.dropped + len(f.messages), f.added
}
