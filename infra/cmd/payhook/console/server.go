package console

import (
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"payhook.example/infra/cmd/payhook/listen"
	"payhook.example/shared/paymenttest"
)

//go:embed page
var files embed.FS

var page = template.Must(template.ParseFS(files, "page/index.html"))

// tokenHeader has the token of this run. A page of another origin can neither read the
// token nor send the header without the consent of this server.
const tokenHeader = "X-Payhook-Token"

const (
	// beat is how often a page is told that the connection is there.
	beat = 10 * time.Second
	// maxAction is the largest request in bytes.
	maxAction = 4 << 10
)

// policy lets the page load what this server serves, and nothing else. Scripts cannot
// make elements out of text:
// https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Content-Security-Policy/require-trusted-types-for
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// server serves the page, the stream and the actions.
type server struct {
	actor     *actor
	feed      *feed
	name      string // of the deployment
	simulated bool   // webhooks can be sent
	token     string
	hosts     []string // that a request may name
	beat      time.Duration
}

// newServer returns a server for a listener.
func newServer(l net.Listener, a *actor, name string, simulated bool) *server {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return &server{actor: a, feed: a.feed, name: name, simulated: simulated, token: rand.Text(), beat: beat,
		hosts: []string{"127.0.0.1:" + port, "localhost:" + port}}
}

// handler returns what serves requests. Only POST has effects.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.index)
	for path, contentType := range map[string]string{"console.js": "text/javascript; charset=utf-8",
		"console.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"} {
		mux.HandleFunc("GET /"+path, func(w http.ResponseWriter, _ *http.Request) {
			text, err := files.ReadFile("page/" + path)
			if err != nil {
				http.Error(w, "the file is missing", http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", contentType)
			_, _ = w.Write(text)
		})
	}
	mux.HandleFunc("GET /stream", s.stream)
	mux.HandleFunc("POST /do", s.do)
	return s.protect(mux)
}

// protect rejects what does not come from the page of this server: requests for another
// host, which a name that resolves to 127.0.0.1 would lead to (DNS rebinding), and
// requests with effects from another origin.
func (s *server) protect(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !s.serves(r.Host) {
			http.Error(w, "this server is 127.0.0.1 only", http.StatusMisdirectedRequest)
			return
		}
		// Streams of other sites would read payment data.
		if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
			if r.Method != http.MethodGet || r.URL.Path != "/" {
				http.Error(w, "another site must not ask for this", http.StatusForbidden)
				return
			}
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			if err := crossOrigin.Check(r); err != nil {
				http.Error(w, "another site must not ask for this", http.StatusForbidden)
				return
			}
			if subtle.ConstantTimeCompare([]byte(r.Header.Get(tokenHeader)), []byte(s.token)) != 1 {
				http.Error(w, "the token of this run is missing; load the page again", http.StatusForbidden)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// serves reports whether a request names this server.
func (s *server) serves(host string) bool {
	for _, own := range s.hosts {
		if strings.EqualFold(host, own) {
			return true
		}
	}
	return false
}

// index serves the page.
func (s *server) index(w http.ResponseWriter, _ *http.Request) {
	fates, err := json.Marshal(listen.Fates)
	if err != nil {
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, struct {
		Name, Token, Fates string
		Simulated          bool
		Flaws              []paymenttest.Flaw
		MaxEvents          int
	}{s.name, s.token, string(fates), s.simulated, paymenttest.Flaws(), maxEvents})
}

// do does what a button asks for.
func (s *server) do(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "the content type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAction))
	if err != nil {
		http.Error(w, "the request is too large", http.StatusRequestEntityTooLarge)
		return
	}
	var asked action
	if err := json.Unmarshal(body, &asked); err != nil {
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

// stream sends what the feed keeps after the last message that the page has, and then
// each new message, until the page or the program ends.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		id = r.URL.Query().Get("after") // of a page that has connected anew
	}
	position := s.feed.position(id)
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	// Without an id: it is the present state, not one of the messages.
	if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", someState, s.actor.state()); err != nil {
		return
	}
	ticker := time.NewTicker(s.beat)
	defer ticker.Stop()
	for {
		messages, added := s.feed.after(position)
		for _, m := range messages {
			if s.feed.write(w, m) != nil {
				return
			}
			position = m.number
		}
		if control.Flush() != nil {
			return
		}
		select {
		case <-added:
		case <-ticker.C:
			// It has no id, so that it does not change where the stream goes on.
			if _, err := io.WriteString(w, "event: beat\ndata: {}\n\n"); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
