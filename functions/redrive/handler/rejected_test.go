package handler

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/objects"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/redrive"
	"payhook.example/shared/settings"
)

// withRejected sets the function up as with captureRejected, and a key service.
func withRejected(t *testing.T, change map[string]string) *deployment {
	t.Helper()
	service := paymenttest.NewServer(paymenttest.Options{Key: signingKey()})
	t.Cleanup(service.Close)
	env := map[string]string{"PAYHOOK_BASE_URL": service.URL, settings.KeysTableEnv: "keys",
		settings.EvidenceBucketEnv: "records"}
	maps.Copy(env, change)
	return deploy(t, env)
}

// reject stores a rejected webhook that arrived and was signed that long ago.
func (d *deployment) reject(w paymenttest.Webhook, change ...func(*proof.Proof)) string {
	d.t.Helper()
	signed, err := paymenttest.Sender{Key: signingKey()}.Sign(d.t.Context(), w)
	if err != nil {
		d.t.Fatal(err)
	}
	p := proof.Proof{Reason: proof.Rejected, Payload: signed.Payload, Request: &proof.Request{
		ReceivedAt: time.Now().Add(-w.Age), Outcome: "signature-missing", Method: http.MethodPost,
		SourceIP: "192.0.2.10", Headers: signed.Headers, PayloadBytes: len(signed.Payload)}}
	for _, f := range change {
		f(&p)
	}
	return d.parkIt(p)
}

// replayIt replays a rejected webhook, and returns the note about it.
func (d *deployment) replayIt(name string, acceptAge, again bool) (redrive.Replayed, proof.Decision, proof.Note) {
	d.t.Helper()
	got := d.replayed(redrive.Request{Reason: "wrong header", By: "ann", AcceptAge: acceptAge, Again: again}, name)
	state, note, err := proof.DecisionOn(d.t.Context(), &d.parked, name)
	if err != nil || got.Name != name {
		d.t.Errorf("%+v, %v", got, err)
	}
	return got, state, note
}

// A webhook that verifies by now is published once, with its evidence, a line, and a note that says
// who replayed it.
func TestARejectedWebhookIsPublishedOnce(t *testing.T) {
	d := withRejected(t, nil)
	name := d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Events(2)...)})
	noted := proof.Note{By: "ann", At: noon, Reason: "wrong header"}
	for i, want := range []redrive.Replayed{{Recorded: 2}, {Duplicates: 2}} {
		want.Name, want.Outcome = name, "accepted"
		got, state, note := d.replayIt(name, false, i > 0)
		if diff := cmp.Diff(want, got); diff != "" || state != proof.Replayed || note != noted {
			t.Errorf("%s, noted %+v (-want +got)\n%s", state, note, diff)
		}
		line := d.line()
		if line["msg"] != "replay" || line["name"] != name || line["kind"] != "rejected" ||
			line["reason"] != "wrong header" || line["level"] != nil ||
			line["deliveryId"] == "" || line["outcome"] != "accepted" ||
			line["acceptAge"] != nil {
			t.Errorf("logged %v", line)
		}
		if len(d.bus.Entries()) != 2 || len(d.records.Keys()) != 1 {
			t.Errorf("%d events are published, %d records", len(d.bus.Entries()), len(d.records.Keys()))
		}
	}
	if got, _, _ := d.replayIt(name, false, false); got.Outcome != "already-replayed" || got.Duplicates > 0 {
		t.Errorf("replayed again: %+v", got)
	}
}

// What an operator is told is published is on the bus.
func TestTheReplayOfARejectedWebhookSaysWhatIsNotPublished(t *testing.T) {
	d := withRejected(t, nil)
	name := d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Events(2)...)})
	d.bus.Reject = func(bus.Entry) error { return http.ErrServerClosed }
	for i, want := range []redrive.Replayed{{Recorded: 2, Pending: 2}, {Duplicates: 2, Pending: 2}} {
		want.Name, want.Outcome = name, "accepted"
		got, _, _ := d.replayIt(name, false, i > 0)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	event := paymenttest.Event()
	event.EventData.Amount = "99999999999999999999" // which EventBridge rejects
	name = d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(event)})
	got, _, _ := d.replayIt(name, false, false)
	if got.Outcome != "accepted" || got.Pending != 0 || !strings.Contains(got.Cause, "parked") {
		t.Errorf("%+v", got)
	}
}

