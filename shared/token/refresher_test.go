package token_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/awstest"
	"payhook.example/shared/token"
)

func TestFirstRunStoresATokenAndLaterRunsOnlyRead(t *testing.T) {
	r := newRig(t, returns("t-1", time.Hour))
	r.endpoint.then(func(w http.ResponseWriter, request *http.Request) {
		r.Advance(1500 * time.Millisecond) // the time that the answer takes is not part of the token's life
		returns("t-1", time.Hour)(w, request)
	})
	issued := r.Now()
	report := r.run(t, token.Refreshed)
	if report.Remaining != time.Hour-1500*time.Millisecond || report.Lifetime != time.Hour || !report.Known ||
		report.Calls != 1 {
		t.Errorf("%+v", report)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(r.secrets.Values(tokenSecret)[0]), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"access_token": "t-1", "token_type": "Bearer",
		"issued_at":  issued.Format(time.RFC3339Nano)[:19] + ".000Z",
		"expires_at": issued.Add(time.Hour).Format(time.RFC3339Nano)[:19] + ".000Z",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the secret (-want +got):\n%s", diff)
	}

	reads := len(r.secrets.Calls("GetSecretValue"))
	r.Advance(time.Minute)
	report = r.run(t, token.Fresh)
	if report.Remaining != 59*time.Minute-1500*time.Millisecond || report.Calls != 0 {
		t.Errorf("%+v", report)
	}
	if n := len(r.secrets.Calls("GetSecretValue")) - reads; n != 1 {
		t.Errorf("a run without a refresh made %d reads, want 1", n)
	}
	if writes := len(r.secrets.Calls("PutSecretValue")); writes != 1 {
		t.Errorf("%d writes, want 1", writes)
	}
}

func TestTokenIsReplacedAtRefreshPercent(t *testing.T) {
	for _, lifetime := range []time.Duration{5 * time.Second, 90 * time.Second, 5 * time.Minute, time.Hour,
		24 * time.Hour} {
		t.Run(lifetime.String(), func(t *testing.T) {
			r := newRig(t, returns("t-2", lifetime))
			r.store("t-1", lifetime)
			r.Advance(lifetime * 34 / 100)
			r.run(t, token.Fresh)
			r.Advance(time.Millisecond)
			r.run(t, token.Refreshed)
		})
	}
}

// This is the calculation in the comment of settings.TokenInterval: whatever the offset
// of the runs, three of them start between the refresh and the expiry of a token of 5
// minutes.
func TestTokenOfFiveMinutesLeavesThreeRuns(t *testing.T) {
	for offset := time.Duration(0); offset < time.Minute; offset += 500 * time.Millisecond {
		r := newRig(t, answers(400, `{"error":"invalid_request"}`))
		r.store("t-1", 5*time.Minute)
		r.Advance(offset)
		for range 5 {
			_, _ = r.refresher.Run(t.Context())
			r.Advance(time.Minute)
		}
		if n := len(r.endpoint.calls()); n < 3 {
			t.Fatalf("with an offset of %s, %d runs called the endpoint before the token expired, want at least 3",
				offset, n)
		}
	}
}

