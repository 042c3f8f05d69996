package token_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"

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
	if n := r.store.loads(); n != want {
		t.Fatalf("%d reads of the secret, want %d", n, want)
	}
}

// heldToken returns a rig and a reader that holds the token t-1.
func heldToken(t *testing.T, lifetime time.Duration) (*rig, *token.Reader) {
	t.Helper()
	r := newRig(t, hangsUp)
	r.put("t-1", lifetime)
	reader := r.reader()
	expectToken(t, reader, "t-1")
	return r, reader
}

// down makes the store of the token fail.
func down(r *rig) { r.store.fails = map[string]error{"Load": errors.New("no answer")} }

func TestTokenIsCachedUntilANewerOneShouldExistAndNotReturnedInItsLastSeconds(t *testing.T) {
	for lifetime, left := range map[time.Duration]struct{ again, last time.Duration }{
		24 * time.Hour:   {time.Minute, 5 * time.Second},
		time.Hour:        {time.Minute, 5 * time.Second},
		2 * time.Minute:  {30 * time.Second, 5 * time.Second},
		50 * time.Second: {12500 * time.Millisecond, 5 * time.Second},
		20 * time.Second: {5 * time.Second, 2 * time.Second},
		5 * time.Second:  {1250 * time.Millisecond, 500 * time.Millisecond},
	} {
		bubble(t, lifetime.String(), func(t *testing.T) {
			r, held := heldToken(t, lifetime)
			time.Sleep(lifetime - left.again - time.Millisecond)
			got, err := held.Token()
			if err != nil || got.AccessToken != "t-1" || got.Type() != "Bearer" ||
				time.Until(got.Expiry) != left.again+time.Millisecond {
				t.Fatalf("Token = %v, %v", got, err)
			}
			got.AccessToken = "what a caller does with it"
			expectToken(t, held, "t-1")
			r.expectReads(t, 1)
			time.Sleep(time.Millisecond)
			expectToken(t, held, "t-1")
			r.expectReads(t, 2)
			time.Sleep(left.again - left.last - time.Nanosecond)
			expectToken(t, held, "t-1")
			expectToken(t, r.reader(), "t-1")
			time.Sleep(time.Nanosecond)
			for name, reader := range map[string]*token.Reader{"one that held it": held, "a new one": r.reader()} {
				if got, err := reader.Token(); !errors.Is(err, token.ErrExpired) || got != nil {
					t.Errorf("%s: Token = %v, %v, want ErrExpired", name, got, err)
				}
			}
		})
	}
}

func TestOldTokenIsUsedUntilANewerOneExists(t *testing.T) {
	for name, change := range map[string]func(r *rig){
		"the same": func(*rig) {},
		"down":     down,
		"nonsense": func(r *rig) { r.store.put("nonsense") },
		"emptied":  func(r *rig) { r.store.put("") },
		"older": func(r *rig) {
			r.store.put(value("t-0", time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)))
		},
	} {
		bubble(t, name, func(t *testing.T) {
			r, reader := heldToken(t, time.Hour)
			change(r)
			time.Sleep(59 * time.Minute)
			before := r.store.loads()
			for range 55 { // seconds
				expectToken(t, reader, "t-1")
				expectToken(t, reader, "t-1")
				time.Sleep(time.Second)
			}
			if name != "down" {
				r.expectReads(t, before+55)
			}
			if got, err := reader.Token(); err == nil {
				t.Errorf("Token = %v, want an error", got)
			}
		})
	}
}

func TestTokenReportsWhyThereIsNone(t *testing.T) {
	for want, arrange := range map[error]func(r *rig){
		token.ErrNone:       func(r *rig) { r.store.put("\uFEFF\r\n ") }, // of a person who creates a secret
		token.ErrUnreadable: func(r *rig) { r.store.put(canaryToken) },
		token.ErrExpired:    func(r *rig) { r.put(canaryToken, time.Minute); time.Sleep(time.Minute) },
		denied:              func(r *rig) { r.store.fails = map[string]error{"Load": denied} },
	} {
		bubble(t, want.Error(), func(t *testing.T) {
			r := newRig(t, hangsUp)
			arrange(r)
			reader := r.reader()
			for range 10 {
				if got, err := reader.Token(); got != nil || err == nil || err.Error() != want.Error() ||
					!errors.Is(err, want) {
					t.Errorf("Token = %v, %v, want %v", got, err, want)
				}
			}
			r.expectReads(t, 1) // a second
			r.store.fails = nil
			r.put("t-1", time.Hour)
			time.Sleep(time.Second)
			expectToken(t, reader, "t-1")
		})
	}
}

func TestConcurrentCallersShareOneRead(t *testing.T) {
	for _, filled := range []bool{true, false} {
		bubble(t, fmt.Sprint(filled), func(t *testing.T) {
			r := newRig(t, hangsUp)
			if filled {
				r.put("t-1", time.Hour)
			}
			reader := r.reader()
			r.store.takes = time.Second // until all others wait
			var group sync.WaitGroup
			for range 50 {
				group.Go(func() {
					got, err := reader.Token()
					if filled && (err != nil || got.AccessToken != "t-1") || !filled && !errors.Is(err, token.ErrNone) {
						t.Errorf("Token = %v, %v", got, err)
					}
				})
			}
			group.Wait()
			r.expectReads(t, 1)
		})
	}
}

// whileReading calls do while a caller of the reader is reading the secret, and returns what that caller gets.
func whileReading(ctx context.Context, r *rig, reader *token.Reader, do func()) (got token.Bearer, err error) {
	r.store.takes = time.Second
	var group sync.WaitGroup
	group.Go(func() { got, err = reader.Bearer(ctx) })
	synctest.Wait()
	do()
	group.Wait()
	return got, err
}

func TestCancelledCallerDoesNotAffectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, hangsUp)
		r.put("t-1", time.Hour)
		reader := r.reader()
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := whileReading(ctx, r, reader, cancel); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that is cancelled while it reads gets %v", err)
		}
		got, err := whileReading(t.Context(), r, reader, func() {
			if _, err := reader.Bearer(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("one that is cancelled while another one reads gets %v", err)
			}
		})
		if err != nil || got.AccessToken.Reveal() != "t-1" {
			t.Errorf("the other caller gets %v, %v", got, err)
		}
	})
}

func TestCallersDoNotWaitWhileTheTokenIsValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reader := heldToken(t, time.Hour)
		time.Sleep(59*time.Minute + 30*time.Second)
		r.put("t-2", time.Hour)
		got, err := whileReading(t.Context(), r, reader, func() { expectToken(t, reader, "t-1") })
		if err != nil || got.AccessToken.Reveal() != "t-2" {
			t.Errorf("the reading caller gets %v, %v", got, err)
		}
		expectToken(t, reader, "t-2")
	})
}

func TestDropMakesTheReaderReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reader := heldToken(t, time.Hour)
		r.put("t-2", time.Hour)
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
		time.Sleep(time.Second)
		r.put("t-3", time.Hour)
		reader.Drop("t-2")
		expectToken(t, reader, "t-3")
		r.expectReads(t, 4)

		// A dropped token is not returned if the read fails.
		down(r)
		reader.Drop("t-3")
		if got, err := reader.Token(); err == nil {
			t.Errorf("Token = %v", got)
		}
	})
}

// hanging is a source that does not answer.
type hanging struct{}

func (hanging) Load(ctx context.Context) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func TestAReadHasItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := token.NewReader(hanging{}).Token()
		if time.Since(start) != 5*time.Second || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}
