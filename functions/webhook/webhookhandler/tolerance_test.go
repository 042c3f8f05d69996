package webhookhandler

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"uuid"

	"github.com/google/go-cmp/cmp"

	"payhook.example/functions/internal/functiontest"
	"payhook.example/shared/paymenttest"
)

// eventOf returns an event with these members beside its name, id and timestamp.
func eventOf(members string) string {
	return eventAt(`"2026-01-31T12:00:00.123Z"`, members)
}

// eventAt returns an event with that timestamp.
func eventAt(timestamp, members string) string {
	text := `{"eventName":"PAYMENT_STATUS.RELEASED","eventId":"` + uuid.New().String() + `","eventTimestamp":` +
		timestamp
	if members != "" {
		text += "," + members
	}
	return text + "}"
}

// payloadOf returns the payload of a delivery of events.
func payloadOf(events ...string) []byte {
	var raw [][]byte
	for _, e := range events {
		raw = append(raw, []byte(e))
	}
	return paymenttest.RawDelivery(uuid.New().String(), raw...)
}

// The sender never sends again, so what is authentic and has an identity is published as it was signed. Who
// consumes it decides about its content. Package payment has every spelling.
func TestWhatIsAuthenticAndHasAnIdentityIsPublished(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 123e6, time.UTC)
	for event, deviation := range map[string]string{ // that with eventTimestamp has no time on the bus
		eventOf(`"eventData":null`): "",
		eventOf(`"eventData":{"amount":1e400,"Amount":1,"claimCheck":{},"eventid":1},"other":null,"":1`): "",
		eventOf(`"eventData":{"identifiers":{"railReferenceId":` + strings.Repeat(`{"a":[`, 400) + "null" +
			strings.Repeat(`]}`, 400) + "}}"): "",
		eventOf(`"eventData":{"identifiers":{"svcPostingIds":["a",123,4]}}`): "eventData.identifiers.svcPostingIds[1]",
		eventOf(`"eventData":["x"]`):                                         "eventData",
		eventAt(`"yesterday"`, `"eventData":7`):                              "eventTimestamp",
		strings.Replace(eventAt("0", ""), `,"eventTimestamp":0`, "", 1):      "eventTimestamp",
		eventAt(`"2026-01-31T14:00:00.123+0200"`, ""):                        "",
	} {
		e := newEndpoint(t, nil)
		if got := e.handle(t, e.request(t, paymenttest.Webhook{Payload: payloadOf(event)})); got.StatusCode != 200 {
			t.Errorf("%s: %d %s", event, got.StatusCode, got.Body)
			continue
		}
		var deviations, metric any // nil for none
		want := at
		if deviation != "" {
			deviations, metric = []any{deviation}, 1.0
		}
		if deviation == "eventTimestamp" {
			want = time.Time{}
		}
		line := e.Line()
		if !cmp.Equal(line["deviations"], deviations) || line["Deviations"] != metric || line["level"] != nil {
			t.Errorf("%s: the line is %v", event, line)
		}
		entries := e.Bus.Entries()
		if len(entries) != 1 || string(entries[0].Detail) != event || !entries[0].Time.Equal(want) ||
			len(e.Parking.Keys()) > 0 {
			t.Errorf("%s: %+v is on the bus", event, entries)
		}
	}
}

