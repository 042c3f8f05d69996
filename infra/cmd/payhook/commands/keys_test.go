package commands

import (
	"encoding/json/v2"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	tokenhandler "payhook.example/functions/token/tokenhandler"
	"payhook.example/infra/cmd/payhook/cli"
	"payhook.example/shared/keys"
	"payhook.example/shared/payment"
	"payhook.example/shared/wire"
)

// cache puts a key into the table as the functions do; without a JWK, it is an id that the
// service did not know. It was first called unknown so long ago, unless that is zero.
func (w *world) cache(id string, jwk []byte, age, unknown time.Duration) {
	w.t.Helper()
	at := noon.Add(-age)
	r := keys.Record{ID: id, Version: "1", SentAs: id, JWK: string(jwk), FetchedAt: at, Answer: keys.Fresh,
		ExpiresAt: at.Add(24 * time.Hour)}
	if jwk == nil {
		r.Answer = keys.Unknown
	}
	if canonical, ok := payment.KeyID(id); ok {
		r.ID = canonical
	}
	if jwk != nil && !strings.Contains(string(jwk), id) {
		r.JWK, r.Answer = "", keys.Refused
	}
	if unknown > 0 {
		r.UnknownSince = noon.Add(-unknown)
	}
	if stored, _, err := w.keys.Put(w.t.Context(), r, ""); !stored || err != nil {
		w.t.Fatal(err)
	}
}

func TestKeyIsShownWithItsState(t *testing.T) {
	id, key, jwk := key().ID, &key().Private.PublicKey, key().JWK()
	for state, test := range map[string]struct {
		cache  func(*world)
		status int
		want   []string
	}{
		"fresh": {func(w *world) { w.cache(id, jwk, 12*time.Minute, 0) }, 0, []string{"2048", "65537",
			keys.Thumbprint(key), "2026-01-31T11:48:00.000Z (12m ago)", "(in 23h48m)"}},
		"stale": {func(w *world) { w.cache(id, jwk, time.Hour, 0) }, 0, []string{"(1h ago)"}},
		"withdrawn": {func(w *world) { w.cache(id, jwk, time.Hour, 3*time.Minute) }, 1,
			[]string{"2026-01-31T11:57:00.000Z (3m ago)", keys.Thumbprint(key)}},
		"removed": {func(w *world) { w.cache(id, nil, time.Minute, 8*time.Minute) }, 1, []string{"(8m ago)"}},
		"unknown": {func(w *world) { w.cache(id, nil, time.Minute, 0) }, 1, nil},
		"expired": {func(w *world) { w.cache(id, jwk, 24*time.Hour, 0) }, 1, nil},
		"refused": {func(w *world) { w.cache(id, keys.FormatJWK(uuid.New().String(), key), time.Minute, 0) }, 1, nil},
		"absent":  {func(*world) {}, 1, nil},
		"revoked": {func(w *world) {
			w.cache(id, jwk, time.Minute, 0)
			w.setting = map[string]string{"PAYHOOK_REVOKED_KEYS": "CN=a; " + keys.Thumbprint(key)}
		}, 1, []string{keys.Thumbprint(key)}},
	} {
		t.Run(state, func(t *testing.T) {
			w := newWorld(t)
			test.cache(w)
			out, _ := w.expect(test.status, "keys", id)
			w.contains(out, test.want...)
			for _, spelling := range []string{id, strings.ToUpper(id), strings.ReplaceAll(id, "-", "")} {
				out, _ = w.expect(test.status, "keys", spelling, "--json")
				if got := documents[cachedKey](t, out)[0]; got.State != state || got.KeyID != spelling ||
					got.Dropped.By != "" {
					t.Errorf("%s", out)
				}
			}
		})
	}
}

// service serves a key; nil for none.
func (w *world) service(jwk []byte) {
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		token := ""
		if w.setting["PAYHOOK_KEY_ENDPOINT_AUTH"] == "bearer" {
			token = "Bearer access-1"
		}
		if !strings.HasPrefix(r.URL.Path, "/v1/keys/") || r.Header.Get("Authorization") != token {
			w.t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
		if jwk == nil {
			out.WriteHeader(http.StatusNotFound)
		}
		out.Write(jwk)
	}))
	w.t.Cleanup(s.Close)
	w.setting = map[string]string{"PAYHOOK_BASE_URL": s.URL}
}

