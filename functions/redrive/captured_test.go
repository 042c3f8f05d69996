package main

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/names"
	"payhook.example/shared/parking"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/settings"
)

// withCapture sets the function up as with captureRejected, and a key service.
func withCapture(t *testing.T, change map[string]string) *deployment {
	t.Helper()
	service := paymenttest.NewServer(paymenttest.Options{Key: signingKey()})
	t.Cleanup(service.Close)
	env := map[string]string{"PAYHOOK_BASE_URL": service.URL, names.KeysTableEnv: "keys",
		names.EvidenceBucketEnv: "records"}
	maps.Copy(env, change)
	return deploy(t, env)
}

// capture captures a webhook that arrived and was signed that long ago.
func (d *deployment) capture(w paymenttest.Webhook, change ...func(*parking.Captured)) string {
	d.t.Helper()
	w.URL = "https://hook.example/"
	signed, err := paymenttest.Sender{Key: signingKey()}.Sign(d.t.Context(), w)
	if err != nil {
		d.t.Fatal(err)
	}
	c := parking.Captured{ReceivedAt: time.Now().Add(-w.Age), Outcome: "signature-missing", Method: http.MethodPost,
		SourceIP: "192.0.2.10", Headers: map[string]string{}, Payload: signed.Body}
	for name := range signed.Header {
		c.Headers[strings.ToLower(name)] = signed.Header.Get(name)
	}
	for _, f := range change {
		f(&c)
	}
	name, err := d.parking.Capture(d.t.Context(), c)
	if err != nil {
		d.t.Fatal(err)
	}
	return name
}

// replayIt replays one captured webhook, and returns the note about it.
func (d *deployment) replayIt(name string, acceptAge bool) (replayed, parking.State, parking.Note) {
	d.t.Helper()
	e := event{Captured: []string{name}, Reason: "wrong header", By: "ann", AcceptAge: acceptAge}
	got := d.handle(e).Replayed[0]
	state, note, err := d.parking.Decision(d.t.Context(), "captured/"+name)
	if err != nil || got.Name != name {
		d.t.Errorf("%+v, %v", got, err)
	}
	return got, state, note
}

// A webhook that verifies by now is published once, with its evidence, a line, and a note that says
// who replayed it.
func TestACapturedWebhookIsPublishedOnce(t *testing.T) {
	d := withCapture(t, nil)
	name := d.capture(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Events(2)...)})
	noted := parking.Note{By: "ann", At: noon, Reason: "wrong header"}
	for _, want := range []replayed{{Recorded: 2}, {Duplicates: 2}} {
		want.Name, want.Outcome = name, intake.Accepted
		got, state, note := d.replayIt(name, false)
		if diff := cmp.Diff(want, got); diff != "" || state != parking.Replayed || note != noted {
			t.Errorf("%s, noted %+v (-want +got)\n%s", state, note, diff)
		}
		line := d.line()
		if line["msg"] != "replay" || line["name"] != name || line["reason"] != "captured" || line["level"] != nil ||
			line["deliveryId"] == "" || line["outcome"] != "accepted" || line["acceptAge"] != nil {
			t.Errorf("logged %v", line)
		}
		if len(d.bus.Entries()) != 2 || len(d.buckets.Objects("records")) != 1 {
			t.Errorf("%d events are published, %d records", len(d.bus.Entries()), len(d.buckets.Objects("records")))
		}
	}
}

// What an operator is told is published is on the bus.
func TestTheReplayOfACapturedWebhookSaysWhatIsNotPublished(t *testing.T) {
	d := withCapture(t, nil)
	name := d.capture(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Events(2)...)})
	d.bus.Reject = func(bus.Entry) error { return http.ErrServerClosed }
	for _, want := range []replayed{{Recorded: 2, Pending: 2}, {Duplicates: 2, Pending: 2}} {
		want.Name, want.Outcome = name, intake.Accepted
		got, _, _ := d.replayIt(name, false)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	event := paymenttest.Event()
	event.EventData.Amount = "99999999999999999999" // which EventBridge rejects
	name = d.capture(paymenttest.Webhook{Payload: paymenttest.Delivery(event)})
	got, _, _ := d.replayIt(name, false)
	if got.Outcome != intake.Accepted || got.Pending != 0 || !strings.Contains(got.Cause, "parked") {
		t.Errorf("%+v", got)
	}
}