// The answer and the line name the first of the events that are not published, and have the numbers of all.
func TestEventsWithoutIdentityAreAnswered(t *testing.T) {
	e := newEndpoint(t, nil)
	first := eventOf(`"eventData":{"amount":1}`)
	e.handle(t, e.request(t, paymenttest.Webhook{Payload: payloadOf(first)}))
	conflicting := strings.Replace(first, `"amount":1`, `"amount":"2"`, 1)
	good, bad := eventOf(""), strings.Replace(eventOf(""), `"eventId":"`, `"eventId":"CANARY`, 1)
	r := e.request(t, paymenttest.Webhook{Payload: payloadOf(good, bad, first, "null", conflicting)})
	got := e.handle(t, r)
	body, line := e.Decode([]byte(got.Body)), e.Line()
	contains := func(name string, got, want map[string]any) {
		for field, want := range want {
			if got[field] != want {
				t.Errorf("%s: %s is %v, want %v", name, field, got[field], want)
			}
		}
	}
	counts := map[string]any{"status": 422.0, "recorded": 1.0, "duplicates": 1.0, "invalid": 2.0}
	contains("the answer", body, counts)
	contains("the line", line, counts)
	contains("the answer", body, map[string]any{"title": "Unprocessable Entity", "conflicts": 1.0,
		"detail": "events[1].eventId: must be a UUID", "deliveryId": line["deliveryId"]})
	contains("the line", line, map[string]any{"outcome": "invalid", "level": "ERROR", "Conflicts": 1.0, "Parked": 2.0,
		"Invalid": 1.0, "ClientErrors": 1.0, "cause": "events[1].eventId: must be a UUID", "Accepted": nil})
	for field, reason := range map[string]string{"parked": "invalid/", "alsoParked": "conflict/"} {
		if name, _ := line[field].(string); !strings.HasPrefix(name, reason) {
			t.Errorf("%s is %v", field, line[field])
		}
	}
	if strings.Contains(e.Log.String()+got.Body, "CANARY") || len(e.Bus.Entries()) != 2 || got.StatusCode != 422 {
		t.Errorf("%d are on the bus: %+v, %s", len(e.Bus.Entries()), got, &e.Log)
	}
	// Sent again, it is counted as parked once.
	if e.handle(t, r); e.Line()["Parked"] != nil {
		t.Errorf("%v", e.Line())
	}
}

// verifies reports whether a signature verifies over exactly these bytes. It shares no code with the function.
func verifies(key *rsa.PublicKey, payload []byte, timestamp, keyID, signature string) bool {
	decoded, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(signature, "="))
	digest := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", payload, timestamp, keyID))
	return err == nil && rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], decoded) == nil
}

// However a request is changed, it has no effect unless its exact bytes verify.
func FuzzNoRequestHasAnEffectUnlessItsExactBytesVerify(f *testing.F) {
	const header, at, kid = "x-svc-signature", "x-svc-timestamp", "x-svc-key-id"
	shared := newEndpoint(f, map[string]string{"PAYHOOK_TIMESTAMP_TOLERANCE": "off"})
	event := eventOf(`"eventData":{"amount":1.10}`)
	for _, payload := range [][]byte{payloadOf(event), append([]byte("\ufeff"), payloadOf(event)...), []byte("{}"),
		payloadOf("null", event), payloadOf(strings.Replace(event, "1.10", "2", 1), event), []byte("\xff"),
		[]byte("[]")} {
		r := shared.request(f, paymenttest.Webhook{Payload: payload})
		f.Add(payload, r.Headers[at], r.Headers[kid], r.Headers[header])
		f.Add(append(bytes.Clone(payload), ' '), r.Headers[at], r.Headers[kid], r.Headers[header])
		f.Add(bytes.TrimPrefix(payload, []byte("\ufeff")), r.Headers[at], r.Headers[kid], r.Headers[header]+"==")
		f.Add(payload, r.Headers[at], strings.ToUpper(r.Headers[kid]), r.Headers[header])
		f.Add(payload, r.Headers[at]+"\n", r.Headers[kid], r.Headers[header])
		f.Add(payload, " "+r.Headers[at], r.Headers[kid], r.Headers[header])
	}
	f.Fuzz(func(t *testing.T, payload []byte, timestamp, keyID, signature string) {
		for _, text := range []*string{&timestamp, &keyID, &signature} {
			*text = strings.ToValidUTF8(*text, "") // in JSON, AWS sends nothing else
		}
		e := start(t, shared.service.URL, &http.Client{}, map[string]string{"PAYHOOK_TIMESTAMP_TOLERANCE": "off"})
		r := unsigned(payload)
		r.Headers = map[string]string{header: signature, at: timestamp, kid: keyID}
		answer := e.handle(t, r)
		if verifies(&functiontest.SigningKey().Private.PublicKey, payload, timestamp, keyID, signature) {
			if published := len(e.Bus.Entries()) > 0; answer.StatusCode == 200 && !published {
				t.Fatalf("%d, and nothing is on the bus", answer.StatusCode)
			}
			return
		}
		if answer.StatusCode < 400 {
			t.Fatalf("%d %s", answer.StatusCode, answer.Body)
		}
		e.NothingHappened()
	})
}
