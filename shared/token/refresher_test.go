package token_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"payhook.example/shared/token"
)

func TestFirstRunStoresATokenAndLaterRunsOnlyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(w http.ResponseWriter, request *http.Request) {
			time.Sleep(1500 * time.Millisecond) // this is not part of the token's life
			returns("t-1", time.Hour)(w, request)
		})
		time.Sleep(1234567 * time.Nanosecond)
		issued := time.Now().Truncate(time.Millisecond)
		if report := r.run(t, token.Refreshed); report.Remaining != time.Hour-1500*time.Millisecond ||
			report.Lifetime != time.Hour || !report.Known || report.Calls != 1 {
			t.Errorf("%+v", report)
		}
		if want := value("t-1", issued, issued.Add(time.Hour)); r.store.text() != want {
			t.Errorf("stored is %s, want %s", r.store.text(), want)
		}
		reads := r.store.loads()
		report := r.run(t, token.Fresh)
		if n := r.store.loads() - reads; n != 1 || r.store.saves() != 1 || r.credentials.loads() != 1 ||
			report.Calls != 0 {
			t.Errorf("a run without a refresh made %d reads, want 1; %+v", n, report)
		}
	})
}

func TestTokenIsReplacedWhenItIsDue(t *testing.T) {
	type ages map[time.Duration]time.Duration // at which a token is due, by lifetime
	for limited, due := range map[bool]ages{
		true: {
			// The percentage decides.
			5 * time.Second:                1700 * time.Millisecond,
			5 * time.Minute:                102 * time.Second,
			time.Hour:                      1224 * time.Second,
			24 * time.Hour:                 8*time.Hour + 576*time.Second,
			47*time.Minute + 4*time.Second: 15*time.Minute + 60160*time.Millisecond,
			// The quota of versions decides: at most one every 16 minutes.
			20 * time.Minute: 16 * time.Minute,
			30 * time.Minute: 16 * time.Minute,
			// Three runs count more than the number of versions.
			19 * time.Minute: 15 * time.Minute,
			10 * time.Minute: 6 * time.Minute,
		},
		false: {
			time.Hour:        1224 * time.Second,
			15 * time.Minute: 306 * time.Second,
			// 4 minutes before the expiry, after half a minute at least.
			5 * time.Minute: time.Minute,
			3 * time.Minute: 30 * time.Second,
			time.Minute:     20400 * time.Millisecond,
		},
	} {
		for lifetime, age := range due {
			bubble(t, fmt.Sprint(limited, " ", lifetime), func(t *testing.T) {
				r := newRig(t, returns("t-2", lifetime))
				r.store.limited = limited
				r.put("t-1", lifetime)
				time.Sleep(age)
				r.run(t, token.Fresh)
				time.Sleep(time.Millisecond)
				r.run(t, token.Refreshed)
			})
		}
	}
}

func TestOnlyAnInvalidSecretIsReplaced(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a bubble
	good := value("t-1", now, now.Add(13*time.Hour))
	replaced := func(old, by string) string { return strings.Replace(good, old, by, 1) }
	tests := map[string]string{
		"an empty text":          "",
		"a byte order mark":      "\uFEFF\r\n ",
		"what the CDK generates": `x7"(K~w;Ym2`,
		"something behind it":    good + "x",
		"a name twice":           replaced(`{`, `{"token_type":"Bearer",`),
		"no access_token":        replaced(`"access_token"`, `"access"`),
		"an illegal token":       replaced(`t-1`, `t 1`),
		"an empty token":         replaced(`t-1`, ``),
		"a token too long":       replaced(`t-1`, strings.Repeat("a", 32<<10+1)),
		"another type":           replaced(`Bearer`, `mac`),
		"no expiry":              replaced(`expires_at`, `expires`),
		"a comma in the expiry":  replaced(`T13:00:00Z`, `T13:00:00,5Z`),
		"no life":                value("t-1", now, now),
		"a life of centuries":    value("t-1", now, now.AddDate(300, 0, 0)),
		"more than 366 days":     value("t-1", now, now.Add(366*24*time.Hour+time.Millisecond)),
		"an issue in the future": value("t-1", now.Add(time.Hour), now.Add(3*time.Hour)),
		"an expired one":         value("t-1", now.Add(-2*time.Hour), now.Add(-time.Hour)),
		"kept: 366 days":         value("t-1", now, now.Add(366*24*time.Hour)),
		"kept: a valid one":      good,
	}
	for name, text := range tests {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, returns("t-2", time.Hour))
			r.store.put(text)
			if !strings.HasPrefix(name, "kept: ") {
				r.run(t, token.Refreshed)
			}
			r.run(t, token.Fresh)
		})
	}
}

