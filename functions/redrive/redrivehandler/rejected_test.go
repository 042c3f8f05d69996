package redrivehandler

import (
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/intake"
	"payhook.example/shared/objects"
	"payhook.example/shared/paymenttest"
	"payhook.example/shared/proof"
	"payhook.example/shared/settings"
	"payhook.example/shared/wire"
)

// withRejected sets the function up as with storeRejected, and a key endpoint.
func withRejected(t *testing.T, change map[string]string) *world {
	t.Helper()
	service := paymenttest.NewServer(paymenttest.Options{Key: functiontest.SigningKey()})
	t.Cleanup(service.Close)
	env := map[string]string{"PAYHOOK_BASE_URL": service.URL, settings.KeysTableEnv: "keys",
		settings.EvidenceBucketEnv: "records", "PAYHOOK_EVIDENCE": "30d"}
	maps.Copy(env, change)
	return deploy(t, env)
}

// reject stores a rejected webhook that arrived and was signed that long ago.
func (d *world) reject(w paymenttest.Webhook, change func(*proof.Proof)) string {
	d.T.Helper()
	signed, err := paymenttest.Sender{Key: functiontest.SigningKey()}.Sign(d.T.Context(), w)
	if err != nil {
		d.T.Fatal(err)
	}
	p := proof.Proof{Reason: proof.Rejected, Payload: signed.Payload, Request: &proof.RejectedRequest{
		ReceivedAt: time.Now().Add(-w.Age), Outcome: "signature-missing", Method: http.MethodPost,
		SenderIP: "192.0.2.10", Headers: signed.Headers, PayloadBytes: len(signed.Payload)}}
	if change != nil {
		change(&p)
	}
	return d.parkIt(p)
}

// replayIt replays a rejected webhook, and returns the note about it.
func (d *world) replayIt(name string, acceptAge, again bool) (wire.Decided, proof.Decision, proof.Note) {
	d.T.Helper()
	got := d.replayed(wire.RedriveRequest{Reason: "wrong header", By: "ann", AcceptAge: acceptAge, Again: again}, name)
	state, note, err := proof.DecisionOn(d.T.Context(), &d.Parking, name)
	if err != nil || got.Name != name {
		d.T.Errorf("%+v, %v", got, err)
	}
	return got, state, note
}

// A webhook that verifies by now is published once, with its evidence, a line, and a note that says who replayed it.
func TestARejectedWebhookIsPublishedOnce(t *testing.T) {
	d := withRejected(t, nil)
	name := d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Events(2)...)}, nil)
	noted := proof.Note{By: "ann", At: noon, Reason: "wrong header"}
	for i, want := range []wire.Decided{{Recorded: 2}, {Duplicates: 2}} {
		want.Name, want.Outcome = name, "accepted"
		got, state, note := d.replayIt(name, false, i > 0)
		if diff := cmp.Diff(want, got); diff != "" || state != proof.Replayed || note != noted {
			t.Errorf("%s, noted %+v (-want +got)\n%s", state, note, diff)
		}
		line := d.Line()
		if line["msg"] != "replay" || line["name"] != name || line["kind"] != "rejected" ||
			line["reason"] != "wrong header" || line["level"] != nil ||
			line["deliveryId"] == "" || line["outcome"] != "accepted" ||
			line["acceptAge"] != nil {
			t.Errorf("logged %v", line)
		}
		if len(d.Bus.Entries()) != 2 || len(d.Evidence.Keys()) != 1 {
			t.Errorf("%d events are published, %d records", len(d.Bus.Entries()), len(d.Evidence.Keys()))
		}
	}
	if got, _, _ := d.replayIt(name, false, false); got.Outcome != "already-replayed" || got.Duplicates > 0 {
		t.Errorf("replayed again: %+v", got)
	}
}

// What an operator is told is published is on the bus.
func TestTheReplayOfARejectedWebhookSaysWhatIsNotPublished(t *testing.T) {
	d := withRejected(t, nil)
	event := paymenttest.WithAmount(paymenttest.Event(), "99999999999999999999") // which EventBridge rejects
	name := d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(event)}, nil)
	got, _, _ := d.replayIt(name, false, false)
	if got.Outcome != "accepted" || got.Pending != 0 || !strings.Contains(got.Cause, "parked") {
		t.Errorf("%+v", got)
	}
}

