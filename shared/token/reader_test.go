package token_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"golang.org/x/oauth2"

	"payhook.example/shared/awstest"
	"payhook.example/shared/token"
)

var _ oauth2.TokenSource = (*token.Reader)(nil)

// expectToken expects a reader to return a token.
func expectToken(t *testing.T, reader *token.Reader, want string) {
	t.Helper()
	if got, err := reader.Token(); err != nil || got.AccessToken != want {
		t.Fatalf("Token = %v, %v, want %s", got, err, want)
	}
}

// expectReads expects that number of reads of the secret in total.
func (r *rig) expectReads(t *testing.T, want int) {
	t.Helper()
	if n := len(r.secrets.Calls("GetSecretValue")); n != want {
		t.Fatalf("%d reads of the secret, want %d", n, want)
	}
}

func TestTokenIsCachedUntilANewerOneShouldExist(t *testing.T) {
	r := newRig(t, hangsUp)
	reader := r.reader()
	expires := r.Now().Add(time.Hour)
	r.store("t-1", time.Hour)
	got, err := reader.Token()
	if err != nil || got.AccessToken != "t-1" || got.Type() != "Bearer" || !got.Expiry.Equal(expires) {
		t.Fatalf("Token = %v, %v", got, err)
	}
	got.AccessToken = "what a caller does with it"
	for range 59 {
		r.store("t-2", time.Hour)
		expectToken(t, reader, "t-1")
		r.Advance(time.Minute - time.Millisecond)
	}
	r.expectReads(t, 1)
	r.Advance(59 * time.Millisecond)
	expectToken(t, reader, "t-2")
	r.expectReads(t, 2)
}

func TestTokenIsNotReturnedInItsLastSeconds(t *testing.T) {
	for lifetime, last := range map[time.Duration]time.Duration{
		24 * time.Hour:   5 * time.Second,
		time.Hour:        5 * time.Second,
		50 * time.Second: 5 * time.Second,
		20 * time.Second: 2 * time.Second,
		5 * time.Second:  500 * time.Millisecond,
	} {
		t.Run(lifetime.String(), func(t *testing.T) {
			r := newRig(t, hangsUp)
			r.store("t-1", lifetime)
			held := r.reader()
			expectToken(t, held, "t-1")
			r.Advance(lifetime - last - time.Nanosecond)
			expectToken(t, held, "t-1")
			expectToken(t, r.reader(), "t-1")
			r.Advance(time.Nanosecond)
			r.Advance(time.Second) // the result of the last read is no longer used
			for name, reader := range map[string]*token.Reader{"one that held it": held, "a new one": r.reader()} {
				if got, err := reader.Token(); !errors.Is(err, token.ErrExpired) || got != nil {
					t.Errorf("%s: Token = %v, %v, want ErrExpired", name, got, err)
				}
			}
		})
	}
	t.Run("to the nanosecond", func(t *testing.T) {
		r := newRig(t, hangsUp)
		r.store("t-1", time.Hour)
		reader := r.reader()
		expectToken(t, reader, "t-1")
		r.Advance(time.Hour - 5*time.Second - time.Millisecond)
		expectToken(t, reader, "t-1") // which was read just now
		r.Advance(time.Millisecond)
		if got, err := reader.Token(); !errors.Is(err, token.ErrExpired) {
			t.Errorf("Token = %v, %v, want ErrExpired", got, err)
		}
	})
}

func TestOldTokenIsUsedUntilANewerOneExists(t *testing.T) {
	r := newRig(t, hangsUp)
	r.store("t-1", time.Hour)
	reader := r.reader()
	expectToken(t, reader, "t-1")
	r.Advance(59 * time.Minute)
	for range 54 { // seconds
		expectToken(t, reader, "t-1")
		expectToken(t, reader, "t-1")
		r.Advance(time.Second)
	}
	r.expectReads(t, 1+54)

	t.Run("Secrets Manager is down or the secret is invalid", func(t *testing.T) {
		for name, broken := range map[string]func(r *rig){
			"down":     func(r *rig) { r.secrets.Close() },
			"nonsense": func(r *rig) { r.secrets.Put(tokenSecret, "nonsense") },
			"emptied":  func(r *rig) { r.secrets.Create(tokenSecret) },
			"older": func(r *rig) {
				r.secrets.Put(tokenSecret, value("t-0", r.Now().Add(-2*time.Hour), r.Now().Add(-time.Hour)))
			},
		} {
			r := newRig(t, hangsUp)
			r.store("t-1", time.Hour)
			reader := r.reader()
			expectToken(t, reader, "t-1")
			broken(r)
			r.Advance(59*time.Minute + 54*time.Second)
			expectToken(t, reader, "t-1")
			expectToken(t, reader, "t-1")
			if n := len(r.secrets.Calls("GetSecretValue")); n > 2 {
				t.Errorf("%s: %d reads, want one a second", name, n)
			}
			r.Advance(time.Second)
			if got, err := reader.Token(); err == nil {
				t.Errorf("%s: Token = %v, want an error", name, got)
			}
		}
	})
}

