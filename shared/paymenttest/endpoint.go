package paymenttest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/wire"
)

// The endpoints. Each can have its own fault.
const (
	Keys  wire.Endpoint = "keys"  // GET /v1/keys/{keyId}
	Token wire.Endpoint = "token" // POST /as/token.oauth2
	API   wire.Endpoint = "api"   // everything under ProtectedPath
)

var endpoints = []wire.Endpoint{Keys, Token, API}

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
func (s *Server) endpoint(e wire.Endpoint, right func(State, *http.Request, []byte) answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(io.LimitReader(r.Body, 64<<10))
		state := s.snapshot()
		fault := state.Faults[e]
		if fault == Slow {
			select {
			case <-time.After(10 * time.Second):
			case <-r.Context().Done(): // the client has closed the connection, or the service stops
				fault = HangUp
			}
		}
		a, wrong := faulty[fault]
		if !wrong {
			a = right(state, r, body)
		}
		s.record(e, ReceivedRequest{r.Header, a.status})
		if a.status == 0 {
			panic(http.ErrAbortHandler)
		}
		maps.Copy(w.Header(), a.header)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		io.WriteString(w, a.body)
	}
}

// The faults.
const (
	Slow    wire.Fault = "slow"    // the correct answer after 10 seconds
	Down    wire.Fault = "down"    // 503
	HangUp  wire.Fault = "hang-up" // the connection is cut without an answer
	Status  wire.Fault = "status"  // 500, with an empty object
	Garbage wire.Fault = "garbage" // 200 with the content type of JSON, but an invalid body
)

// Faults returns all faults.
func Faults() []wire.Fault { return []wire.Fault{Slow, Down, HangUp, Status, Garbage} }

// faulty are the answers of an endpoint with a fault. Without a status, there is none.
var faulty = map[wire.Fault]answer{
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

// Client returns the client id and secret that the token endpoint accepts.
func (s *Server) Client() (id, secret string) { return s.state.ClientID, s.state.ClientSecret }

// answerToken answers a token request (section 4.1). It issues a token only if the
// request meets that section in every respect.
func (s State) answerToken(r *http.Request, body []byte) answer {
	if r.Method != http.MethodPost {
		return answer{status: http.StatusMethodNotAllowed, header: http.Header{"Allow": {http.MethodPost}}}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || !slices.Equal(query["access_token_manager_id"], []string{s.TokenManagerID}) {
		return oauthError(http.StatusBadRequest, "invalid_request")
	}
	contentType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || contentType != "application/x-www-form-urlencoded" {
		return oauthError(http.StatusBadRequest, "invalid_request")
	}
	if !s.isClient(r) {
		a := oauthError(http.StatusUnauthorized, "invalid_client")
		a.header = http.Header{"Www-Authenticate": {`Basic realm="token"`}}
		return a
	}
	form, err := url.ParseQuery(string(body))
	switch grants := form["grant_type"]; {
	case err != nil || len(grants) != 1:
		return oauthError(http.StatusBadRequest, "invalid_request")
	case grants[0] != "client_credentials":
		return oauthError(http.StatusBadRequest, "unsupported_grant_type")
	}
	expiry := time.Now().Add(time.Duration(s.TokenSeconds) * time.Second)
	fields, _ := json.Marshal(map[string]any{"access_token": s.newToken(expiry), "token_type": "Bearer",
		"expires_in": s.TokenSeconds})
	return answer{status: http.StatusOK, header: http.Header{"Cache-Control": {"no-store"}}, body: string(fields)}
}

// isClient reports whether r has the client's id and secret, once.
func (s State) isClient(r *http.Request) bool {
	id, secret, ok := r.BasicAuth()
	if s.FormEncoded && ok {
		var badID, badSecret error
		id, badID = url.QueryUnescape(id)
		secret, badSecret = url.QueryUnescape(secret)
		ok = badID == nil && badSecret == nil
	}
	return ok && len(r.Header.Values("Authorization")) == 1 && id == s.ClientID && secret == s.ClientSecret
}

// newToken returns a token that expires at that time: the time, a random text and the HMAC of both.
func (s State) newToken(expiry time.Time) string {
	text := fmt.Sprintf("token-%d-%s", expiry.UnixMilli(), rand.Text())
	return text + "." + s.mac(text)
}

// expiry returns when a token of newToken expires, or the zero time if the token is not of this service.
func (s State) expiry(token string) time.Time {
	text, mac, _ := strings.Cut(token, ".")
	var milliseconds int64
	_, err := fmt.Sscanf(text, "token-%d-", &milliseconds)
	if err == nil && hmac.Equal([]byte(mac), []byte(s.mac(text))) {
		return time.UnixMilli(milliseconds)
	}
	return time.Time{}
}

func (s State) mac(text string) string {
	mac := hmac.New(sha256.New, s.TokenKey)
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// oauthError returns an error of RFC 6749, section 5.2.
func oauthError(status int, code string) answer {
	return answer{status: status, body: `{"error":"` + code + `"}`}
}