// The refresher runs each minute, with a token that has two hours left. A failure never changes the stored token.
func TestTheEndpointIsCalledLessOftenWhileItRefuses(t *testing.T) {
	const none = "no registered OAuth error code"
	doubled := []int{0, 1, 3, 7, 15, 30, 45, 60, 75}
	every := make([]int, 90)
	for n := range every {
		every[n] = n
	}
	after := func(status int, text string) http.HandlerFunc { return answers(status, "", "Retry-After", text) }
	type refusal struct {
		answer http.HandlerFunc
		calls  []int // the minutes
		cause  string
	}
	refusals := map[string]refusal{
		"hanging up": {hangsUp, every, "did not answer: the connection was closed"},
		"a token, and hanging up": {func(w http.ResponseWriter, q *http.Request) {
			returns("t-2", time.Hour)(w, q)
			hangsUp(w, q)
		}, every, "answered 200: the answer is incomplete: the connection was closed"},
		"500": {answers(500, ""), every, "answered 500: " + none},
		"503": {after(503, "900"), []int{0, 15, 30, 45, 60, 75}, "answered 503: " + none},
		"503 with a code": {answers(503, `{"error":"server_error"}`, "Retry-After", "59"), every,
			"answered 503 server_error"},
		"401":                  {answers(401, `{"error":"invalid_client"}`), doubled, "answered 401 invalid_client"},
		"401 with Retry-After": {after(401, "600"), []int{0, 10, 20, 30, 40, 55, 70, 85}, "answered 401: " + none},
		"307":                  {after(307, "3600"), []int{0, 60}, "answered 307: redirects are not followed"},
		"no token":             {answers(200, `[]`), doubled, "without duplicate names"},
		"no token, but a time": {answers(200, `[]`, "Retry-After", "1800"), []int{0, 30, 60}, "duplicate names"},
		"429":                  {answers(429, ""), doubled, "answered 429: " + none},
		"429 with few":         {after(429, "61"), []int{0, 2, 4, 8, 16, 31, 46, 61, 76}, "answered 429: " + none},
		"429 with nonsense":    {after(429, "-5"), doubled, "answered 429: " + none},
		"429 with a date": {after(429, "Sat, 01 Jan 2000 04:30:00 GMT"), []int{0, 30, 32, 36, 44, 59, 74, 89},
			"answered 429: " + none},
		"429 with an early date": {after(429, "Fri, 31 Dec 1999 23:59:59 GMT"), doubled, "answered 429: " + none},
	}
	for _, hour := range []string{"3600", "7200", "99999999999999999999", "3600.0", "Tue, 01 Feb 2000 04:30:00 GMT"} {
		refusals["429 with "+hour] = refusal{after(429, hour), []int{0, 60}, "answered 429: " + none}
	}
	for name, test := range refusals {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, test.answer)
			r.put("t-1", 6*time.Hour)
			time.Sleep(4 * time.Hour)
			stored := r.store.text()
			var calls []int
			for minute := range 90 {
				report, err := r.refresher.Run(t.Context(), false)
				if report.Calls == 1 {
					calls = append(calls, minute)
				}
				if report.Outcome != token.Failed || report.Calls > 1 || report.Remaining <= 0 ||
					!strings.HasSuffix(fmt.Sprint(err), test.cause) {
					t.Fatalf("%d: %+v, %v", minute, report, err)
				}
				time.Sleep(time.Minute)
			}
			if !slices.Equal(calls, test.calls) || len(r.endpoint.calls()) != len(calls) || r.store.text() != stored {
				t.Errorf("calls in the minutes %d, want %d; stored is %s", calls, test.calls, r.store.text())
			}
		})
	}
}

func TestRetryAfterCountsFromTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
			time.Sleep(9 * time.Second)
			answers(429, "", "Retry-After", "600")(w, q)
		})
		if report := r.run(t, token.Failed); time.Until(report.NextCall) != 10*time.Minute {
			t.Errorf("the next call is at %s", report.NextCall)
		}
	})
}

