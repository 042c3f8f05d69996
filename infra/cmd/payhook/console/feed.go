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
)

// kept is how many messages a page gets that connects.
const kept = 5000

// message is one message of the stream.
type message struct {
	kind string
	data []byte // one line of JSON
}

// feed keeps the last messages, and wakes those who wait for the next. It is safe for
// concurrent use.
type feed struct {
	mu       sync.Mutex
	messages []message
	dropped  int // messages before these
	added    chan struct{}
}

func newFeed() *feed { return &feed{added: make(chan struct{})} }

// add adds a message.
func (f *feed) add(kind string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.messages = append(f.messages, message{kind, text}); len(f.messages) > kept {
		f.messages = f.messages[1:]
		f.dropped++
	}
	close(f.added)
	f.added = make(chan struct{})
	return nil
}

// Webhook adds a webhook.
func (f *feed) Webhook(w listen.Webhook) error { return f.add(aWebhook, w) }

// Event adds an event that arrived, without what is in it.
func (f *feed) Event(e listen.Event) error {
	e.Event = nil
	return f.add(anEvent, e)
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
