package main

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"payhook.example/shared/paymenttest"
)

// serve receives webhooks, and invokes the functions that have a schedule at the beginning and at each tick, until
// ctx ends.
func (p *process) serve(ctx context.Context, listener net.Listener, ticks <-chan time.Time) error {
	url := "http://" + listener.Addr().String() + "/"
	fmt.Fprintf(p.out, "\nwebhook URL  %s\nkeys         %s\ntokens       %s\n", url, p.conf.BaseURL, p.conf.AuthURL)
	if p.baseURL == "" {
		fmt.Fprintf(p.out, "\nThis sends a new event; with \"kind\": \"payload\" in its braces, one that is not authentic:\n"+
			"  curl -d '{\"send\": {}}' %s\n", p.service.URL+paymenttest.ControlPath)
		p.service.SetWebhookURL(url)
	}
	fmt.Fprintln(p.out, "\nRedrive and token run every minute. Ctrl-C ends everything.")
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	for {
		p.scheduled(ctx)
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
			// A webhook that has arrived is answered.
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.conf.WebhookTimeout)
			defer cancel()
			return server.Shutdown(ending)
		case <-ticks:
		}
	}
}

// ServeHTTP answers a webhook as a function URL does.
func (p *process) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxEvent)
	source, _, _ := net.SplitHostPort(r.RemoteAddr)
	event, err := newEvent(r, source)
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	did, err := p.invoke(context.WithoutCancel(r.Context()), "webhook", event)
	if err != nil {
		did.response.StatusCode, did.Cause = http.StatusBadGateway, err.Error()
	}
	for name, value := range did.response.Headers {
		w.Header().Set(name, value)
	}
	w.WriteHeader(did.response.StatusCode)
	_, _ = io.WriteString(w, did.response.Body)
	p.say("webhook", fmt.Sprintf("%d %s  %s%s", did.response.StatusCode, did.Outcome, did.DeliveryID, did.Cause), did)
}

// scheduled invokes the functions that have a schedule. A run that did nothing is not shown.
func (p *process) scheduled(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range []string{"redrive", "token"} {
		if p.functions[name].invoke == nil || ctx.Err() != nil {
			continue
		}
		did, err := p.invoke(ctx, name, []byte("{}"))
		if err != nil {
			did.Cause = err.Error()
		}
		if len(did.published) > 0 || did.Cause != "" || did.Outcome != "" && did.Outcome != "fresh" {
			p.say(name, did.Outcome+"  "+did.Cause, did)
		}
	}
}

// say writes a line about an invocation, and one for each event that it published.
func (p *process) say(about, text string, did result) {
	now := time.Now().Format(time.TimeOnly)
	fmt.Fprintf(p.out, "%s  %-7s  %s\n", now, about, text)
	for _, e := range did.published {
		var detail struct {
			EventID string `json:"eventId"`
		}
		_ = json.Unmarshal(e.Detail, &detail) // it is JSON
		fmt.Fprintf(p.out, "%s  event    %s  %s\n", now, e.DetailType, detail.EventID)
	}
}
