// Package paymenttest simulates the payment service for tests, as net/http/httptest does
// for web servers. It serves public keys and tokens (sections 4.1 and 4.2 of the payment
// service's interface), signs and sends webhooks (sections 2.2, 4.3 and 5.4), protects an
// API (section 4.4), and injects faults on request.
//
// It guarantees that it follows the interface unless a fault is set. It generates its
// keys at the start unless one is given, its signatures are those of package signature,
// and its token endpoint rejects every deviation from section 4.1. It listens only on
// 127.0.0.1, and answers 403 to web pages of other origins.
//
//	service := paymenttest.NewServer(paymenttest.Options{})
//	defer service.Close()
//	payload := paymenttest.Delivery(paymenttest.Event())
//	answer, err := service.Send(ctx, paymenttest.Webhook{URL: hook, Payload: payload})
//
// Other processes use the control endpoint of a server with a line of curl or a [Remote].
// [State.Handler] is the service in a second form, for a Lambda function.
package paymenttest

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"payhook.example/shared/signature"
)

// Options are the options of a [Server]. The comment of each field ends with its default,
// which replaces the zero value.
type Options struct {
	Key Key // the first signing key; a generated one

	// Scheme defines the locations of the proof of a webhook; DefaultScheme.
	Scheme signature.Scheme
	// Identity has the client certificates for webhooks to https URLs; none.
	Identity *Identity

	TokenManagerID string // the required access_token_manager_id; manager-1
	// FormEncoded means that client id and secret are form-encoded for HTTP Basic (RFC
	// 6749, section 2.3.1); false means that they are sent unchanged.
	FormEncoded bool
	// KeysBearer means that key lookup needs a valid token. The interface does not specify
	// this.
	KeysBearer bool
}

// DefaultTokenLifetime is the lifetime of tokens, unless the state says another.
const DefaultTokenLifetime = time.Hour

// DefaultScheme returns the default scheme of webhooks: the headers X-SVC-Signature,
// X-SVC-Timestamp and X-SVC-Key-Id.
func DefaultScheme() signature.Scheme {
	timestamp, _ := signature.ParseLocation("header:X-SVC-Timestamp")
	keyID, _ := signature.ParseKeyIDLocation("header:X-SVC-Key-Id")
	return signature.Scheme{SignatureHeader: "X-SVC-Signature", Timestamp: timestamp, KeyID: keyID}
}

// Endpoint is an endpoint of the service.
type Endpoint string

// The endpoints. Each can have its own fault.
const (
	Keys  Endpoint = "keys"  // GET /v1/keys/{keyId}
	Token Endpoint = "token" // POST /as/token.oauth2
	API   Endpoint = "api"   // everything under ProtectedPath
)

// ProtectedPath is the path of the protected API, which requires a valid token and
// Content-Type: application/json (section 4.4).
const ProtectedPath = "/v1/protected/"

const (
	keysPath  = "/v1/keys/"
	tokenPath = "/as/token.oauth2"
)

// Request is a request that the service received.
type Request struct {
	Method string
	Path   string
	Query  string
	Header http.Header
	Body   []byte // the first 64 KiB
	Status int    // of the answer; 0 if the connection was cut
}

// Server is a payment service. It is safe for concurrent use.
type Server struct {
	// URL is the base URL of keys, tokens and the API: baseUrl and authUrl.
	URL string

	opts   Options
	sender Sender
	server *http.Server
	closed chan struct{}

	mu     sync.Mutex
	key    Key // the signing key
	state  State
	latest map[Endpoint][]Request

	webhookURL string
	last       []byte // the last delivery of an Order without a flaw
}

// NewServer starts a payment service on a free port of 127.0.0.1. It panics if it cannot
// listen, like httptest.NewServer. The caller must close it.
func NewServer(opts Options) *Server {
	s := newServer(opts, NewState(opts))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("paymenttest: %v", err))
	}
	s.URL = "http://" + listener.Addr().String()
	if opts.Key.Private == nil {
		opts.Key = NewKey(2048)
	}
	s.use(opts.Key)
	mux := http.NewServeMux()
	mux.Handle("/", s.handler())
	mux.Handle("POST "+ControlPath, s.Control())
	s.server = &http.Server{Handler: NotForPages(mux), ReadHeaderTimeout: 10 * time.Second}
	go s.server.Serve(listener)
	return s
}

// newServer returns a service that does not listen and has no signing key.
func newServer(opts Options, state State) *Server {
	if opts.Scheme == (signature.Scheme{}) {
		opts.Scheme = DefaultScheme()
	}
	return &Server{
		opts: opts, state: state, closed: make(chan struct{}), latest: map[Endpoint][]Request{},
		sender: Sender{Scheme: opts.Scheme, Client: sharedClient, Identity: opts.Identity},
	}
}

// Close stops the service and closes all open connections.
func (s *Server) Close() {
	close(s.closed)
	s.server.Close()
}

// Requests returns the latest 1,000 requests to an endpoint, oldest first.
func (s *Server) Requests(e Endpoint) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.latest[e])
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(keysPath, s.endpoint(Keys, s.answerKey))
	mux.HandleFunc(tokenPath, s.endpoint(Token, s.answerToken))
	mux.HandleFunc(ProtectedPath, s.endpoint(API, s.answerAPI))
	return mux
}

// answer is an answer of the service, in JSON.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// endpoint serves one endpoint. It records every request and applies the fault, if one is
// set.
func (s *Server) endpoint(e Endpoint, right func(State, *http.Request, []byte) answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
		state := s.snapshot()
		fault, delay, status, _ := state.Faults[e].parse()
		if fault == HangUp || fault == Slow && !s.wait(r, delay) {
			s.record(e, r, body, 0)
			panic(http.ErrAbortHandler)
		}
		var a answer
		switch fault {
		case Down:
			a = answer{status: http.StatusServiceUnavailable, body: []byte(`{"error":"unavailable"}`)}
		case Status:
			a = answer{status: status, body: []byte(`{}`)}
		case Garbage:
			a = answer{status: http.StatusOK, body: []byte(`{"kty":"RSA","access_token":`)}
		default:
			a = right(state, r, body)
		}
		s.record(e, r, body, a.status)
		maps.Copy(w.Header(), a.header)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		w.Write(a.body)
	}
}

func (s *Server) record(e Endpoint, r *http.Request, body []byte, status int) {
	const kept = 1000
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := append(s.latest[e], Request{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Clone(), body, status})
	s.latest[e] = latest[max(0, len(latest)-kept):]
}
