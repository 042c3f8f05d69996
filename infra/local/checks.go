package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
	"uuid"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	smithytime "github.com/aws/smithy-go/time"
	"golang.org/x/oauth2"

	"payhook.example/shared/claimcheck"
	"payhook.example/shared/intake"
	"payhook.example/shared/parking"
	"payhook.example/shared/payment"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
	"payhook.example/shared/token"
)

// check is one thing of the table that takes more than a webhook.
type check struct {
	topic      string
	what, must string
	// do does it, and returns what came of it and whether that is as it must be.
	do func(context.Context) (got string, right bool, err error)

	// What came of it.
	got   string
	right bool
	took  time.Duration
	err   error
}

// runChecks does the checks, one after another. Some depend on those before.
func runChecks(ctx context.Context, checks []*check) error {
	for _, c := range checks {
		begun := time.Now()
		c.got, c.right, c.err = c.do(ctx)
		c.took = time.Since(begun)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// checksOf gives checks a topic.
func checksOf(topic string, checks []*check) []*check {
	for _, c := range checks {
		c.topic = topic
	}
	return checks
}

// invoke invokes a function, by the name of its folder, and decodes its answer.
func (s *stack) invoke(ctx context.Context, function, event string, answer any) error {
	name := s.Functions[function]
	out, err := lambda.NewFromConfig(s.AWS).Invoke(ctx,
		&lambda.InvokeInput{FunctionName: &name, Payload: []byte(event)})
	if err != nil {
		return err
	}
	if out.FunctionError != nil {
		return fmt.Errorf("the %s function failed: %s", function, out.Payload)
	}
	return json.Unmarshal(out.Payload, answer)
}

// tokenRun is what a run of the token function says.
type tokenRun struct {
	Outcome          token.Outcome
	RemainingSeconds int
	Cause            string
}

// What the token function is invoked with.
const (
	asScheduled = `{}`
	refreshNow  = `{"refresh":true}`
)

func (s *stack) runToken(ctx context.Context, event string) (run tokenRun, err error) {
	return run, s.invoke(ctx, "token", event, &run)
}

func (s *stack) tokenReader() *token.Reader {
	return token.NewReader(secretsmanager.NewFromConfig(s.AWS), s.TokenSecret, token.ReaderOptions{})
}

// firstToken sees to it that the token is in the secret.
func (s *stack) firstToken() *check {
	return &check{
		topic: ofToken, what: "the token function runs", must: "a valid token is in the secret",
		do: func(ctx context.Context) (string, bool, error) {
			// The schedule may have been quicker.
			run, err := s.runToken(ctx, asScheduled)
			if err != nil {
				return "", false, err
			}
			if run.Outcome != token.Refreshed && run.Outcome != token.Fresh {
				return string(run.Outcome), false, errors.New(run.Cause)
			}
			if _, err := s.tokenReader().TokenContext(ctx); err != nil {
				return "", false, err
			}
			return fmt.Sprintf("valid for %d s", run.RemainingSeconds), true, nil
		},
	}
}

// shortLife is a token's lifetime that leaves time to wait for its end: the
// shortest that the simulated service is meant for.
const shortLife = 5 * time.Second

// tokenChecks returns what is to be seen of the token once there is one. They
// need the simulated service, and leave tokens behind that live as long as ever.
func (s *stack) tokenChecks() []*check {
	var calls *caller
	return checksOf(ofToken, []*check{
		{what: "a protected call with it", must: "200", do: func(ctx context.Context) (string, bool, error) {
			var err error
			if calls, err = s.newCaller(); err != nil {
				return "", false, err
			}
			status, err := calls.call(ctx)
			return fmt.Sprint(status), status == http.StatusOK, err
		}},
		{what: fmt.Sprintf("a token lives %d s, and a client goes on calling", int(shortLife.Seconds())),
			must: "replaced before it expires, 0 calls fail",
			do: func(ctx context.Context) (string, bool, error) {
				if err := s.shown.SetTokenLifetime(ctx, shortLife); err != nil {
					return "", false, err
				}
				_, err := s.runToken(ctx, refreshNow)
				err = errors.Join(err, s.shown.SetTokenLifetime(ctx, paymenttest.DefaultTokenLifetime))
				if err != nil {
					return "", false, err
				}
				// Who looks for the first time now has the short-lived one.
				if calls, err = s.newCaller(); err != nil {
					return "", false, err
				}
				old, err := calls.reader.TokenContext(ctx)
				if err != nil {
					return "", false, err
				}
				left := time.Duration(0) // of the old one, when it was replaced
				n, failed, err := calls.during(ctx, func() error {
					if err := s.awaitReplaced(ctx, old); err != nil {
						return err
					}
					left = time.Until(old.Expiry)
					return calls.awaitOther(ctx, old)
				})
				return fmt.Sprintf("replaced %.1f s before, %d of %d calls failed", left.Seconds(), failed, n),
					left > 0 && failed == 0 && n > 0, err
			}},
		{what: "the token endpoint is down", must: "the refresh fails, 0 calls fail",
			do: func(ctx context.Context) (string, bool, error) {
				if err := s.shown.Misbehave(ctx, paymenttest.Token,
					paymenttest.Fault{Name: paymenttest.Down}); err != nil {
					return "", false, err
				}
				var run tokenRun
				n, failed, err := calls.during(ctx, func() (err error) {
					run, err = s.runToken(ctx, refreshNow)
					return err
				})
				err = errors.Join(err, s.shown.Misbehave(ctx, paymenttest.Token, paymenttest.Fault{}))
				return fmt.Sprintf("the refresh %s, %d of %d calls failed", run.Outcome, failed, n),
					run.Outcome == token.Failed && run.RemainingSeconds > 0 && failed == 0 && n > 0, err
			}},
		{what: "the token endpoint is back", must: "refreshed", do: func(ctx context.Context) (string, bool, error) {
			run, err := s.runToken(ctx, refreshNow)
			return string(run.Outcome), run.Outcome == token.Refreshed, err
		}},
	})
}

// awaitReplaced runs the token function, as its schedule would every minute,
// until another token than old is in the secret. It fails if old expires before.
func (s *stack) awaitReplaced(ctx context.Context, old *oauth2.Token) error {
	for {
		run, err := s.runToken(ctx, asScheduled)
		if err != nil {
			return err
		}
		// The schedule itself may have been quicker.
		if now, err := s.tokenReader().TokenContext(ctx); err == nil && now.AccessToken != old.AccessToken {
			return nil
		}
		if time.Now().After(old.Expiry) {
			return fmt.Errorf("the token has expired, and the token function says %s %s", run.Outcome, run.Cause)
		}
		if err := waitUntil(ctx, time.Now().Add(100*time.Millisecond)); err != nil {
			return err
		}
	}
}

func waitUntil(ctx context.Context, t time.Time) error {
	return smithytime.SleepWithContext(ctx, time.Until(t))
}

// caller is a client's service: it calls the protected API with the token in
// the secret.
type caller struct {
	reader *token.Reader
	client *http.Client
	url    string
}

func (s *stack) newCaller() (*caller, error) {
	base, err := url.Parse(s.shown.BaseURL())
	if err != nil {
		return nil, err
	}
	reader := s.tokenReader()
	client := s.client
	if client == nil {
		client = direct
	}
	return &caller{reader, &http.Client{Transport: token.NewTransport(reader, base, client.Transport),
		Timeout: 10 * time.Second},
		s.shown.BaseURL() + paymenttest.ProtectedPath + "payments"}, nil
}

// call makes one call.
func (c *caller) call(ctx context.Context) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, nil
}

// during makes one call after another while do runs, and counts them. The error
// is that of do, or of the first call that failed.
func (c *caller) during(ctx context.Context, do func() error) (calls, failed int, err error) {
	ended := make(chan struct{})
	var first error
	var calling sync.WaitGroup
	calling.Go(func() {
		const pace = 20 * time.Millisecond
		ticker := time.NewTicker(pace)
		defer ticker.Stop()
		for {
			status, err := c.call(ctx)
			calls++
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("a call was answered %d", status)
			}
			if err != nil {
				failed++
				first = errors.Join(first, err)
			}
			select {
			case <-ticker.C:
			case <-ended:
				return
			}
		}
	})
	err = do()
	close(ended)
	calling.Wait()
	if err == nil {
		err = first
	}
	return calls, failed, err
}