func TestTokenReportsWhyThereIsNone(t *testing.T) {
	tests := map[string]struct {
		arrange func(r *rig)
		is      error
		text    string
	}{
		"no value": {func(*rig) {}, token.ErrNone, "token: no token is stored yet"},
		"unreadable": {func(r *rig) { r.secrets.Put(tokenSecret, canaryToken) }, token.ErrUnreadable,
			"token: the stored value is not a token"},
		"expired": {func(r *rig) { r.store(canaryToken, time.Minute); r.Advance(time.Minute) }, token.ErrExpired,
			"token: the stored token has expired"},
		"denied": {func(r *rig) {
			r.secrets.Before = func(awstest.SecretCall) (string, bool) { return "AccessDeniedException", false }
		}, nil, "token: the secret with the token: GetSecretValue: AccessDeniedException"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, hangsUp)
			test.arrange(r)
			got, err := r.reader().Token()
			if got != nil || err == nil || err.Error() != test.text || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("Token = %v, %v, want %s", got, err, test.text)
			}
			expectNoCanary(t, fmt.Sprintf("%v %+v", err, err))
		})
	}
}

func TestFailureCausesOneReadASecond(t *testing.T) {
	r := newRig(t, hangsUp)
	reader := r.reader()
	for range 10 {
		if _, err := reader.Token(); !errors.Is(err, token.ErrNone) {
			t.Fatal(err)
		}
	}
	r.expectReads(t, 1)
	r.store("t-1", time.Hour)
	r.Advance(time.Second)
	expectToken(t, reader, "t-1")
	r.expectReads(t, 2)
}

func TestConcurrentCallersShareOneRead(t *testing.T) {
	for _, filled := range []bool{true, false} {
		r := newRig(t, hangsUp)
		if filled {
			r.store("t-1", time.Hour)
		}
		reader := r.reader()
		const callers = 50
		arrived := make(chan struct{}, callers)
		r.secrets.Before = func(awstest.SecretCall) (string, bool) {
			for range callers {
				<-arrived
			}
			return "", false
		}
		var group sync.WaitGroup
		for range callers {
			group.Go(func() {
				arrived <- struct{}{}
				got, err := reader.Token()
				if filled && (err != nil || got.AccessToken != "t-1") || !filled && !errors.Is(err, token.ErrNone) {
					t.Errorf("Token = %v, %v", got, err)
				}
			})
		}
		group.Wait()
		r.expectReads(t, 1)
	}
}

// whileReading calls do while a caller of the reader, with context ctx, is
// reading the secret, and returns what that caller gets in the end.
func whileReading(r *rig, reader *token.Reader, ctx context.Context, do func()) (got *oauth2.Token, err error) {
	reading, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.secrets.Before = func(awstest.SecretCall) (string, bool) {
		once.Do(func() { close(reading); <-proceed })
		return "", false
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		got, err = reader.TokenContext(ctx)
	}()
	<-reading
	do()
	if ctx.Err() != nil {
		<-done // gives up before the answer comes
	}
	close(proceed)
	<-done
	return got, err
}

func TestCancelledCallerDoesNotAffectOthers(t *testing.T) {
	t.Run("while another one reads", func(t *testing.T) {
		r := newRig(t, hangsUp)
		r.store("t-1", time.Hour)
		reader := r.reader()
		got, err := whileReading(r, reader, t.Context(), func() {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := reader.TokenContext(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("the cancelled caller gets %v", err)
			}
		})
		if err != nil || got.AccessToken != "t-1" {
			t.Errorf("the other caller gets %v, %v", got, err)
		}
	})
	t.Run("while it reads itself", func(t *testing.T) {
		r := newRig(t, hangsUp)
		r.store("t-1", time.Hour)
		reader := r.reader()
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := whileReading(r, reader, ctx, cancel); !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled caller gets %v", err)
		}
		expectToken(t, reader, "t-1")
	})
}

