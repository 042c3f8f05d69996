package paymenttest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

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