// awaitOther waits until another token than old is used for calls.
func (c *caller) awaitOther(ctx context.Context, old *oauth2.Token) error {
	for {
		now, err := c.reader.TokenContext(ctx)
		if err != nil || now.AccessToken != old.AccessToken {
			return err
		}
		if err := waitUntil(ctx, time.Now().Add(20*time.Millisecond)); err != nil {
			return err
		}
	}
}

func (s *stack) s3() *s3.Client {
	return s3.NewFromConfig(s.AWS, func(o *s3.Options) { o.UsePathStyle = true })
}

func (s *stack) store() *parking.Store { return parking.NewStore(s.s3(), s.ParkingBucket) }

// proofIsRight reports whether something parked has the proof of what a webhook must
// prove, and no other.
func (s *stack) proofIsRight(p parking.Parked) bool {
	signed, certified := p.Signature != "" && len(p.JWK) > 0, p.Certificate != nil && len(p.Certificate.Chain) > 0
	return signed == usesSignature(s.opts.settings) && certified == usesMTLS(s.opts.settings)
}

// parkedDelivery returns the one thing that is parked under a deliveryId.
func (s *stack) parkedDelivery(ctx context.Context, id string) (name string, p parking.Parked, err error) {
	list, err := s.store().FindDelivery(ctx, id)
	if err != nil {
		return "", p, err
	}
	if len(list) != 1 {
		return "", p, fmt.Errorf("delivery %s is parked %d times", id, len(list))
	}
	p, err = s.store().Get(ctx, list[0])
	return list[0], p, err
}

