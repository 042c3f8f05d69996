package console

import (
	"encoding/json"
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
	aClear   = "clear"   // of everything before
)

// kept is how many messages a page gets that connects, and keptBytes limits their size.
const (
	kept      = 5000
	keptBytes = 64 << 20
)

// message is one message of the stream.
type message struct {
	kind    string
	data    []byte // one line of JSON
	eventID string
	content []byte // of the event, which the stream does not have
}

// intent is a time in which a status is what somebody asked for.
type intent struct {
	status   int
	from, to time.Time // to: zero while it lasts
}

// feed keeps the last messages, and wakes those who wait for the next. It is safe for
// concurrent use.
type feed struct {
	mu       sync.Mutex
	messages []message
	dropped  int // messages before these
	size     int // of their data and contents in bytes
	intents  []*intent
	added    chan struct{}
}

func newFeed() *feed { return &feed{added: make(chan struct{})} }

// add adds a message.
func (f *feed) add(kind string, data any) error { return f.addMessage(message{kind: kind}, data) }

func (f *feed) addMessage(m message, data any) (err error) {
	if m.data, err = json.Marshal(data); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages, f.size = append(f.messages, m), f.size+m.size()
	for len(f.messages) > kept || f.size > keptBytes {
		f.drop(1)
	}
	close(f.added)
	f.added = make(chan struct{})
	return nil
}

func (m message) size() int { return len(m.data) + len(m.content) }

// drop removes the first n messages.
func (f *feed) drop(n int) {
	for _, m := range f.messages[:n] {
		f.size -= m.size()
	}
	f.messages = f.messages[n:]
	f.dropped += n
}

// clear removes all messages, and tells the pages.
func (f *feed) clear() error {
	f.mu.Lock()
	f.drop(len(f.messages))
	f.mu.Unlock()
	return f.add(aClear, struct{}{})
}

// Webhook adds a webhook.
func (f *feed) Webhook(w listen.Webhook) error {
	return f.add(aWebhook, struct {
		listen.Webhook
		Intended bool `json:"intended"` // the status is what somebody asked for
	}{w, f.intended(w)})
}

// Event adds an event that arrived. The stream does not have what is in it.
func (f *feed) Event(e listen.Event) error {
	m := message{kind: anEvent, eventID: e.EventID, content: e.Event}
	e.Event = nil
	return f.addMessage(m, e)
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

// intend begins a time in which webhooks with a status are intended, and returns what ends it.
func (f *feed) intend(status int) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := &intent{status: status, from: time.Now()}
	f.intents = append(f.intents, i)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		i.to = time.Now()
	}
}

func (f *feed) intended(w listen.Webhook) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at, _ := time.Parse(time.RFC3339, w.Time)
	return slices.ContainsFunc(f.intents, func(i *intent) bool {
		from := i.from.Truncate(time.Millisecond) // the log has milliseconds
		return w.Status == i.status && !at.Before(from) && (i.to.IsZero() || !at.After(i.to))
	})
}

// note adds a remark about the reading.
func (f *feed) note(text string) {
	_ = f.add(aNote, map[string]string{"time": cli.Stamp(time.Now()), "text": text}) // texts always have a JSON form
}

// after returns the messages after the first n, how many there are then, and a channel that
// is closed when there is another.
func (f *feed) after(n int) (after []message, all int, added <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.messages[max(0, n-f.dropped):]), f.dropped + len(f.messages), f.added
}