// Each check of a fresh webhook is made, with the present settings.
func TestARejectedWebhookIsCheckedAsAFreshOne(t *testing.T) {
	payload, ca := paymenttest.Delivery(paymenttest.Event()), paymenttest.NewCA("Operator CA")
	for name, c := range map[string]struct {
		change    map[string]string
		age       time.Duration
		stored    func(*proof.Proof)
		acceptAge bool
		want      intake.Outcome
	}{
		"changed": {stored: func(p *proof.Proof) { p.Payload = append(p.Payload, ' ') },
			want: intake.SignatureMismatch},
		"without a signature": {stored: func(p *proof.Proof) { delete(p.Request.Headers, "x-svc-signature") },
			want: intake.SignatureMissing},
		"old":               {age: time.Hour, want: intake.TimestampOutside},
		"old, and accepted": {age: time.Hour, acceptAge: true, want: intake.Accepted},
		"too old when it arrived": {age: time.Hour, acceptAge: true, want: intake.TimestampOutside,
			stored: func(p *proof.Proof) { p.Request.ReceivedAt = time.Now().Add(-50 * time.Minute) }},
		"no delivery": {want: intake.Invalid},
		"another method": {stored: func(p *proof.Proof) { p.Request.Method = "DELETE" },
			want: intake.MethodNotAllowed},
		"with PUT": {stored: func(p *proof.Proof) { p.Request.Method = "PUT" }, want: intake.Accepted},
		"not stored whole": {stored: func(p *proof.Proof) { p.Payload, p.Request.PayloadBytes = nil, 1 },
			want: incomplete},
		"with mtls":            {change: functiontest.WithCertificates(t, settings.ByMTLS, ca), want: noCertificate},
		"with both":            {change: functiontest.WithCertificates(t, settings.ByBoth, ca), want: noCertificate},
		"storeRejected is off": {change: map[string]string{settings.KeysTableEnv: ""}, want: storeRejectedOff},
	} {
		d := withRejected(t, c.change)
		w := paymenttest.Webhook{Payload: payload, Age: c.age}
		if c.want == intake.Invalid {
			w.Payload = []byte("{}")
		}
		got, state, note := d.replayIt(d.reject(w, c.stored), c.acceptAge, false)
		published, done := 0, c.want == intake.Accepted
		if done {
			published = 1
		}
		// A person has decided about what is accepted or parked.
		if got.Outcome != c.want.Name || (got.Cause == "") != done || len(d.Bus.Entries()) != published ||
			note.AgeAccepted != c.acceptAge && done || (got.Parked != "") != (c.want == intake.Invalid) ||
			(state == proof.Replayed) != (done || got.Parked != "") {
			t.Errorf("%s: %+v is %s, noted %+v, %d events", name, got, state, note, len(d.Bus.Entries()))
		}
	}
}

func TestTheReplayOfARejectedWebhookIsExplained(t *testing.T) {
	d := withRejected(t, nil)
	const missing = "rejected/2026/01/31/12/20260131T120000.000Z-signature-missing-AAAAAAAAAAAAAAAAAAAAAAAAAA.json"
	if got, state, _ := d.replayIt(missing, false, false); got.Outcome != "" ||
		!strings.HasSuffix(got.Cause, objects.ErrNotFound.Error()) || state != proof.Open {
		t.Errorf("%+v", got)
	}
	for _, e := range []wire.RedriveRequest{{}, {Reason: " "}, {Reason: "a", Dismiss: []string{"x"}}} {
		e.Replay = []string{missing}
		if _, err := d.Handle(t.Context(), e); err == nil {
			t.Errorf("%+v is accepted", e)
		}
	}
	name := d.reject(paymenttest.Webhook{Payload: paymenttest.Delivery(paymenttest.Event())}, nil)
	d.Parking.Fails = func(_ context.Context, call, _ string) error {
		if call == "Create" {
			return http.ErrServerClosed
		}
		return nil
	}
	if got, _, _ := d.replayIt(name, false, false); got.Outcome != "accepted" || got.Cause == "" ||
		d.Line()["level"] != "WARN" {
		t.Errorf("not noted: %+v", got)
	}
}
