package console

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"

	"payhook.example/infra/cmd/payhook/listen"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
)

//go:embed page
var files embed.FS

var page = template.Must(template.ParseFS(files, "page/index.html"))

// maxAction is the largest request in bytes.
const maxAction = 4 << 10

// policy lets the page load what this server serves, and nothing else. Scripts cannot
// make elements out of text:
// https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Content-Security-Policy/require-trusted-types-for
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// server serves the page, the stream and the actions.
type server struct {
	actor     *actor
	name      string   // of the deployment
	simulated bool     // webhooks can be sent
	hosts     []string // that a request may name
}

// newServer returns a server for a listener.
func newServer(l net.Listener, a *actor, name string, simulated bool) *server {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return &server{a, name, simulated, []string{"127.0.0.1:" + port, "localhost:" + port}}
}

// handler returns what serves requests. Only POST has effects. It rejects requests for
// another host, which a name that resolves to 127.0.0.1 would lead to (DNS rebinding), and
// requests with effects from another origin.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.index)
	content, err := fs.Sub(files, "page")
	if err != nil {
		panic(err) // the folder is embedded
	}
	for _, path := range []string{"console.js", "console.css", "icon.svg"} {
		mux.Handle("GET /"+path, http.FileServerFS(content))
	}
	mux.HandleFunc("GET /stream", s.stream)
	mux.HandleFunc("GET /state", s.state)
	mux.HandleFunc("GET /services", s.services)
	mux.HandleFunc("GET /event/{id}", s.event)
	mux.HandleFunc("POST /do", s.do)
	sameOrigin := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !slices.Contains(s.hosts, strings.ToLower(r.Host)) {
			http.Error(w, "this server is 127.0.0.1 only", http.StatusMisdirectedRequest)
			return
		}
		sameOrigin.ServeHTTP(w, r)
	})
}

// index serves the page.
func (s *server) index(w http.ResponseWriter, _ *http.Request) {
	data, err := json.Marshal(map[string]any{"fates": listen.Fates})
	if err != nil {
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, struct {
		Name, Data string
		Simulated  bool
		Flaws      []paymenttest.Flaw
		MaxEvents  int
		Sample     payment.Event
	}{s.name, string(data), s.simulated, paymenttest.Flaws(), maxEvents, paymenttest.Event()})
}

// state serves what payhook status says.
func (s *server) state(w http.ResponseWriter, r *http.Request) {
	text, _ := s.actor.call(r.Context(), []string{"status", "--local", "--json"})
	w.Header().Set("Content-Type", "application/json") // or an error as text
	_, _ = io.WriteString(w, text)
}

// services serves the fault of each service that has one.
func (s *server) services(w http.ResponseWriter, r *http.Request) {
	faults, err := s.actor.faults(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(faults)
}

// event serves what is known of an event: what payhook event says, and if it arrived, the event
// with its digits and the rules that match it.
func (s *server) event(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	var known struct {
		State   string   `json:"state"`
		Content string   `json:"content,omitempty"`
		Rules   []string `json:"rules"`
	}
	known.State, _ = s.actor.call(r.Context(), []string{"event", "--local", "--", id})
	if content := s.actor.feed.content(id); content != nil {
		var err error
		if known.Rules, err = s.actor.rulesFor(r.Context(), string(content)); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		var text bytes.Buffer
		if json.Indent(&text, content, "", "  ") == nil {
			known.Content = text.String()
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(known)
}

// do does what a button asks for. No page of another origin can send JSON without the
// consent of this server.
func (s *server) do(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "the content type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	var asked action
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAction)).Decode(&asked); err != nil {
		http.Error(w, "the request is not valid", http.StatusBadRequest)
		return
	}
	switch err := s.actor.do(r.Context(), asked); {
	case errors.Is(err, errAction):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// stream sends what the feed keeps and then each new message, until the page or the program
// ends, in the format of server-sent events:
// https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	last := 0
	for {
		messages, newest, added := s.actor.feed.after(last)
		for _, m := range messages {
			if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", m.kind, m.data); err != nil {
				return
			}
		}
		last = newest
		if control.Flush() != nil {
			return
		}
		select {
		case <-added:
		case <-r.Context().Done():
			return
		}
	}
}