func TestInvalidSecretIsReplaced(t *testing.T) {
	now := newClock().Now()
	good := value("t-1", now, now.Add(time.Hour))
	tests := map[string]string{
		"an empty text":           "",
		"what the CDK generates":  `x7"(K~w;Ym2`,
		"another object":          `{"password":"x"}`,
		"an array":                `[` + good + `]`,
		"something behind it":     good + "x",
		"a name twice":            strings.Replace(good, `{`, `{"token_type":"Bearer",`, 1),
		"no access_token":         strings.Replace(good, `"access_token"`, `"access"`, 1),
		"an illegal token":        strings.Replace(good, `t-1`, `t 1`, 1),
		"an empty token":          strings.Replace(good, `t-1`, ``, 1),
		"a token too long":        strings.Replace(good, `t-1`, strings.Repeat("a", 32<<10+1), 1),
		"another type":            strings.Replace(good, `Bearer`, `mac`, 1),
		"no expiry":               strings.Replace(good, `expires_at`, `expires`, 1),
		"an expiry of no RFC":     strings.Replace(good, `T13:`, ` 13:`, 1),
		"an expiry in numbers":    `{"access_token":"t-1","token_type":"Bearer","issued_at":1,"expires_at":4102444800}`,
		"no life":                 value("t-1", now, now),
		"a life of centuries":     value("t-1", now, now.AddDate(300, 0, 0)),
		"a life of over 366 days": value("t-1", now, now.Add(366*24*time.Hour+time.Millisecond)),
		"an issue in the future":  value("t-1", now.Add(time.Hour), now.Add(3*time.Hour)),
		"an expired one":          value("t-1", now.Add(-2*time.Hour), now.Add(-time.Hour)),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, returns("t-2", time.Hour))
			r.secrets.Put(tokenSecret, text)
			r.run(t, token.Refreshed)
			r.run(t, token.Fresh)
		})
	}
	t.Run("one with the longest life is kept", func(t *testing.T) {
		r := newRig(t, returns("t-2", time.Hour))
		r.secrets.Put(tokenSecret, value("t-1", now, now.Add(366*24*time.Hour)))
		r.run(t, token.Fresh)
	})
	t.Run("a valid one is kept", func(t *testing.T) {
		r := newRig(t, returns("t-2", time.Hour))
		r.secrets.Put(tokenSecret, good)
		r.run(t, token.Fresh)
	})
}

func TestFailureDoesNotChangeTheStoredToken(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"400":       answers(400, `{"error":"invalid_client"}`),
		"401":       answers(401, `{"error":"invalid_client"}`),
		"429":       answers(429, ""),
		"500":       answers(500, ""),
		"307":       answers(307, "", "Location", "/elsewhere"),
		"hangs up":  hangsUp,
		"no expiry": answers(200, `{"access_token":"t-2","token_type":"Bearer"}`),
		"HTML":      answers(200, "<html>", "Content-Type", "text/html"),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, answer)
			r.store("t-1", time.Hour)
			stored := r.secrets.Values(tokenSecret)
			r.Advance(30 * time.Minute)
			report := r.run(t, token.Failed)
			if !report.Known || report.Remaining <= 0 {
				t.Errorf("%+v, want the life that the stored token has left", report)
			}
			if diff := cmp.Diff(stored, r.secrets.Values(tokenSecret)); diff != "" ||
				len(r.secrets.Calls("PutSecretValue")) > 0 {
				t.Errorf("the secret was written (-want +got):\n%s", diff)
			}
			got, err := r.reader().Token()
			if err != nil || got.AccessToken != "t-1" {
				t.Errorf("a reader gets %v, %v, want the stored token", got, err)
			}
		})
	}
}

