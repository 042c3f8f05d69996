package console

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"uuid"

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

// kept is how many messages a page can be given that connects, or connects again.
const kept = 5000

// message is one message of the stream.
type message struct {
	number int // from 1
	kind   string
	data   []byte // one line of JSON
}

// feed keeps the last messages and wakes those who wait for the next. It is safe for
// concurrent use.
type feed struct {
	run string // of this program: numbers of another run mean nothing

	mu       sync.Mutex
	messages []message
	last     int // number
	added    chan struct{}
}

func newFeed() *feed { return &feed{run: uuid.New().String()[:8], added: make(chan struct{})} }

// add adds a message.
func (f *feed) add(kind string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	if len(f.messages) == kept {
		f.messages = f.messages[1:]
	}
	f.messages = append(f.messages, message{f.last, kind, text})
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

// note adds a remark of what reads the deliveries.
func (f *feed) note(at time.Time, text string) {
	_ = f.add(aNote, map[string]string{"time": cli.Stamp(at), "text": text}) // texts always have a JSON form
}

// after returns the messages that are kept after a number, and a channel that is closed
// when there is another.
func (f *feed) after(number int) ([]message, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.last - len(f.messages) + 1
	from := min(max(number+1-first, 0), len(f.messages))
	return f.messages[from:len(f.messages):len(f.messages)], f.added
}

// position is the number of the last message that a page has, by its id: 0 if it has none
// of this run.
func (f *feed) position(id string) int {
	run, text, _ := strings.Cut(id, "-")
	number, err := strconv.Atoi(text)
	if run != f.run || err != nil || number < 0 {
		return 0
	}
	return number
}

// write writes a message in the format of server-sent events:
// https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
func (f *feed) write(out io.Writer, m message) error {
	_, err := fmt.Fprintf(out, "id: %s-%d\nevent: %s\ndata: %s\n\n", f.run, m.number, m.kind, m.data)
	return err
}