func TestReportsInvalidCredentials(t *testing.T) {
	control := func(name string) string {
		return "has a " + name + " with a control character, such as a line break at its end"
	}
	pair := func(id, secret string) string { return `{"client_id":` + id + `,"client_secret":` + secret + `}` }
	const id, secret = `"client-1"`, `"` + clientSecret + `"`
	problems := map[string]string{ // by the value of the secret
		"-": "has no value yet", " \n": "has no value yet",
		pair(id, `"`+clientSecret+`\n"`):     control("client_secret"),
		pair(id, `"`+clientSecret+`\u007f"`): control("client_secret"),
		pair(`"client\n"`, secret):           control("client_id"),
		pair(`"client:1"`, secret): "has a client_id with a colon, which HTTP Basic does not allow without " +
			"form-encoding",
	}
	for _, text := range []string{`x7"(K~w;Ym2`, `[` + secret + `]`, `{}`, `{"client_id":"client-1"}`,
		pair(`""`, secret), pair("7", secret), pair(id, "null"), pair(id, `"a","client_secret":""`)} {
		problems[text] = "is not a JSON object with two strings that are not empty"
	}
	for text, problem := range problems {
		bubble(t, text, func(t *testing.T) {
			r := newRig(t, returns("t-1", time.Hour))
			r.credentials.put(strings.TrimPrefix(text, "-"))
			_, err := r.refresher.Run(t.Context(), false)
			missing, ok := errors.AsType[*token.CredentialsError](err)
			if !ok || missing.Problem != problem || len(r.endpoint.calls()) > 0 {
				t.Fatalf("%v, want a CredentialsError that it %s", err, problem)
			}
			expectNoCanary(t, err.Error())

			// As from a file with a byte order mark.
			r.credentials.put("\uFEFF" + `{"client_id":"client-2","client_secret":"s"}`)
			r.run(t, token.Refreshed)
			if user, _, _ := r.endpoint.calls()[0].BasicAuth(); user != "client-2" {
				t.Errorf("it uses the credentials of %s", user)
			}
		})
	}
}

func TestRefresherIsSafeForConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, returns("t-1", time.Hour))
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if report, err := r.refresher.Run(t.Context(), false); err != nil {
					t.Errorf("Run = %+v, %v", report, err)
				}
			})
		}
		group.Wait()
		expectToken(t, r.reader(), "t-1")
	})
}

func TestReportsFailuresOfTheStores(t *testing.T) {
	for name, test := range map[string]struct {
		of    func(*rig) *source
		call  string
		known bool
	}{
		"no token is read":        {func(r *rig) *source { return &r.store }, "Load", false},
		"no credentials are read": {func(r *rig) *source { return &r.credentials }, "Load", true},
		"no token is written":     {func(r *rig) *source { return &r.store }, "Save", true},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, returns("t-1", 10*time.Minute))
			test.of(r).fails = map[string]error{test.call: denied}
			report, err := r.refresher.Run(t.Context(), false)
			if fmt.Sprint(err) != "token: the token: AccessDeniedException" || report.Known != test.known ||
				report.Outcome != token.Failed ||
				report.WritesTooOften != (test.call == "Save") {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}

// An alarm watches the shortfall. A lifetime that needs too many versions of the secret is reported.
func TestShortfall(t *testing.T) {
	const ms, s, m = time.Millisecond, time.Second, time.Minute
	fails := answers(400, "")
	for name, test := range map[string]struct {
		lifetime, age time.Duration // zero: no token is stored
		answer        http.HandlerFunc
		want          token.Outcome // "": Failed
		shortfall     time.Duration
		tooOften      bool
	}{
		"nothing is due": {lifetime: 60 * m, age: m, answer: hangsUp, want: token.Fresh},
		// It is due when 66 % of its lifetime is left.
		"due for three runs":                  {lifetime: 60 * m, age: 23*m + 24*s, answer: fails},
		"due for longer":                      {lifetime: 60 * m, age: 23*m + 25*s, answer: fails, shortfall: s},
		"a failure with time for three runs":  {lifetime: 5 * m, age: 115 * s, answer: fails},
		"a failure with less":                 {lifetime: 5 * m, age: 116 * s, answer: fails, shortfall: s},
		"a short-lived token that is not due": {lifetime: 2 * m, age: 40 * s, answer: hangsUp, want: token.Fresh},
		"a failure with such a token":         {lifetime: 2 * m, age: 42 * s, answer: fails, shortfall: 1200 * ms},
		"an expired token":                    {lifetime: 60 * m, age: 60 * m, answer: fails, shortfall: 2196 * s},
		"no token yet":                        {answer: fails, shortfall: m},

		"a new token": {lifetime: 60 * m, age: 60 * m, answer: returns("t-2", 60*m), want: token.Refreshed},
		"one that ends before the next run": {lifetime: 60 * m, age: 60 * m, answer: returns("t-2", 30*s),
			want: token.Refreshed, shortfall: 33 * s, tooOften: true},
		"no newer token exists":   {lifetime: 60 * m, age: 58 * m, answer: returns("t-1", 2*m), want: token.Unchanged},
		"a short life":            {answer: returns("t-1", 20*m-16*s), want: token.Refreshed, tooOften: true},
		"of 20 minutes, and late": {answer: returns("t-1", 20*m-15*s), want: token.Refreshed},
	} {
		bubble(t, name, func(t *testing.T) {
			r := newRig(t, test.answer)
			if test.lifetime > 0 {
				r.put("t-1", test.lifetime)
			}
			time.Sleep(test.age)
			if report := r.run(t, cmp.Or(test.want, token.Failed)); report.Shortfall != test.shortfall ||
				report.WritesTooOften != test.tooOften {
				t.Errorf("%+v, want a shortfall of %s", report, test.shortfall)
			}
		})
	}
}