func TestRetriesOnlyTemporaryErrors(t *testing.T) {
	good := returns("t-1", time.Hour)
	tests := map[string]struct {
		answers []http.HandlerFunc
		outcome token.Outcome
		calls   int
		slept   []time.Duration // with jitter at its greatest
	}{
		"hanging up, then well": {[]http.HandlerFunc{hangsUp, good}, token.Refreshed, 2,
			[]time.Duration{500 * time.Millisecond}},
		"an incomplete answer, then well": {[]http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) {
			speak(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{")
		}, good}, token.Refreshed, 2, []time.Duration{500 * time.Millisecond}},
		"500, 502, 503, then well": {[]http.HandlerFunc{answers(500, ""), answers(502, ""), answers(503, ""), good},
			token.Refreshed, 4,
			[]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}},
		"500 each time": {[]http.HandlerFunc{answers(500, "")}, token.Failed, 5,
			[]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}},
		"429 with seconds": {[]http.HandlerFunc{answers(429, "", "Retry-After", "7"), good},
			token.Refreshed, 2, []time.Duration{7 * time.Second}},
		"429 with a date": {[]http.HandlerFunc{answers(429, "", "Retry-After",
			"Sun, 01 Mar 2099 12:00:09 GMT"), good}, token.Refreshed, 2, []time.Duration{9 * time.Second}},
		"429 with a date that is past": {[]http.HandlerFunc{answers(429, "", "Retry-After",
			"Sun, 01 Mar 2020 12:00:09 GMT"), good}, token.Refreshed, 2, []time.Duration{500 * time.Millisecond}},
		"429 with nonsense": {[]http.HandlerFunc{answers(429, "", "Retry-After", "-5"), good},
			token.Refreshed, 2, []time.Duration{500 * time.Millisecond}},
		"429 with more than the run has": {[]http.HandlerFunc{answers(429, "", "Retry-After", "51"), good},
			token.Failed, 1, nil},
		"503 with seconds": {[]http.HandlerFunc{answers(503, "", "Retry-After", "3"), good},
			token.Refreshed, 2, []time.Duration{3 * time.Second}},
		"400": {[]http.HandlerFunc{answers(400, `{"error":"invalid_client"}`), good},
			token.Failed, 1, nil},
		"401": {[]http.HandlerFunc{answers(401, "", "Retry-After", "1"), good},
			token.Failed, 1, nil},
		"403": {[]http.HandlerFunc{answers(403, ""), good}, token.Failed, 1, nil},
		"404": {[]http.HandlerFunc{answers(404, ""), good}, token.Failed, 1, nil},
		"307": {[]http.HandlerFunc{answers(307, "", "Location", "/"), good},
			token.Failed, 1, nil},
		"an answer that will not get better": {[]http.HandlerFunc{answers(200, `{}`), good}, token.Failed, 1, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, test.answers...)
			ctx, cancel := context.WithDeadline(t.Context(), r.Now().Add(55*time.Second))
			defer cancel()
			report, err := r.refresher.Run(ctx)
			if report.Outcome != test.outcome || report.Calls != test.calls || len(r.endpoint.calls()) != test.calls {
				t.Errorf("%+v, %v after %d calls, want %s after %d", report, err, len(r.endpoint.calls()), test.outcome,
					test.calls)
			}
			if diff := cmp.Diff(test.slept, r.slept); diff != "" {
				t.Errorf("slept (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRunLeavesTimeToStoreTheToken(t *testing.T) {
	r := newRig(t)
	r.endpoint.then(func(w http.ResponseWriter, request *http.Request) {
		r.Advance(8 * time.Second)
		answers(500, "")(w, request)
	})
	deadline := r.Now().Add(30 * time.Second)
	ctx, cancel := context.WithDeadline(t.Context(), deadline)
	defer cancel()
	if report, _ := r.refresher.Run(ctx); report.Outcome != token.Failed || report.Calls != 3 {
		t.Errorf("%+v, want a failure after 3 calls", report)
	}
	// Calls that start at 0 s, 8.5 s and 17.5 s; a fourth would start at 27.5 s,
	// within the last 5 s.
	if left := deadline.Sub(r.Now()); left != 4500*time.Millisecond {
		t.Errorf("gave up %s before the deadline", left)
	}
}

func TestReportsInvalidCredentials(t *testing.T) {
	tests := map[string]string{ // value of the secret -> problem
		"-":                        "has no value yet",
		" \n":                      "has no value yet",
		`x7"(K~w;Ym2`:              "is not one JSON object without duplicate names",
		`["` + clientSecret + `"]`: "is not one JSON object without duplicate names",
		`{}`:                       "has no client_id that is a string",
		`{"client_id":"","client_secret":"` + clientSecret + `"}`: "has no client_id that is a string",
		`{"client_id":7,"client_secret":"` + clientSecret + `"}`:  "has no client_id that is a string",
		`{"client_id":"client-1"}`:                                "has no client_secret that is a string",
		`{"client_id":"client-1","client_secret":null}`:           "has no client_secret that is a string",
		`{"client_id":"client-1","client_secret":""}`:             "has no client_secret that is a string",
		`{"client_id":"client-1","client_secret":"a","client_secret":"b"}`: "is not one JSON object without " +
			"duplicate names",
		`{"client_id":"client-1","client_secret":"` + clientSecret +
			`\n"}`: "has a client_secret with a control character, such as a line break at its end",
	}
	for text, problem := range tests {
		t.Run(problem, func(t *testing.T) {
			r := newRig(t, returns("t-1", time.Hour))
			r.secrets.Create(credentialsSecret)
			if text != "-" {
				r.secrets.Put(credentialsSecret, text)
			}
			_, err := r.refresher.Run(t.Context())
			missing, ok := errors.AsType[*token.CredentialsError](err)
			if !ok || missing.Problem != problem {
				t.Fatalf("%v, want a CredentialsError that it %s", err, problem)
			}
			if n := len(r.endpoint.calls()); n > 0 {
				t.Errorf("%d calls of the endpoint", n)
			}
			expectNoCanary(t, err.Error())

			r.fill(clientID, clientSecret)
			r.run(t, token.Refreshed)
		})
	}
}

func TestNextRefreshUsesChangedCredentials(t *testing.T) {
	r := newRig(t, returns("t-1", time.Hour), returns("t-2", time.Hour), returns("t-3", time.Hour))
	r.run(t, token.Refreshed)
	r.fill("client-2", "another secret")
	r.run(t, token.Fresh)
	r.Advance(30 * time.Minute)
	r.run(t, token.Refreshed)

	r.fill("client-3", "a third")
	if report, err := r.refresher.Refresh(t.Context()); report.Outcome != token.Refreshed || err != nil {
		t.Errorf("Refresh = %+v, %v", report, err)
	}
	var users []string
	for _, request := range r.endpoint.calls() {
		user, _, _ := request.BasicAuth()
		users = append(users, user)
	}
	if diff := cmp.Diff([]string{clientID, "client-2", "client-3"}, users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

func TestStoredTokenIsNotWrittenAgain(t *testing.T) {
	r := newRig(t, returns("t-1", time.Hour))
	r.run(t, token.Refreshed)
	r.Advance(30 * time.Minute)
	r.endpoint.then(returns("t-1", 30*time.Minute-time.Second)) // "remaining lifetime" (section 2.1)
	report := r.run(t, token.Unchanged)
	if report.Remaining != 30*time.Minute || len(r.secrets.Calls("PutSecretValue")) != 1 {
		t.Errorf("%+v after %d writes, want 1", report, len(r.secrets.Calls("PutSecretValue")))
	}

	// With another expiry it is written.
	r.Advance(15 * time.Minute)
	r.endpoint.then(returns("t-1", time.Hour))
	r.run(t, token.Refreshed)
	r.Advance(30 * time.Minute)
	r.endpoint.then(returns("t-1", time.Minute))
	r.run(t, token.Refreshed)
}

func TestRunWaitsForTheExpiryOfARepeatedToken(t *testing.T) {
	r := newRig(t)
	born, n := r.Now(), 1
	r.endpoint.then(func(w http.ResponseWriter, request *http.Request) {
		if left := born.Add(time.Hour).Sub(r.Now()); left > 0 {
			returns(fmt.Sprint("t-", n), left)(w, request)
			return
		}
		born, n = r.Now(), n+1
		returns(fmt.Sprint("t-", n), time.Hour)(w, request)
	})
	r.run(t, token.Refreshed)
	ctx, cancel := context.WithDeadline(t.Context(), born.Add(time.Hour+15*time.Second))
	defer cancel()
	r.Advance(58 * time.Minute)
	if report, err := r.refresher.Run(ctx); report.Outcome != token.Unchanged || err != nil || len(r.slept) > 0 {
		t.Fatalf("Run = %+v, %v", report, err)
	}
	r.Advance(80 * time.Second)
	if report, err := r.refresher.Run(ctx); report.Outcome != token.Refreshed || err != nil {
		t.Fatalf("Run = %+v, %v", report, err)
	}
	if diff := cmp.Diff([]time.Duration{41 * time.Second}, r.slept); diff != "" {
		t.Errorf("slept (-want +got):\n%s", diff)
	}
}

func TestConcurrentRefreshersKeepTheLaterToken(t *testing.T) {
	r := newRig(t)
	second := r.another(t)
	r.endpoint.then(func(w http.ResponseWriter, request *http.Request) {
		// While the first waits for its answer, a second one runs to its end.
		r.endpoint.then(returns("t-later", 2*time.Hour))
		if report, err := second.Run(request.Context()); report.Outcome != token.Refreshed {
			t.Errorf("the second: %+v, %v", report, err)
		}
		returns("t-earlier", time.Hour)(w, request)
	})
	report := r.run(t, token.Superseded)
	if report.Remaining != 2*time.Hour || len(r.secrets.Calls("PutSecretValue")) != 1 {
		t.Errorf("%+v after %d writes", report, len(r.secrets.Calls("PutSecretValue")))
	}
	if got, err := r.reader().Token(); err != nil || got.AccessToken != "t-later" {
		t.Errorf("a reader gets %v, %v, want the later one", got, err)
	}
}

func TestManyConcurrentRefreshers(t *testing.T) {
	r := newRig(t)
	var mu sync.Mutex
	n := 0
	r.endpoint.then(func(w http.ResponseWriter, request *http.Request) {
		mu.Lock()
		n++
		access := fmt.Sprint("t-", n)
		mu.Unlock()
		returns(access, time.Hour)(w, request)
	})
	var group sync.WaitGroup
	for range 8 {
		refresher := r.another(t)
		group.Go(func() {
			if report, err := refresher.Run(t.Context()); err != nil {
				t.Errorf("Run = %+v, %v", report, err)
			}
		})
	}
	group.Wait()
	if got, err := r.reader().Token(); err != nil || !strings.HasPrefix(got.AccessToken, "t-") {
		t.Errorf("a reader gets %v, %v", got, err)
	}
}

func TestWriteWithALostResponseIsNotMadeTwice(t *testing.T) {
	r := newRig(t, returns("t-1", time.Hour))
	lost := false
	r.secrets.Before = func(c awstest.SecretCall) (string, bool) {
		if c.Operation == "PutSecretValue" && !lost {
			lost = true
			return "InternalServiceError", true
		}
		return "", false
	}
	r.run(t, token.Refreshed)
	puts := r.secrets.Calls("PutSecretValue")
	if len(puts) != 2 || puts[0].ClientRequestToken != puts[1].ClientRequestToken {
		t.Errorf("puts: %+v, want two with one ClientRequestToken", puts)
	}
	if versions := r.secrets.Values(tokenSecret); len(versions) != 1 {
		t.Errorf("%d versions, want 1", len(versions))
	}
}

// The SDK sends no request without credentials or a region.
func TestReportsMissingCredentialsAndRegion(t *testing.T) {
	for _, name := range []string{"AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
		"AWS_REGION", "AWS_DEFAULT_REGION"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	t.Setenv("AWS_CONFIG_FILE", os.DevNull)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for name, change := range map[string]func(*aws.Config){
		"credentials": func(cfg *aws.Config) { cfg.Region = "eu-north-1" },
		"region": func(cfg *aws.Config) {
			cfg.Credentials = credentials.NewStaticCredentialsProvider("id",
				"secret", "")
		},
	} {
		cfg, err := config.LoadDefaultConfig(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		change(&cfg)
		_, err = token.NewReader(secretsmanager.NewFromConfig(cfg), tokenSecret,
			token.ReaderOptions{}).TokenContext(t.Context())
		if err == nil || !strings.HasSuffix(err.Error(),
			": no request was sent: AWS credentials or the region are missing") {
			t.Errorf("no %s: %v", name, err)
		}
	}
}

// failingGetter is a client of Secrets Manager whose every call fails with the same error.
type failingGetter struct{ err error }

func (f failingGetter) GetSecretValue(context.Context, *secretsmanager.GetSecretValueInput,
	...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	return nil, f.err
}

func TestSecretErrorSaysWhetherARequestWasSent(t *testing.T) {
	cause := errors.New("cause")
	for err, want := range map[error]string{
		&smithyhttp.RequestSendError{Err: cause}:            "no answer: not a valid HTTP answer",
		&smithyhttp.ResponseError{Err: io.ErrUnexpectedEOF}: "no answer: the connection was closed",
		fmt.Errorf("wrapped: %w", context.Canceled):         "no answer: canceled",
		fmt.Errorf("wrapped: %w", context.DeadlineExceeded): "no answer: timed out",
		cause: "no request was sent: AWS credentials or the region are missing",
	} {
		_, err := token.NewReader(failingGetter{err}, tokenSecret, token.ReaderOptions{}).TokenContext(t.Context())
		if err == nil || err.Error() != "token: the secret with the token: GetSecretValue: "+want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestReportsFailuresOfSecretsManager(t *testing.T) {
	tests := map[string]struct {
		operation, secret string
		text              string
		known             bool
	}{
		"reading the token": {"GetSecretValue", tokenSecret,
			"token: the secret with the token: GetSecretValue: AccessDeniedException", false},
		"reading the credentials": {"GetSecretValue", credentialsSecret,
			"token: the secret with the client credentials: GetSecretValue: AccessDeniedException", true},
		"writing the token": {"PutSecretValue", tokenSecret,
			"token: the secret with the token: PutSecretValue: AccessDeniedException", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, returns("t-1", time.Hour))
			r.secrets.Before = func(c awstest.SecretCall) (string, bool) {
				if c.Operation == test.operation && c.SecretID == test.secret {
					return "AccessDeniedException", false
				}
				return "", false
			}
			report, err := r.refresher.Run(t.Context())
			if _, ok := errors.AsType[*token.SecretError](err); !ok || err.Error() != test.text {
				t.Errorf("%v, want %s", err, test.text)
			}
			if report.Outcome != token.Failed || report.Known != test.known {
				t.Errorf("%+v", report)
			}
			expectNoCanary(t, fmt.Sprintf("%v %+v", err, err))
		})
	}
	t.Run("not there", func(t *testing.T) {
		r := newRig(t, returns("t-1", time.Hour))
		r.secrets.Close()
		_, err := r.refresher.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "no answer") {
			t.Errorf("%v", err)
		}
	})
}

func TestTokensAreReplacedEverySixteenMinutesAtMost(t *testing.T) {
	for _, test := range []struct {
		lifetime, age time.Duration
		percent       int
	}{
		// The lifetime leaves three runs, and no more.
		{20 * time.Minute, 16 * time.Minute, 66},
		{20 * time.Minute, 16 * time.Minute, 90},
		{30 * time.Minute, 16 * time.Minute, 66},
		{40 * time.Minute, 16 * time.Minute, 90},
		// The percentage is later than that.
		{47*time.Minute + 4*time.Second, 15*time.Minute + 60160*time.Millisecond, 66},
		{time.Hour, 20*time.Minute + 24*time.Second, 66},
		{20 * time.Minute, 18 * time.Minute, 10},
		// Three runs count more than the number of versions.
		{19 * time.Minute, 15 * time.Minute, 66},
		{10 * time.Minute, 6 * time.Minute, 66},
		{10 * time.Minute, 6 * time.Minute, 90},
		{5 * time.Minute, 102 * time.Second, 66},
	} {
		t.Run(fmt.Sprintf("%s with %d", test.lifetime, test.percent), func(t *testing.T) {
			r := newRig(t, returns("t-2", test.lifetime))
			r.options.RefreshPercent = test.percent
			r.refresher = r.another(t)
			r.store("t-1", test.lifetime)
			r.Advance(test.age)
			r.run(t, token.Fresh)
			r.Advance(time.Millisecond)
			r.run(t, token.Refreshed)
		})
	}
}

func TestReportsLifetimesWithTooManyWrites(t *testing.T) {
	for lifetime, want := range map[time.Duration]bool{
		5 * time.Minute:                 true,
		19*time.Minute + 44*time.Second: true,
		19*time.Minute + 45*time.Second: false,
		20 * time.Minute:                false,
		30 * time.Minute:                false,
		time.Hour:                       false,
	} {
		r := newRig(t, returns("t-1", lifetime))
		if report := r.run(t, token.Refreshed); report.WritesTooOften != want {
			t.Errorf("%s: %t, want %t", lifetime, report.WritesTooOften, want)
		}
		if report := r.run(t, token.Fresh); report.WritesTooOften {
			t.Errorf("%s: a run that wrote nothing reports it", lifetime)
		}
	}
}

// An endpoint that returns a token with its remaining lifetime causes one short
// lifetime, and a manual refresh of a long-lived token causes one short interval.
func TestDoesNotReportSingleShortIntervals(t *testing.T) {
	r := newRig(t, returns("t-1", time.Hour))
	r.run(t, token.Refreshed)
	r.endpoint.then(returns("t-2", time.Hour))
	if report, err := r.refresher.Refresh(t.Context()); report.Outcome != token.Refreshed || report.WritesTooOften {
		t.Errorf("a manual refresh: %+v, %v", report, err)
	}
	r.Advance(16 * time.Minute)
	r.endpoint.then(returns("t-3", 3*time.Minute))
	if report, err := r.refresher.Refresh(t.Context()); report.Outcome != token.Refreshed || report.WritesTooOften {
		t.Errorf("a short remaining lifetime: %+v, %v", report, err)
	}
	r.Advance(2 * time.Minute)
	r.endpoint.then(returns("t-4", 3*time.Minute))
	if report := r.run(t, token.Refreshed); !report.WritesTooOften {
		t.Errorf("a second one: %+v", report)
	}
}

func TestUnsavedTokenIsStoredByALaterRun(t *testing.T) {
	r := newRig(t, returns("t-2", time.Hour))
	r.store("t-1", time.Hour)
	r.Advance(50 * time.Minute)
	denied := true
	r.denyWrites(&denied)
	for range 5 {
		if report := r.run(t, token.Failed); report.Remaining == 0 || report.WritesTooOften {
			t.Errorf("%+v, want the life of the stored token", report)
		}
		r.Advance(time.Minute)
	}
	if n := len(r.endpoint.calls()); n != 1 {
		t.Errorf("%d calls of the endpoint in 5 runs, want 1", n)
	}

	t.Run("not after a manual refresh", func(t *testing.T) {
		if report, err := r.refresher.Refresh(t.Context()); err == nil || report.Calls != 1 {
			t.Errorf("%+v, %v", report, err)
		}
	})

	denied = false
	report := r.run(t, token.Refreshed)
	if report.Calls != 0 || report.Lifetime != time.Hour || report.Remaining != time.Hour {
		t.Errorf("%+v, want the token of the last call", report)
	}
	r.run(t, token.Fresh)
	if got, err := r.reader().Token(); err != nil || got.AccessToken != "t-2" {
		t.Errorf("a reader gets %v, %v", got, err)
	}

	t.Run("not if it is due itself", func(t *testing.T) {
		r.Advance(30 * time.Minute)
		r.endpoint.then(returns("t-3", time.Hour), returns("t-4", time.Hour))
		denied = true
		r.run(t, token.Failed)
		r.Advance(21 * time.Minute)
		denied = false
		if report := r.run(t, token.Refreshed); report.Calls != 1 {
			t.Errorf("%+v, want a new token", report)
		}
	})

	t.Run("not if it was stored before", func(t *testing.T) {
		r := newRig(t, returns("t-2", time.Hour))
		r.store("t-1", time.Minute)
		r.Advance(50 * time.Second)
		denied := true
		r.denyWrites(&denied)
		r.run(t, token.Failed)
		denied = false
		r.run(t, token.Refreshed)
		// A person puts a token with a shorter life in its place.
		r.store("t-3", time.Minute)
		r.Advance(50 * time.Second)
		r.endpoint.then(returns("t-4", time.Hour))
		if report := r.run(t, token.Refreshed); report.Calls == 0 {
			t.Errorf("%+v, want a call of the endpoint", report)
		}
	})

	t.Run("not if another refresher stored a newer one", func(t *testing.T) {
		r.Advance(30 * time.Minute)
		r.endpoint.then(returns("t-5", 40*time.Minute))
		denied = true
		r.run(t, token.Failed)
		denied = false
		r.store("t-6", 2*time.Hour)
		r.run(t, token.Fresh)
	})
}

func TestEndpointIsCalledLessOftenWhileItRepeatsTheToken(t *testing.T) {
	r := newRig(t)
	expiry := r.Now().Add(24 * time.Hour)
	r.endpoint.then(func(w http.ResponseWriter, request *http.Request) {
		returns("t-1", expiry.Sub(r.Now()))(w, request)
	})
	r.run(t, token.Refreshed)
	var asked []time.Duration // the remaining life at each call
	for calls := len(r.endpoint.calls()); r.Now().Before(expiry.Add(-time.Minute)); {
		r.Advance(time.Minute)
		report, err := r.refresher.Run(t.Context())
		if err != nil || report.Shortfall != 0 || report.Outcome == token.Refreshed {
			t.Fatalf("%+v, %v", report, err)
		}
		if n := len(r.endpoint.calls()); n != calls {
			calls = n
			asked = append(asked, report.Remaining)
		}
	}
	want := []time.Duration{950, 475, 237, 118, 59, 29, 14, 7, 4, 3, 2, 1}
	for i := range want {
		want[i] *= time.Minute
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("calls, by remaining life (-want +got):\n%s", diff)
	}

	// A new Refresher calls at once; so does a run with another stored token.
	r = newRig(t, returns("t-1", time.Hour))
	r.store("t-1", time.Hour)
	r.Advance(30 * time.Minute)
	r.endpoint.then(returns("t-1", 30*time.Minute))
	r.run(t, token.Unchanged)
	if report := r.run(t, token.Unchanged); report.Calls != 0 {
		t.Errorf("%+v, want no call", report)
	}
	r.refresher = r.another(t)
	if report := r.run(t, token.Unchanged); report.Calls != 1 {
		t.Errorf("%+v, want a call", report)
	}
	r.secrets.Put(tokenSecret, value("t-0", r.Now().Add(-time.Hour), r.Now().Add(10*time.Minute)))
	if report := r.run(t, token.Refreshed); report.Calls != 1 {
		t.Errorf("%+v, want a call", report)
	}
}

// Alarms watch the shortfall.
func TestShortfall(t *testing.T) {
	for _, test := range []struct {
		name          string
		lifetime, age time.Duration
		answer        http.HandlerFunc
		outcome       token.Outcome
		shortfall     time.Duration
	}{
		{"nothing is due", time.Hour, time.Minute, hangsUp, token.Fresh, 0},
		{"a failure with time for three runs", time.Hour, 56*time.Minute + 55*time.Second, answers(400, ""),
			token.Failed, 0},
		{"a failure with less", time.Hour, 56*time.Minute + 56*time.Second, answers(400, ""), token.Failed,
			time.Second},
		{"a short-lived token that is not due", 2 * time.Minute, 40 * time.Second, hangsUp, token.Fresh, 0},
		{"a failure with such a token", 2 * time.Minute, 42 * time.Second, answers(400, ""), token.Failed,
			1200 * time.Millisecond},
		{"an expired token", time.Hour, time.Hour, answers(400, ""), token.Failed, 185 * time.Second},
		{"a new token", time.Hour, time.Hour, returns("t-2", time.Hour), token.Refreshed, 0},
		{"a new token that ends before the next run", time.Hour, time.Hour, returns("t-2", 30*time.Second),
			token.Refreshed, 33 * time.Second},
		{"no newer token according to the endpoint", time.Hour, 58 * time.Minute, returns("t-1", 2*time.Minute),
			token.Unchanged, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t, test.answer)
			r.store("t-1", test.lifetime)
			r.Advance(test.age)
			if report := r.run(t, test.outcome); report.Shortfall != test.shortfall {
				t.Errorf("%+v, want a shortfall of %s", report, test.shortfall)
			}
		})
	}
	t.Run("no token yet", func(t *testing.T) {
		if report := newRig(t, answers(400, "")).run(t, token.Failed); report.Shortfall != time.Minute {
			t.Errorf("%+v", report)
		}
	})
}

func TestEveryWriteStoresANewToken(t *testing.T) {
	r := newRig(t)
	n := 0
	r.endpoint.then(func(w http.ResponseWriter, request *http.Request) {
		n++
		switch {
		case n%3 == 0:
			answers(400, "")(w, request)
		default:
			returns(fmt.Sprint("t-", n/5), time.Hour)(w, request)
		}
	})
	for range 600 {
		_, _ = r.refresher.Run(t.Context())
		r.Advance(time.Minute)
	}
	values := r.secrets.Values(tokenSecret)
	if len(values) < 10 || len(slices.Compact(slices.Clone(values))) != len(values) ||
		len(r.secrets.Calls("PutSecretValue")) != len(values) {
		t.Errorf("%d values, %d puts", len(values), len(r.secrets.Calls("PutSecretValue")))
	}
}

// With a refresh every 864 seconds, the oldest of 100 versions is a day old when the next
// one is written.
func TestASecretIsNotFullWith100VersionsADay(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{864 * time.Second: 0,
		828 * time.Second: 99 * 828 * time.Second} {
		r := newRig(t)
		r.options.Interval = 36 * time.Second
		r.refresher = r.another(t)
		r.endpoint.then(returns("t-1", age+4*r.options.Interval))
		if report := r.run(t, token.Refreshed); !report.WritesTooOften || report.FullAfter != want {
			t.Errorf("%s: %+v, want full after %s", age, report, want)
		}
	}
}
