package main

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"uuid"

	"payhook.example/shared/bus"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// serve receives webhooks, serves the page, and invokes the functions that have a schedule at the beginning and at each
// tick, until ctx ends.
func (p *process) serve(ctx context.Context, listener net.Listener, ticks <-chan time.Time) error {
	base := "http://" + listener.Addr().String()
	hook := base + webhookPath
	fmt.Fprintf(p.screen.out, "\npage         %s/\nwebhook URL  %s\nkeys         %s\ntokens       %s\n", base, hook,
		p.stack.conf.BaseURL, p.stack.conf.AuthURL)
	if p.service.baseURL == "" {
		line, until, err := p.curl(ctx, hook)
		if err != nil {
			return err
		}
		fmt.Fprintf(p.screen.out, "\nThis sends a new event, as the first button of the page does:\n"+
			"  curl -d '{\"send\": {}}' %s\n\nThis webhook is signed, and accepted %s:\n  %s\n",
			base+paymenttest.ControlPath, until, line)
		p.service.simulated.SetWebhookURL(hook)
	}
	fmt.Fprintln(p.screen.out, "\nRedrive and token run every minute. Ctrl-C ends everything.")
	server := &http.Server{Handler: p.handler(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	forwarding, stop := context.WithCancel(ctx)
	var forwarder sync.WaitGroup
	forwarder.Go(func() { p.forwardAll(forwarding) })
	defer func() {
		stop()
		if forwarder.Wait(); len(p.screen.forwards) > 0 {
			fmt.Fprintf(p.screen.out, "%d events that waited were not forwarded\n", len(p.screen.forwards))
		}
	}()
	for {
		p.scheduled(ctx)
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			// A webhook that has arrived is answered. Nothing else is waited for, such as the rest of a request.
			answered := make(chan struct{})
			go func() { p.answering.Lock(); close(answered) }()
			select {
			case <-answered:
			case <-time.After(p.stack.conf.WebhookTimeout):
			}
			return server.Close()
		case <-ticks:
		}
	}
}

// curl returns a line for a shell that posts a webhook, which is signed now, and until when that is accepted.
func (p *process) curl(ctx context.Context, hook string) (line, until string, err error) {
	event := fmt.Appendf(nil, `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"%s","eventTimestamp":"%s"}`,
		uuid.New(), time.Now().UTC().Format(time.RFC3339))
	r, err := p.service.simulated.Sender().Request(ctx, paymenttest.Webhook{URL: hook,
		Payload: paymenttest.RawDelivery(uuid.New().String(), event)})
	if err != nil {
		return "", "", err
	}
	body, err := io.ReadAll(r.Body)
	if until = "at any time"; p.stack.conf.TimestampTolerance != settings.Off {
		until = "until " + time.Now().Add(p.stack.conf.TimestampTolerance).Format(time.TimeOnly)
	}
	line = "curl"
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		line += " -H " + quoted(name+": "+r.Header.Get(name))
	}
	return line + " -d " + quoted(string(body)) + " " + quoted(r.URL.String()), until, err
}

// quoted returns a text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// receive answers a webhook as a function URL does.
func (p *process) receive(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, paymenttest.InvocationBytes)
	sender, _, _ := net.SplitHostPort(r.RemoteAddr)
	event, err := newEvent(r, sender)
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	p.answering.RLock()
	defer p.answering.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	did, err := p.stack.invoke(context.WithoutCancel(r.Context()), "webhook", event)
	if err != nil {
		did.response.StatusCode = http.StatusBadGateway
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(did.response.Body))) // without it, Flush does not end the answer
	for name, value := range did.response.Headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(did.response.StatusCode)
	_, _ = io.WriteString(w, did.response.Body)
	p.screen.say("webhook", fmt.Sprint(did.response.StatusCode, " ", did.line.Outcome, "  ", did.line.DeliveryID, "  ",
		did.line.Cause), did)
	_ = http.NewResponseController(w).Flush()
}

// scheduled invokes the functions that have a schedule. A run that did nothing is not shown.
func (p *process) scheduled(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range []string{"redrive", "token"} {
		if p.stack.functions[name].invoke == nil || ctx.Err() != nil {
			continue
		}
		did, _ := p.stack.invoke(ctx, name, []byte("{}")) // an error is the cause
		if len(did.published) > 0 || did.line.Cause != "" || did.line.Outcome != "" && did.line.Outcome != "fresh" {
			p.screen.say(name, did.line.Outcome+"  "+did.line.Cause, did)
		}
	}
}

// say writes a line about an invocation, and one for each event that it published, and for others that the log names.
// It shows them on the page, and forwards what was published. The caller holds the lock of the process.
func (s *screen) say(about, text string, did result) {
	e := newEntry(about, did)
	if did.last == nil {
		e.Text = text
	}
	s.feed.add(e)
	fmt.Fprintf(s.out, "%s  %-7s  %s\n", e.Time, about, strings.TrimSpace(text))
	for _, event := range e.Events {
		fmt.Fprintf(s.out, "%s  event    %s  %s\n", e.Time, event.Name, event.ID)
	}
	delete(did.line.IDs, "published") // they have a line
	for _, state := range slices.Sorted(maps.Keys(did.line.IDs)) {
		for _, id := range did.line.IDs[state] {
			fmt.Fprintf(s.out, "%s  event    %s  %s\n", e.Time, state, id)
		}
	}
	dropped := 0
	for i, event := range did.published {
		select {
		case s.forwards <- waiting{event, e.Events[i].ID}:
		default:
			dropped++
		}
	}
	if dropped > 0 && s.forwards != nil {
		s.say("forward", fmt.Sprintf("not forwarded: %d, since %d others wait", dropped, maxWaiting), result{})
	}
}

// waiting is an event that is not forwarded yet, and its id.
type waiting struct {
	entry bus.Entry
	id    string
}

// maxWaiting is how many events wait while one is forwarded. Those that come then are not forwarded.
const maxWaiting = 100

// forwardAll forwards events, one after another, until ctx ends.
func (p *process) forwardAll(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case w := <-p.screen.forwards:
			text := forward(ctx, p.screen.forwardTo, w.entry) + "  " + w.id
			p.mu.Lock()
			p.screen.say("forward", text, result{})
			p.mu.Unlock()
		}
	}
}

// forwards posts events to a program on this machine, once each.
var forwards = &http.Client{Timeout: 10 * time.Second,
	// A redirect could lead to another machine.
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// checkForward returns an error if a URL is not one of this machine: events can be those of a real service.
func checkForward(to string) error {
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("must be a URL such as http://127.0.0.1:8080/events")
	}
	address, err := netip.ParseAddr(u.Hostname())
	if u.Hostname() != "localhost" && (err != nil || !address.IsLoopback()) {
		return errors.New("must be a URL of this machine, such as http://127.0.0.1:8080/events")
	}
	return nil
}

// forward posts an event in the envelope in which EventBridge hands it to a target, and returns what was answered.
func forward(ctx context.Context, to string, e bus.Entry) string {
	// AWS, "Event structure" in the EventBridge user guide.
	envelope, err := json.Marshal(map[string]any{"version": "0", "id": uuid.New().String(), "detail-type": e.DetailType,
		"source": e.Source, "account": "000000000000", "time": time.Now().UTC().Format(time.RFC3339),
		"region": "us-east-1", "resources": []string{e.DeliveryID}, "detail": jsontext.Value(e.Detail)})
	if err != nil {
		return err.Error()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(envelope))
	if err != nil {
		return err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := forwards.Do(r)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<20)) // so that the connection is used again
	return answer.Status
}