// Each check of a fresh webhook is made, with the present settings.
func TestARejectedWebhookIsCheckedAsAFreshOne(t *testing.T) {
	payload := paymenttest.Delivery(paymenttest.Event())
	signed := paymenttest.Webhook{Payload: payload}
	for name, c := range map[string]struct {
		change    map[string]string
		webhook   paymenttest.Webhook
		captured  func(*proof.Proof)
		acceptAge bool
		want      intake.Outcome
	}{
		"changed": {webhook: signed, captured: func(p *proof.Proof) { p.Payload = append(p.Payload, ' ') },
			want: intake.SignatureMismatch},
		"without a signature": {webhook: signed,
			captured: func(p *proof.Proof) { delete(p.Request.Headers, "x-svc-signature") },
			want:     intake.SignatureMissing},
		"old": {webhook: paymenttest.Webhook{Payload: payload, Age: time.Hour}, want: intake.TimestampOutside},
		"old, and accepted": {webhook: paymenttest.Webhook{Payload: payload, Age: time.Hour}, acceptAge: true,
			want: intake.Accepted},
		"too old when it arrived": {webhook: paymenttest.Webhook{Payload: payload, Age: time.Hour}, acceptAge: true,
			captured: func(p *proof.Proof) { p.Request.ReceivedAt = time.Now().Add(-50 * time.Minute) },
			want:     intake.TimestampOutside},
		"no delivery": {webhook: paymenttest.Webhook{Payload: []byte("{}")}, want: intake.Invalid},
		"from elsewhere": {webhook: signed, change: map[string]string{"PAYHOOK_ALLOWED_SOURCES": "198.51.100.0/24"},
			want: intake.SourceNotAllowed},
		"from an allowed source": {webhook: signed,
			change: map[string]string{"PAYHOOK_ALLOWED_SOURCES": "192.0.2.0/24"}, want: intake.Accepted},
		"another method": {webhook: signed, captured: func(p *proof.Proof) { p.Request.Method = "GET" },
			want: intake.MethodNotAllowed},
		"with PUT": {webhook: signed, captured: func(p *proof.Proof) { p.Request.Method = "PUT" },
			want: intake.Accepted},
		"not captured whole": {webhook: paymenttest.Webhook{
			Payload: []byte(strings.Repeat(" ", proof.MaxCapturedPayload+1))},
			captured: func(p *proof.Proof) { p.Payload = nil }, want: incomplete},
		"captureRejected is off": {webhook: signed, change: map[string]string{settings.KeysTableEnv: ""},
			want: captureRejectedOff},
	} {
		t.Run(name, func(t *testing.T) {
			d := withRejected(t, c.change)
			var change []func(*proof.Proof)
			if c.captured != nil {
				change = append(change, c.captured)
			}
			got, state, note := d.replayIt(d.reject(c.webhook, change...), c.acceptAge, false)
			published, done := 0, c.want == intake.Accepted
			if done {
				published = 1
			}
			if got.Outcome != c.want.Name || (got.Cause == "") != done || len(d.bus.Entries()) != published ||
				note.AgeAccepted != c.acceptAge && done {
				t.Errorf("%+v, noted %+v, %d events", got, note, len(d.bus.Entries()))
			}
			// A person has decided about what is accepted or parked.
			if decided := done || got.Parked != ""; decided != (state == proof.Replayed) ||
				(got.Parked != "") != (c.want == intake.Invalid) {
				t.Errorf("%+v is %s", got, state)
			}
		})
	}
}

func TestARejectedWebhookHasNoClientCertificate(t *testing.T) {
	for _, authentication := range []string{settings.ByMTLS, settings.ByBoth} {
		d := withRejected(t, withCertificates(t, authentication, paymenttest.NewCA("Operator CA")))
		name := d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
		got, state, _ := d.replayIt(name, true, false)
		if got.Outcome != noCertificate.Name || !strings.Contains(got.Cause, "certificate") || state != proof.Open {
			t.Errorf("%s: %+v", authentication, got)
		}
	}
}

func TestTheReplayOfARejectedWebhookIsExplained(t *testing.T) {
	d := withRejected(t, nil)
	const missing = "rejected/2026/01/31/12/20260131T120000.000Z-signature-missing-X.json"
	if got, state, _ := d.replayIt(missing, false, false); got.Outcome != "" ||
		!strings.HasSuffix(got.Cause, objects.ErrNotFound.Error()) || state != proof.Open {
		t.Errorf("%+v", got)
	}
	for _, e := range []redrive.Request{{}, {Reason: " "}, {Reason: "a", Dismiss: []string{"x"}}} {
		e.Replay = []string{missing}
		if _, err := d.Handle(t.Context(), e); err == nil {
			t.Errorf("%+v is accepted", e)
		}
	}
	name := d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())})
	d.parked.fails = func(string) error { return http.ErrServerClosed }
	if got, _, _ := d.replayIt(name, false, false); got.Outcome != "accepted" || got.Cause == "" ||
		d.line()["level"] != "WARN" {
		t.Errorf("not noted: %+v", got)
	}
}