func TestDroppedKeyIsDeleted(t *testing.T) {
	id, other, jwk := key().ID, uuid.New().String(), key().JWK()
	for name, test := range map[string]struct {
		call   string // the id, and flags
		serves []byte
		status int
		says   string
	}{
		"confirmed":       {id, jwk, 0, "the same key"},
		"upper case":      {strings.ToUpper(id) + " --yes", jwk, 0, "the same key"},
		"without hyphens": {strings.ReplaceAll(id, "-", "") + " --yes", jwk, 0, ""},
		"refused":         {id, jwk, cli.StatusUsage, "Drop the key " + id + " in stack Payhook (nowhere)?"},
		"withdrawn":       {id + " --yes", nil, cli.StatusUsage, "Nothing was dropped; --force"},
		"forced":          {id + " --yes --force", nil, 0, "unknown key to the service"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if w.terminal, w.answer = true, strings.NewReader("n\n"); test.status == 0 {
				w.answer = strings.NewReader("y\n")
			}
			w.cache(id, jwk, time.Minute, 0)
			w.cache(other, nil, time.Minute, 0)
			w.service(test.serves)
			call := append([]string{"keys", "--drop", "--reason", "it was replaced"}, strings.Fields(test.call)...)
			out, err := w.expect(test.status, call...)
			w.contains(out+err, test.says)
			left, failed := w.keys.Records(t.Context())
			if dropped := test.status == 0; failed != nil || (len(left) == 1) != dropped {
				t.Errorf("%v is left, %v", left, failed)
			} else if dropped {
				w.contains(out, "dropped.by      "+callerARN, "dropped.reason  it was replaced",
					"/v1/keys/"+strings.Fields(test.call)[0])
				w.contains(err, "a running function keeps its own copy")
				w.expect(cli.StatusFailed, call...)
			}
		})
	}
}

// What the service answers tells whether a key was replaced under its id.
func TestAKeyIsComparedWithThatOfTheService(t *testing.T) {
	id, other, w := key().ID, &otherKey().Private.PublicKey, newWorld(t)
	w.cache(id, key().JWK(), time.Minute, 0)
	w.service(keys.FormatJWK(id, other))
	out, _ := w.expect(0, "keys", id)
	w.contains(out, "answer      the key with the thumbprint "+keys.Thumbprint(other))
	w.setting["PAYHOOK_KEY_ENDPOINT_AUTH"] = "bearer"
	w.expect(0, "keys", id)
	w.setting["PAYHOOK_BASE_URL"] = "http://127.0.0.1:1"
	out, _ = w.expect(0, "keys", id)
	w.contains(out, "url         http://127.0.0.1:1/v1/keys/"+id, "connection refused")
	w.failing(denied, "GetSecretValue")
	out, _ = w.expect(0, "keys", id)
	w.contains(out, "the key endpoint was not asked: ", "AskWithToken", "GetSecretValue: AccessDeniedException")
	_, said := w.expect(cli.StatusUsage, "keys", id, "--drop", "--reason", "x")
	w.contains(said, "was not asked", "Nothing was dropped")
}

