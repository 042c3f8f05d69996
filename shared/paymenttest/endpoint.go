package paymenttest

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"time"
)

// Endpoint is an endpoint of the service.
type Endpoint string

// The endpoints. Each can have its own fault.
const (
	Keys  Endpoint = "keys"  // GET /v1/keys/{keyId}
	Token Endpoint = "token" // POST /as/token.oauth2
	API   Endpoint = "api"   // everything under ProtectedPath
)

var endpoints = []Endpoint{Keys, Token, API}

// ProtectedPath is the path of the protected API, which requires a valid token and
// Content-Type: application/json (section 4.4).
const ProtectedPath = "/v1/protected/"

const keysPath = "/v1/keys/"

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(keysPath, s.endpoint(Keys, State.answerKey))
	mux.HandleFunc("/as/token.oauth2", s.endpoint(Token, State.answerToken))
	mux.HandleFunc(ProtectedPath, s.endpoint(API, State.answerAPI))
	return mux
}

// answer is an answer of the service, in JSON.
type answer struct {
	status int
	header http.Header
	body   string
}

// endpoint serves one endpoint. It records every request and applies the fault, if one is set.
func (s *Server) endpoint(e Endpoint, right func(State, *http.Request, []byte) answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
		state := s.snapshot()
		fault := state.Faults[e]
		if fault == Slow {
			select {
			case <-time.After(10 * time.Second):
			case <-r.Context().Done(): // the client has closed the connection, or the service stops
			}
		}
		a, wrong := faulty[fault]
		if !wrong {
			a = right(state, r, body)
		}
		s.record(e, Request{r.Header, a.status})
		if a.status == 0 {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), a.header)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		io.WriteString(w, a.body)
	}
}

// Fault is a fault of an endpoint. "" means none.
type Fault string

// The faults.
const (
	Slow    Fault = "slow"    // the correct answer after 10 seconds
	Down    Fault = "down"    // 503
	HangUp  Fault = "hang-up" // the connection is cut without an answer
	Status  Fault = "status"  // 500, with an empty object
	Garbage Fault = "garbage" // 200 with the content type of JSON, but an invalid body
)

// Faults returns all faults.
func Faults() []Fault { return []Fault{Slow, Down, HangUp, Status, Garbage} }

// faulty are the answers of an endpoint with a fault. Without a status, there is none.
var faulty = map[Fault]answer{
	Down:    {status: http.StatusServiceUnavailable, body: `{"error":"unavailable"}`},
	HangUp:  {},
	Status:  {status: http.StatusInternalServerError, body: `{}`},
	Garbage: {status: http.StatusOK, body: `{"kty":"RSA","access_token":`},
}

// answerKey answers a key lookup (section 4.2).
func (s State) answerKey(r *http.Request, _ []byte) answer {
	if r.Method != http.MethodGet {
		return answer{status: http.StatusMethodNotAllowed, header: http.Header{"Allow": {http.MethodGet}}}
	}
	if s.KeysBearer && !s.bearer(r) {
		return unauthorized
	}
	jwk, ok := s.Keys[strings.TrimPrefix(r.URL.Path, keysPath)]
	if !ok {
		return answer{status: http.StatusNotFound, body: `{"error":"no such key"}`}
	}
	return answer{status: http.StatusOK, body: string(jwk)}
}

// answerAPI answers a request to the protected API (section 4.4).
func (s State) answerAPI(r *http.Request, _ []byte) answer {
	if !s.bearer(r) {
		return unauthorized
	}
	if values := r.Header.Values("Content-Type"); len(values) != 1 || values[0] != "application/json" {
		return answer{status: http.StatusUnsupportedMediaType,
			body: `{"error":"Content-Type must be application/json"}`}
	}
	return answer{status: http.StatusOK, body: `{"ok":true}`}
}

// bearer reports whether r has exactly one token, and it is valid.
func (s State) bearer(r *http.Request) bool {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return false
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	return ok && time.Now().Before(s.expiry(token))
}

var unauthorized = answer{
	status: http.StatusUnauthorized,
	header: http.Header{"Www-Authenticate": {`Bearer error="invalid_token"`}},
	body:   `{"error":"invalid_token"}`,
}
