package listen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	smithytime "github.com/aws/smithy-go/time"

	"payhook.example/infra/cmd/payhook/cli"
)

// forwarder posts events to a program.
type forwarder struct {
	url    string
	client *http.Client
}

// forwarded is the last answer of a program. Status is 0 if there was none.
type forwarded struct {
	Status   int    `json:"status,omitzero"`
	Error    string `json:"error,omitempty"`
	Attempts int    `json:"attempts"`
}

// newForwarder returns a forwarder to a URL. Unless anywhere is set, its host must be
// localhost or a loopback address.
func newForwarder(to string, anywhere bool) (*forwarder, error) {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, cli.Usage("--forward %q: must be a URL such as http://127.0.0.1:8080/events", to)
	}
	if addr, err := netip.ParseAddr(u.Hostname()); !anywhere && u.Hostname() != "localhost" &&
		(err != nil || !addr.IsLoopback()) {
		return nil, cli.Usage("--forward %s: it is not on this computer; --forward-anywhere allows it: payment data "+
			"then leaves the computer", to)
	}
	// The default transport uses no proxy for this computer.
	return &forwarder{to, &http.Client{Timeout: 10 * time.Second,
		// A redirect could lead anywhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// post posts an event, up to four times until it is answered with 2xx.
func (f *forwarder) post(ctx context.Context, event []byte) *forwarded {
	for attempt, pause := 1, time.Second; ; attempt, pause = attempt+1, 2*pause {
		last := f.try(ctx, event)
		last.Attempts = attempt
		if last.Status/100 == 2 || attempt == 4 || smithytime.SleepWithContext(ctx, pause) != nil {
			return &last
		}
	}
}

func (f *forwarder) try(ctx context.Context, event []byte) forwarded {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(event))
	if err != nil {
		return forwarded{Error: err.Error()}
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := f.client.Do(r)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // without the URL
		}
		return forwarded{Error: err.Error()}
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20)) // so that the connection is used again
	return forwarded{Status: answer.StatusCode}
}

// String returns the text for a person.
func (f *forwarded) String() string {
	text := fmt.Sprintf("forwarded %d", f.Status)
	if f.Status == 0 {
		text = "not forwarded: " + cli.Plain(f.Error)
	}
	if f.Attempts > 1 {
		text += fmt.Sprintf(" (%d attempts)", f.Attempts)
	}
	return text
}