// A token can be revoked before it expires. The command is in the alarms and in events/README.md as well.
func TestARevokedTokenIsReplacedByTheCommandThatIsShown(t *testing.T) {
	id := uuid.New().String()
	service := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.WriteHeader(http.StatusUnauthorized)
	}))
	defer service.Close()
	w := newWorld(t)
	w.setting = map[string]string{"PAYHOOK_BASE_URL": service.URL}
	out, _ := w.expect(cli.StatusFailed, "keys", id, "--json")
	if shown := documents[cachedKey](t, out)[0]; !strings.Contains(shown.Answer, "401") || shown.Next != "" {
		t.Errorf("without a token: %+v", shown)
	}
	w.setting["PAYHOOK_KEY_ENDPOINT_AUTH"] = "bearer"
	w.at.Functions["token"] = "arn:aws:lambda:eu-central-1:123456789012:function:Payhook-Token:live"
	out, _ = w.expect(cli.StatusFailed, "keys", id, "--json")
	shown := documents[cachedKey](t, out)[0]
	command, ok := strings.CutPrefix(shown.Next, "refresh the token: ")
	if shown.Answer != "401: the service does not accept the token" || !ok {
		t.Errorf("%+v", shown)
	}
	for file, want := range map[string]int{"infra/payhook/alarms.txt": 2, "events/README.md": 1} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", file))
		if n := strings.Count(string(text), strings.ReplaceAll(command, w.at.Functions["token"], "NAME")); err != nil ||
			n != want {
			t.Errorf("%s has the command %d times, want %d; %v", file, n, want, err)
		}
	}
	const script = "#!/bin/sh\necho \"$@\" >&2\nexec cat\n"
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "aws"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	aws := exec.CommandContext(t.Context(), "sh", "-c", command)
	aws.Env = []string{"PATH=" + folder + ":" + os.Getenv("PATH")}
	var called strings.Builder
	aws.Stderr = &called
	payload, err := aws.Output()
	var event tokenhandler.Event
	if err := errors.Join(err, json.Unmarshal(payload, &event, json.RejectUnknownMembers(true))); err != nil ||
		!event.Refresh || called.String() != "lambda invoke --function-name "+w.at.Functions["token"]+
		" --payload fileb:///dev/stdin /dev/stdout\n" {
		t.Errorf("%s: %s%s, %v", command, &called, payload, err)
	}
}

func TestCertificatesNeedThirtyDays(t *testing.T) {
	const reported = `{"certificates":{"authentication":"both","daysLeft":29.5,
		"cas":[{"subject":"CN=Operator CA","notAfter":"2026-03-02T00:00:00Z"}],"pins":["e3b0"],"subjects":["CN=a"],
		"revokedKeys":["ca97"]}}`
	for name, test := range map[string]struct {
		answer string
		status int
		want   []string
	}{
		"too few days": {reported, cli.StatusFailed,
			[]string{"KEYID", "\n\nauthentication", "29.5", "CN=Operator CA", "e3b0", "CN=a", "ca97",
				"CN=Operator CA  2026-03-02T00:00:00.000Z (in 29d12h)"}},
		"enough days": {strings.ReplaceAll(reported, "29.5", "30"), 0, []string{"30"}},
		"by signature": {`{"certificates":{"authentication":"signature","daysLeft":0,"cas":null}}`, 0,
			[]string{"signature"}},
		"no answer": {`{"errorMessage":"x"}`, cli.StatusUnreachable, nil},
		"no report": {`{"found":0}`, cli.StatusUnreachable, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.redrive = func(wire.RedriveRequest) string { return test.answer }
			w.cache(uuid.New().String(), nil, time.Minute, time.Minute)
			out, _ := w.expect(test.status, "keys")
			w.contains(out, test.want...)
		})
	}
}

func TestKeysAreListedWithTheirStates(t *testing.T) {
	public, w := &key().Private.PublicKey, newWorld(t)
	// The keys are shown without it.
	w.redrive = func(wire.RedriveRequest) string { return "" }
	var ids [4]string
	for i := range ids {
		ids[i] = uuid.New().String()
	}
	stale, cached, withdrawn, unknown := ids[0], ids[1], ids[2], ids[3]
	w.setting = map[string]string{"PAYHOOK_REVOKED_KEYS": strings.ToUpper(withdrawn)}
	w.cache(unknown, nil, time.Second, 0)
	w.cache(stale, keys.FormatJWK(stale, public), time.Hour, 0)
	w.cache(cached, keys.FormatJWK(cached, public), time.Hour-time.Second, 0)
	w.cache(withdrawn, keys.FormatJWK(withdrawn, public), 70*time.Minute, time.Minute)
	out, _ := w.expect(cli.StatusUnreachable, "keys", "--json")
	var shown struct {
		Keys []cachedKey `json:"keys"`
	}
	if err := json.Unmarshal([]byte(out), &shown); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range shown.Keys {
		got = append(got, k.KeyID+" "+k.State)
	}
	if diff := cmp.Diff([]string{cached + " fresh", stale + " stale", withdrawn + " revoked",
		unknown + " unknown"}, got); diff != "" {
		t.Error(diff)
	}
	out, _ = w.expect(cli.StatusUnreachable, "keys")
	w.contains(out, keys.Thumbprint(public), "(1h ago)")
}
