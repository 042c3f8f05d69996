package paymenttest

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"uuid"
)

// Client returns the client id and secret that the token endpoint accepts.
func (s *Server) Client() (id, secret string) { return s.opts.ClientID, s.opts.ClientSecret }

// SetTokenLifetime changes the lifetime of tokens that are issued from now on, in whole
// seconds.
func (s *Server) SetTokenLifetime(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lifetime = d
}

// RevokeTokens revokes every issued token.
func (s *Server) RevokeTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// answerToken answers a token request (section 4.1). It issues a token only if the
// request meets that section in every respect.
func (s *Server) answerToken(r *http.Request, body []byte) answer {
	if r.Method != http.MethodPost {
		return answer{status: http.StatusMethodNotAllowed, header: http.Header{"Allow": {http.MethodPost}}}
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || !slices.Equal(query["access_token_manager_id"], []string{s.opts.TokenManagerID}) {
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
	return s.newToken()
}

// isClient reports whether r has the client's id and secret, once.
func (s *Server) isClient(r *http.Request) bool {
	id, secret, ok := r.BasicAuth()
	if s.opts.FormEncoded && ok {
		var badID, badSecret error
		id, badID = url.QueryUnescape(id)
		secret, badSecret = url.QueryUnescape(secret)
		ok = badID == nil && badSecret == nil
	}
	wantID, wantSecret := s.Client()
	return ok && len(r.Header.Values("Authorization")) == 1 && id == wantID && secret == wantSecret
}

func (s *Server) newToken() answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.opts.Now()
	for token, expiry := range s.tokens {
		if !now.Before(expiry) {
			delete(s.tokens, token)
		}
	}
	token := "token-" + uuid.New().String()
	if s.tokenKey != nil {
		token = signToken(s.tokenKey, now.Add(s.lifetime))
	} else {
		s.tokens[token] = now.Add(s.lifetime)
	}
	return tokenAnswer(map[string]any{
		"access_token": token,
		"token_type":   "Bearer",
		"expires_in":   int64(s.lifetime / time.Second),
	})
}

func tokenAnswer(fields map[string]any) answer {
	body, _ := json.Marshal(fields)
	return answer{status: http.StatusOK, header: http.Header{"Cache-Control": {"no-store"}}, body: body}
}

// oauthError returns an error of RFC 6749, section 5.2.
func oauthError(status int, code string) answer {
	return answer{status: status, body: []byte(`{"error":"` + code + `"}`)}
}

// bearer reports whether r has exactly one token, and it is valid.
func (s *Server) bearer(r *http.Request) bool {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return false
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	expiry := s.tokens[token]
	if s.tokenKey != nil {
		expiry = tokenExpiry(s.tokenKey, token)
	}
	return ok && s.opts.Now().Before(expiry)
}

func unauthorized() answer {
	return answer{
		status: http.StatusUnauthorized,
		header: http.Header{"Www-Authenticate": {`Bearer error="invalid_token"`}},
		body:   []byte(`{"error":"invalid_token"}`),
	}
}

// answerAPI answers a request to the protected API (section 4.4).
func (s *Server) answerAPI(r *http.Request, _ []byte) answer {
	if !s.bearer(r) {
		return unauthorized()
	}
	if values := r.Header.Values("Content-Type"); len(values) != 1 || values[0] != "application/json" {
		return answer{status: http.StatusUnsupportedMediaType,
			body: []byte(`{"error":"Content-Type must be application/json"}`)}
	}
	return answer{status: http.StatusOK, body: []byte(`{"ok":true}`)}
}