// Each check of a fresh webhook is made, with the present settings.
func TestACapturedWebhookIsCheckedAsAFreshOne(t *testing.T) {
	payload := paymenttest.Delivery(paymenttest.Event())
	signed := paymenttest.Webhook{Payload: payload}
	for name, c := range map[string]struct {
		change    map[string]string
		webhook   paymenttest.Webhook
		captured  func(*parking.Captured)
		acceptAge bool
		want      intake.Outcome
	}{
		"changed": {webhook: signed, captured: func(c *parking.Captured) { c.Payload = append(c.Payload, ' ') },
			want: intake.SignatureMismatch},
		"without a signature": {webhook: signed,
			captured: func(c *parking.Captured) { delete(c.Headers, "x-svc-signature") },
			want:     intake.SignatureMissing},
		"old": {webhook: paymenttest.Webhook{Payload: payload, Age: time.Hour}, want: intake.TimestampOutside},
		"old, and accepted": {webhook: paymenttest.Webhook{Payload: payload, Age: time.Hour}, acceptAge: true,
			want: intake.Accepted},
		"too old when it arrived": {webhook: paymenttest.Webhook{Payload: payload, Age: time.Hour}, acceptAge: true,
			captured: func(c *parking.Captured) { c.ReceivedAt = time.Now().Add(-50 * time.Minute) },
			want:     intake.TimestampOutside},
		"no delivery": {webhook: paymenttest.Webhook{Payload: []byte("{}")}, want: intake.Invalid},
		"from elsewhere": {webhook: signed, change: map[string]string{"PAYHOOK_ALLOWED_SOURCES": "198.51.100.0/24"},
			want: intake.SourceNotAllowed},
		"from an allowed source": {webhook: signed,
			change: map[string]string{"PAYHOOK_ALLOWED_SOURCES": "192.0.2.0/24"}, want: intake.Accepted},
		"another method": {webhook: signed, captured: func(c *parking.Captured) { c.Method = "GET" },
			want: intake.MethodNotAllowed},
		"with PUT": {webhook: signed, captured: func(c *parking.Captured) { c.Method = "PUT" }, want: intake.Accepted},
		"too large": {webhook: signed, change: map[string]string{"PAYHOOK_MAX_PAYLOAD_BYTES": "100"},
			want: intake.PayloadTooLarge},
		"not captured whole": {webhook: paymenttest.Webhook{
			Payload: []byte(strings.Repeat(" ", parking.MaxCapturedPayload+1))}, want: incomplete},
		"captureRejected is off": {webhook: signed, change: map[string]string{names.KeysTableEnv: ""},
			want: captureRejectedOff},
	} {
		t.Run(name, func(t *testing.T) {
			d := withCapture(t, c.change)
			var change []func(*parking.Captured)
			if c.captured != nil {
				change = append(change, c.captured)
			}
			got, state, note := d.replayIt(d.capture(c.webhook, change...), c.acceptAge)
			published, done := 0, c.want == intake.Accepted
			if done {
				published = 1
			}
			if got.Outcome != c.want || (got.Cause == "") != done || len(d.bus.Entries()) != published ||
				note.AgeAccepted != c.acceptAge && done {
				t.Errorf("%+v, noted %+v, %d events", got, note, len(d.bus.Entries()))
			}
			// A person has decided about what is accepted or parked.
			if decided := done || got.Parked != ""; decided != (state == parking.Replayed) ||
				(got.Parked != "") != (c.want == intake.Invalid) {
				t.Errorf("%+v is %s", got, state)
			}
		})
	}
}

func TestACapturedWebhookHasNoClientCertificate(t *testing.T) {
	for _, authentication := range []string{settings.ByMTLS, settings.ByBoth} {
		d := withCapture(t, withCertificates(t, authentication, paymenttest.NewCA("Operator CA")))
		name := d.capture(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
		got, state, _ := d.replayIt(name, true)
		if got.Outcome != notCaptured || !strings.Contains(got.Cause, "certificate") || state != parking.Open {
			t.Errorf("%s: %+v", authentication, got)
		}
	}
}

func TestTheReplayOfACapturedWebhookIsExplained(t *testing.T) {
	d := withCapture(t, nil)
	if got, state, _ := d.replayIt("20260131T120000.000Z-signature-missing-X.json", false); got.Outcome != (intake.Outcome{}) ||
		got.Cause != parking.ErrNotCaptured.Error() || state != parking.Open {
		t.Errorf("%+v", got)
	}
	for _, e := range []event{{}, {Reason: " "}, {Reason: "a", Replay: []string{"x"}}} {
		e.Captured = []string{"x"}
		if _, err := d.Handle(t.Context(), e); err == nil {
			t.Errorf("%+v is accepted", e)
		}
	}
	name := d.capture(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
	d.buckets.Fails = func(operation, key string) error {
		if operation == "PutObject" && strings.Contains(key, "replayed/") {
			return http.ErrServerClosed
		}
		return nil
	}
	if got, _, _ := d.replayIt(name, false); got.Outcome != intake.Accepted || got.Cause == "" ||
		d.line()["level"] != "WARN" {
		t.Errorf("not noted: %+v", got)
	}
}