func TestCallersDoNotWaitWhileTheOldTokenIsValid(t *testing.T) {
	r := newRig(t, hangsUp)
	r.store("t-1", time.Hour)
	reader := r.reader()
	expectToken(t, reader, "t-1")
	r.Advance(59*time.Minute + 30*time.Second)
	r.store("t-2", time.Hour)
	got, err := whileReading(r, reader, t.Context(), func() { expectToken(t, reader, "t-1") })
	if err != nil || got.AccessToken != "t-2" {
		t.Errorf("the reading caller gets %v, %v", got, err)
	}
	expectToken(t, reader, "t-2")
}

func TestDropMakesTheReaderReadAgain(t *testing.T) {
	r := newRig(t, hangsUp)
	r.store("t-1", time.Hour)
	reader := r.reader()
	expectToken(t, reader, "t-1")
	r.store("t-2", time.Hour)
	reader.Drop("t-0") // not the cached one
	expectToken(t, reader, "t-1")
	r.expectReads(t, 1)

	reader.Drop("t-1")
	expectToken(t, reader, "t-2")
	r.expectReads(t, 2)

	// The secret has no other token, so it is read once, and again after a second.
	for range 5 {
		reader.Drop("t-2")
		expectToken(t, reader, "t-2")
	}
	r.expectReads(t, 3)
	r.Advance(time.Second)
	r.store("t-3", time.Hour)
	reader.Drop("t-2")
	expectToken(t, reader, "t-3")
	r.expectReads(t, 4)

	// A dropped token is not returned if the read fails.
	r.secrets.Close()
	reader.Drop("t-3")
	if got, err := reader.Token(); err == nil {
		t.Errorf("Token = %v", got)
	}
}

func TestReaderIsSafeForConcurrentUse(t *testing.T) {
	r := newRig(t, returns("t-1", time.Minute))
	r.run(t, token.Refreshed)
	reader := r.reader()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 100 {
				got, err := reader.Token()
				if err == nil && strings.HasPrefix(got.AccessToken, "t-") {
					reader.Drop(got.AccessToken)
				} else {
					t.Errorf("Token = %v, %v", got, err)
				}
				r.Advance(time.Millisecond)
			}
		})
	}
	group.Wait()
}

func TestReaderWorksWithTheOAuth2Client(t *testing.T) {
	r := newRig(t, hangsUp)
	// oauth2 uses the real clock, which is far behind that of the rig.
	r.store("t-1", time.Hour)
	server := newEndpoint(t, func(w http.ResponseWriter, request *http.Request) {
		_, _ = w.Write([]byte(request.Header.Get("Authorization")))
	})
	response, err := oauth2.NewClient(t.Context(), r.reader()).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if got := server.calls()[0].Header.Get("Authorization"); got != "Bearer t-1" {
		t.Errorf("Authorization: %s", got)
	}
}

// deadlineGetter is a client of Secrets Manager that records the deadline of a call.
type deadlineGetter struct{ deadline time.Time }

func (g *deadlineGetter) GetSecretValue(ctx context.Context, _ *secretsmanager.GetSecretValueInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	g.deadline, _ = ctx.Deadline()
	return nil, errors.New("no answer")
}

func TestAReadHasItsTimeout(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: 5 * time.Second, time.Hour: time.Hour} {
		var secrets deadlineGetter
		before := time.Now()
		_, _ = token.NewReader(&secrets, tokenSecret, token.ReaderOptions{Timeout: timeout}).Token()
		if secrets.deadline.Before(before.Add(want)) || secrets.deadline.After(time.Now().Add(want)) {
			t.Errorf("%s: the deadline is after %s, want %s", timeout, secrets.deadline.Sub(before), want)
		}
	}
}

// A newer token is looked for in the last minute of a token, or in its last quarter.
func TestWhenANewerTokenIsLookedFor(t *testing.T) {
	for lifetime, before := range map[time.Duration]time.Duration{time.Hour: time.Minute,
		2 * time.Minute: 30 * time.Second} {
		r := newRig(t, hangsUp)
		r.store("t-1", lifetime)
		reader := r.reader()
		for i, step := range []time.Duration{0, lifetime - before - time.Millisecond, time.Millisecond} {
			r.Advance(step)
			expectToken(t, reader, "t-1")
			r.expectReads(t, 1+i/2)
		}
	}
}