// replay has the redrive function replay one thing that is parked, in a version if
// it is a conflict, and publish what that leaves pending. It returns the outcome.
func (s *stack) replay(ctx context.Context, name string, version intake.Version) (outcome string, err error) {
	event, err := json.Marshal(map[string]any{"replay": []string{name}, "version": version})
	if err != nil {
		return "", err
	}
	var report struct {
		Replayed []struct{ Name, Outcome, Cause string }
	}
	if err := s.invoke(ctx, "redrive", string(event), &report); err != nil {
		return "", err
	}
	if len(report.Replayed) != 1 || report.Replayed[0].Name != name {
		return "", errors.New("the redrive function does not say what became of it")
	}
	result := report.Replayed[0]
	switch result.Outcome {
	case "", string(intake.Accepted): // it could not be read, or not be marked as replayed
		if result.Cause != "" {
			return result.Outcome, errors.New(result.Cause)
		}
	}
	return result.Outcome, s.invoke(ctx, "redrive", "{}", &struct{}{})
}

// settle has the redrive function record that what is parked needs no replay, and returns its
// state after that.
func (s *stack) settle(ctx context.Context, name string) (parking.State, error) {
	event, err := json.Marshal(map[string]any{"settle": []string{name}, "reason": "shown in the table",
		"by": "payhook"})
	if err != nil {
		return "", err
	}
	var report struct {
		Settled []struct{ Name, Cause string }
	}
	if err := s.invoke(ctx, "redrive", string(event), &report); err != nil {
		return "", err
	}
	if len(report.Settled) != 1 || report.Settled[0].Cause != "" {
		return "", fmt.Errorf("it is not settled: %+v", report.Settled)
	}
	return s.decision(ctx, name)
}

// decision returns what was decided about something that is parked.
func (s *stack) decision(ctx context.Context, name string) (parking.State, error) {
	state, _, err := s.store().Decision(ctx, name)
	return state, err
}

// awaitArrival waits for an event out of a delivery behind the rule for
// released payments.
func (a *arrivals) awaitArrival(ctx context.Context, timeout time.Duration, eventID,
	deliveryID string) (found arrival, err error) {
	_, err = a.await(ctx, timeout, func(all []arrival) bool {
		for _, one := range all {
			if one.rule == released && one.eventID == eventID && one.deliveryID == deliveryID {
				found = one
				return true
			}
		}
		return false
	})
	return found, err
}

