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
	aWebhook  = "webhook"
	anEvent   = "event"
	aNote     = "note"     // about the reading
	aCommand  = "command"  // that the page ran, with what it wrote
	someState = "services" // which of them are stopped
)

// kept is how many messages a page gets that connects.
const kept = 5000

// message is one message of the stream.
type message struct {
	number int // from 1
	kind   string
	data   []byte // one line of JSON
}

// feed keeps the last messages, always including the last state, and wakes those who wait
// for the next. It is safe for concurrent use.
type feed struct {
	mu       sync.Mutex
	state    []message // the last one of its kind, or none
	messages []message // of the other kinds
	last     int       // number
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
	f.last++
	m := message{f.last, kind, text}
	if kind == someState {
		f.state = []message{m}
	} else {
		f.messages = append(f.messages[max(0, len(f.messages)+1-kept):], m)
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

// after returns the messages after a number, the state last, the number of the last one,
// and a channel that is closed when there is another.
func (f *feed) after(number int) (after []message, last int, added <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range slices.Concat(f.messages, f.state) {
		if m.number > number {
			after = append(after, m)
		}
	}
	return after, f.last, f.added
}
