package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"payhook.example/shared/ledger"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	tokens "payhook.example/shared/token"
	"payhook.example/shared/wire"
)

//go:embed page
var files embed.FS

const webhookPath = "/webhook"

// pageHeaders let the page load what this process serves, and nothing else. Scripts cannot make elements of text:
// https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Content-Security-Policy/require-trusted-types-for
var pageHeaders = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Content-Type-Options":       "nosniff",
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cache-Control":                "no-store",
}

// handler serves the webhook URL, to anybody; and the page with what its buttons call, to no page of another origin.
func (p *process) handler() http.Handler {
	page := http.NewServeMux()
	content, _ := fs.Sub(files, "page") // the folder is embedded
	page.Handle("GET /", http.FileServerFS(content))
	page.HandleFunc("GET /state", p.showState)
	page.HandleFunc("POST /redrive", p.invokeNow)
	page.HandleFunc("POST /token", p.invokeNow)
	page.HandleFunc("POST /bus", p.changeBus)
	if p.service.baseURL == "" {
		page.Handle("POST "+paymenttest.ControlPath, p.service.simulated.Control())
	}
	guarded := paymenttest.NotForPages(page)
	mux := http.NewServeMux()
	mux.HandleFunc(webhookPath, p.receive)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		for name, value := range pageHeaders {
			w.Header().Set(name, value)
		}
		guarded.ServeHTTP(w, r)
	})
	return mux
}

// invokeNow invokes redrive or token with an event, and answers what the function returns. Redrive finds what is
// pending, since no other function runs.
func (p *process) invokeNow(w http.ResponseWriter, r *http.Request) {
	function := r.URL.Path[1:]
	var event jsontext.Value
	err := json.UnmarshalRead(http.MaxBytesReader(w, r.Body, paymenttest.InvocationBytes), &event)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		event, err = p.prepare(r.Context(), function, event)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.stack.ledger.earlier = p.stack.leaseEnds()
	did, err := p.stack.invoke(context.WithoutCancel(r.Context()), function, event)
	p.stack.ledger.earlier = 0
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
	}
	p.screen.say(function, did.line.Outcome+"  "+did.line.Cause, did)
	_, _ = w.Write(did.answer)
}

// changeBus has the bus refuse every event, or take them again.
func (p *process) changeBus(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Down bool `json:"down"`
	}
	err := json.UnmarshalRead(http.MaxBytesReader(w, r.Body, paymenttest.InvocationBytes), &asked,
		json.RejectUnknownMembers(true))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.stack.busDown.Store(asked.Down)
}

// showState answers the state, with the entries after a number.
func (p *process) showState(w http.ResponseWriter, r *http.Request) {
	s := wire.PageState{Simulated: p.service.baseURL == "", Flaws: paymenttest.Flaws(), Faults: paymenttest.Faults(),
		BusDown: p.stack.busDown.Load(), Process: p.screen.feed.process}
	after, _ := strconv.Atoi(r.FormValue("after"))
	s.Entries, s.Last = p.screen.feed.after(after)
	if b, err := tokens.NewReader(&p.stack.token).Bearer(r.Context()); err == nil {
		s.TokenExpires = b.ExpiresAt
	}
	for id, i := range p.stack.ledger.Items() {
		switch i.State {
		case ledger.Pending:
			s.Pending++
		case ledger.Parked:
			s.Parked = append(s.Parked, id)
		}
	}
	service, err := p.service.simulated.Do(r.Context(), wire.ControlRequest{})
	var decided map[string]proof.Decision
	if err == nil {
		decided, err = proof.Decisions(r.Context(), &p.stack.parking)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.Failing = service.Faults
	for _, name := range p.stack.parking.Keys() {
		if _, err := proof.ParseName(name); err == nil && decided[name] == "" {
			s.Parked = append(s.Parked, name)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.MarshalWrite(w, s) // the page is gone
}

func newEntry(about string, did result) wire.PageEntry {
	e := wire.PageEntry{Time: time.Now().Format(time.TimeOnly), About: about, Status: did.response.StatusCode,
		Cause: did.line.Cause, Log: did.last}
	for _, event := range did.published {
		detail := jsontext.Value(bytes.Clone(event.Detail)) // which is forwarded
		var known struct {
			EventID string `json:"eventId"`
		}
		_ = json.Unmarshal(detail, &known) // it is JSON
		if len(detail) <= maxDetail {
			_ = detail.Indent()
		}
		if len(detail) > maxDetail {
			detail = append(detail[:maxDetail], "…"...)
		}
		e.Events = append(e.Events, wire.PageEvent{Name: event.DetailType, ID: known.EventID,
			Detail: strings.ToValidUTF8(string(detail), "")})
	}
	return e
}

// feed has the newest entries. It is safe for concurrent use.
type feed struct {
	process string // the id of the process

	mu      sync.Mutex
	entries []jsontext.Value
	size    int // bytes of the entries
	last    int // the number of the newest
}

// The limits of a feed, and so of what a page gets at first.
const (
	maxEntries = 300
	maxFeed    = 2 << 20 // bytes of its entries
	maxEvents  = 25      // of an entry
	maxDetail  = 16_000  // bytes of an event
)

func (f *feed) add(e wire.PageEntry) {
	e.More = max(0, len(e.Events)-maxEvents)
	e.Events = e.Events[:len(e.Events)-e.More]
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	e.Number = f.last
	text, err := json.Marshal(e, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err) // the line of the log is JSON
	}
	f.entries, f.size = append(f.entries, text), f.size+len(text)
	for len(f.entries) > maxEntries || f.size > maxFeed {
		f.size -= len(f.entries[0])
		f.entries = slices.Delete(f.entries, 0, 1)
	}
}

// after returns the entries after a number, and the number of the newest.
func (f *feed) after(number int) (entries []jsontext.Value, last int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	newer := min(max(0, f.last-number), len(f.entries))
	return slices.Clone(f.entries[len(f.entries)-newer:]), f.last
}