// keptChecks returns what is to be seen of deliveries that are kept aside, and
// of events that the bus does not carry.
func (s *stack) keptChecks(in *arrivals) []*check {
	arrivalTimeout := s.within(10 * time.Second)
	send := func(ctx context.Context, payload []byte) (int, error) {
		got, err := s.shown.Sender().Send(ctx, paymenttest.Webhook{URL: s.WebhookURL, Payload: payload})
		return got.Status, err
	}
	// parked sends a delivery and looks for it where it must be parked.
	parked := func(ctx context.Context, id string, payload []byte, reason parking.Reason) (name, got string, right bool,
		err error) {
		if _, err = send(ctx, payload); err != nil {
			return "", "", false, err
		}
		name, p, err := s.parkedDelivery(ctx, id)
		if err != nil {
			return "", "", false, err
		}
		same := "its bytes"
		if !bytes.Equal(p.Payload, payload) {
			same = "other bytes"
		}
		right = p.Reason == reason && same == "its bytes" && p.DeliveryID == id && s.proofIsRight(p)
		return name, fmt.Sprintf("%s, %s", p.Reason, same), right, nil
	}
	event := paymenttest.Event()
	altered := event
	altered.EventData.Amount = "9250.00"
	conflicting := uuid.New().String()
	other, second := paymenttest.Event(), uuid.New().String()
	var conflict, invalid, refused string // names of what is parked

	return checksOf(ofParked, []*check{
		{what: "an invalid delivery, looked up where it is parked", must: "invalid, its bytes",
			do: func(ctx context.Context) (string, bool, error) {
				event := paymenttest.Event()
				event.EventName = "RELEASED"
				id := uuid.New().String()
				name, got, right, err := parked(ctx, id, paymenttest.RawDelivery(id, paymenttest.Encode(event)),
					parking.Invalid)
				invalid = name
				return got, right, err
			}},
		{what: "it is replayed, and stays invalid", must: "invalid, open",
			do: func(ctx context.Context) (string, bool, error) {
				outcome, err := s.replay(ctx, invalid, intake.NoVersion)
				if err != nil {
					return outcome, false, err
				}
				state, err := s.decision(ctx, invalid)
				return outcome + ", " + string(state), outcome == string(intake.Invalid) && state == parking.Open, err
			}},
		{what: "it is settled", must: "settled", do: func(ctx context.Context) (string, bool, error) {
			state, err := s.settle(ctx, invalid)
			return string(state), state == parking.Settled, err
		}},
		{what: "an event that EventBridge rejects, with an integer of 70 bits", must: "200, unpublishable",
			do: func(ctx context.Context) (got string, right bool, err error) {
				refused, got, right, err = s.rejectedByTheBus(ctx, send)
				return got, right, err
			}},
		{what: "it is settled", must: "settled", do: func(ctx context.Context) (string, bool, error) {
			state, err := s.settle(ctx, refused)
			return string(state), state == parking.Settled, err
		}},
		{what: "a conflicting one", must: "conflict, its bytes",
			do: func(ctx context.Context) (got string, right bool, err error) {
				if _, err := send(ctx, paymenttest.Delivery(event)); err != nil {
					return "", false, err
				}
				conflict, got, right, err = parked(ctx, conflicting,
					paymenttest.RawDelivery(conflicting, paymenttest.Encode(altered)), parking.Conflict)
				return got, right, err
			}},
		{what: "it is replayed, and nobody decided which version is right", must: "version-missing",
			do: func(ctx context.Context) (string, bool, error) {
				outcome, err := s.replay(ctx, conflict, intake.NoVersion)
				return outcome, outcome == string(intake.VersionMissing), err
			}},
		{what: "it is replayed in the parked version", must: "accepted, arrives",
			do: func(ctx context.Context) (string, bool, error) {
				outcome, err := s.replay(ctx, conflict, intake.ParkedVersion)
				if err != nil || outcome != string(intake.Accepted) {
					return outcome, false, err
				}
				arrived, err := in.awaitArrival(ctx, arrivalTimeout, event.EventID, conflicting)
				if err != nil {
					return outcome, false, err
				}
				// On its way to a queue, EventBridge may write the number in another way.
				var detail struct{ EventData struct{ Amount float64 } }
				err = json.Unmarshal(arrived.detail, &detail)
				return outcome + ", arrived", detail.EventData.Amount == 9250, err
			}},
		{what: "another conflict is replayed in the first version", must: "accepted, settled",
			do: func(ctx context.Context) (string, bool, error) {
				if _, err := send(ctx, paymenttest.Delivery(other)); err != nil {
					return "", false, err
				}
				other.EventData.Amount = "9250.00"
				name, got, right, err := parked(ctx, second,
					paymenttest.RawDelivery(second, paymenttest.Encode(other)), parking.Conflict)
				if err != nil || !right {
					return got, false, err
				}
				outcome, err := s.replay(ctx, name, intake.FirstVersion)
				if err != nil {
					return outcome, false, err
				}
				state, err := s.decision(ctx, name)
				return fmt.Sprintf("%s, %s", outcome, state),
					outcome == string(intake.Accepted) && state == parking.Settled, err
			}},
		{what: "an event too large for the bus, fetched by its reference", must: "the bytes that were signed",
			do: func(ctx context.Context) (string, bool, error) {
				large, id := s.oversize(), uuid.New().String()
				if _, err := send(ctx, paymenttest.RawDelivery(id, large)); err != nil {
					return "", false, err
				}
				e, err := payment.DecodeRawEvent(large)
				if err != nil {
					return "", false, err
				}
				arrived, err := in.awaitArrival(ctx, arrivalTimeout, e.EventID, id)
				if err != nil {
					return "", false, err
				}
				got, err := claimcheck.Resolve(ctx, s.s3(), arrived.detail)
				if err != nil {
					return "", false, err
				}
				same := "the same"
				if !bytes.Equal(got, large) {
					same = "others"
				}
				return fmt.Sprintf("a detail of %d bytes, %d bytes fetched, %s", len(arrived.detail), len(got), same),
					same == "the same" && len(arrived.detail) < len(large), nil
			}},
	})
}

// parkedEvent returns the one thing that is parked for an eventId.
func (s *stack) parkedEvent(ctx context.Context, id string) (name string, p parking.Parked, err error) {
	list, err := s.store().FindEvent(ctx, id)
	if err != nil {
		return "", p, err
	}
	if len(list) != 1 {
		return "", p, fmt.Errorf("event %s is parked %d times", id, len(list))
	}
	p, err = s.store().Get(ctx, list[0])
	return list[0], p, err
}

// rejectedByTheBus sends an event that is valid for Payhook, and that EventBridge is known to
// reject, and looks for it where it must be parked.
func (s *stack) rejectedByTheBus(ctx context.Context,
	send func(context.Context, []byte) (int, error)) (name, got string, right bool, err error) {
	event := paymenttest.Event()
	text := paymenttest.Encode(event)
	text = fmt.Appendf(text[:len(text)-1], `,"note":1000000000000000000000}`)
	status, err := send(ctx, paymenttest.RawDelivery(uuid.New().String(), text))
	if err != nil {
		return "", "", false, err
	}
	name, p, err := s.parkedEvent(ctx, event.EventID)
	if err != nil {
		return "", fmt.Sprint(status), false, err
	}
	return name, fmt.Sprintf("%d, %s", status, p.Reason),
		status == s.successStatus() && p.Reason == parking.Unpublishable && bytes.Equal(p.Event, text), nil
}

// oversize returns an event that the bus does not carry whole.
func (s *stack) oversize() []byte {
	limit, _ := strconv.Atoi(s.setting(settings.ClaimCheckBytes))
	event := paymenttest.Encode(paymenttest.Event())
	return fmt.Appendf(event[:len(event)-1], `,"note":"%s"}`, strings.Repeat("x", limit))
}
